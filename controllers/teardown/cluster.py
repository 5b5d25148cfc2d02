"""What the API server says before a teardown, where it is there: who the cluster is, and whether
its manager still works, which would build again what is deleted. Nothing is written."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NoReturn

from cloudprovider import CloudProviderError
from controllers.runtime.api import NotFound

if TYPE_CHECKING:
    from kubernetes.client.api_client import ApiClient
    from kubernetes.client.configuration import Configuration

    from cloudprovider import StopSignal
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.clock import Clock

_LOOK: Final = 1.0  # seconds between two looks at the lease
_MOST: Final = 60.0  # of a lease's duration: what a hand wrote there must not hold us up
_IDENTITY: Final = "teardown"


class ClusterWords:
    """The cluster as the provider sees it in a teardown: a name and an identity, and no API server,
    as that may be gone. Implements `cloudprovider.ClientBuilder`."""

    def __init__(self, name: str, identity: str) -> None:
        self._name = name
        self._identity = identity

    def config(self, name: str) -> Configuration:
        """Refused."""
        self._refuse(name)

    def client(self, name: str) -> ApiClient:
        """Refused."""
        self._refuse(name)

    def cluster_name(self) -> str:
        """As --cluster-name says."""
        return self._name

    def cluster_identity(self) -> str | None:
        """As --cluster-identity or the API server says."""
        return self._identity or None

    def _refuse(self, name: str) -> NoReturn:
        raise CloudProviderError(f"there is no client {name}: teardown gives a provider no access to the cluster")


def leader(clients: ClientBuilder, namespace: str, name: str, clock: Clock, stop: StopSignal) -> str:
    """Who holds the Lease and renews it; "" for nobody. Blocks for at most its duration: whether it
    is renewed is seen by watching, not by the clocks of two machines. Raises ApiError."""
    first = _lease(clients, namespace, name)
    holder = _spec(first).get("holderIdentity")
    if not isinstance(holder, str) or not holder:
        return ""
    until = clock.monotonic() + _seconds(first)
    while clock.monotonic() < until and not stop.wait(_LOOK):
        found = _lease(clients, namespace, name)
        # Somebody renews it. The clocks of two machines are never compared.
        if _spec(found) != _spec(first):
            now = _spec(found).get("holderIdentity")
            return now if isinstance(now, str) else ""
    return ""


def _lease(clients: ClientBuilder, namespace: str, name: str) -> dict[str, Any]:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
    try:
        return dict(clients.rest(_IDENTITY).get(path))
    except NotFound:
        return {}


def _spec(lease: dict[str, Any]) -> dict[str, Any]:
    spec = lease.get("spec")
    return spec if isinstance(spec, dict) else {}


def _seconds(lease: dict[str, Any]) -> float:
    said = _spec(lease).get("leaseDurationSeconds")
    usable = isinstance(said, int | float) and math.isfinite(said) and said > 0
    return min(float(said), _MOST) + _LOOK if usable and said is not None else _MOST
