"""The cluster that the provider gets where the suite runs it alone: none."""

from __future__ import annotations

from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration

CLUSTER_IDENTITY = "c0f0a1ce-0000-4000-8000-000000000001"
"""The UID of the namespace kube-system, as the suite tells it."""


class NoCluster:
    """A `cloudprovider.ClientBuilder` without a cluster behind it."""

    def config(self, name: str) -> Configuration:
        """A configuration whose server does not exist."""
        return Configuration(host="https://no-cluster.invalid")

    def client(self, name: str) -> ApiClient:
        """A client whose every request fails."""
        made = ApiClient(self.config(name))
        made.user_agent = name
        return made

    def cluster_identity(self) -> str:
        """The same every time."""
        return CLUSTER_IDENTITY
