"""Which node an instance is, and back: from the host's cache of nodes, which knows their provider
IDs.

Without that cache (a program that has none, or has not filled it yet) a node is named after its
instance's private DNS name, as AWS's address-based convention says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kubernetes.client.models.v1_node import V1Node

from aws_provider.finder import PROVIDER
from cloudprovider import Listers
from cloudprovider.helpers import node_name, provider_id_of

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef


class NodeNames:
    """Names of nodes by instance ID. Thread-safe."""

    def __init__(self) -> None:
        self._listers: Listers | None = None

    def use(self, listers: Listers) -> None:
        """Read the nodes here from now on."""
        self._listers = listers

    def by_instance(self) -> Mapping[str, str]:
        """The name of every instance's node, by instance ID; empty without a filled cache. Of
        several nodes with one provider ID, which a kubelet writes itself, the oldest."""
        if self._listers is None or not self._listers.has_synced():
            return {}
        ours = [node for node in self._listers.nodes.list() if provider_id_of(node).startswith(f"{PROVIDER}://")]
        ours.sort(key=_age, reverse=True)
        return {provider_id_of(node).rpartition("/")[2]: node_name(node) for node in ours}

    @staticmethod
    def by_convention(instance: InstanceTypeDef) -> str:
        """The name that a node of this instance has where nobody gave it another."""
        return instance.get("PrivateDnsName", "")


def _age(node: V1Node) -> tuple[str, str]:
    """The API server's word for it, which no kubelet can change; then the name."""
    return str(node.metadata.creation_timestamp if node.metadata is not None else ""), node_name(node)
