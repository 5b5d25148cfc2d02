"""What the host hands to a provider: Protocols, so that any object of the right shape will do.

`Interface.initialize` gets a `ClientBuilder` and a `StopSignal`; a provider with `set_informers`
gets `Listers`. The manager implements them over its own clients and caches; a test may pass a
threading.Event and a ten-line class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from kubernetes.client.api_client import ApiClient
    from kubernetes.client.configuration import Configuration
    from kubernetes.client.models.v1_endpoint_slice import V1EndpointSlice
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume
    from kubernetes.client.models.v1_service import V1Service

__all__ = [
    "ClientBuilder",
    "EndpointSliceLister",
    "InformerUser",
    "Lister",
    "Listers",
    "LookAgain",
    "StopSignal",
]

T_co = TypeVar("T_co", covariant=True)


class StopSignal(Protocol):
    """Says once that it is time to stop. `threading.Event` fits. Thread-safe."""

    def is_set(self) -> bool:
        """Whether to stop."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is time to stop, or `timeout` seconds; returns `is_set()`. Use it in place
        of sleep."""
        ...


class ClientBuilder(Protocol):
    """Makes API clients that name their user, obey the host's limits, and refuse to write once the
    lease is lost.

    Thread-safe. `name` becomes part of the user agent: choose one a part of the provider
    ("acme-routes").

    Follows: ControllerClientBuilder in k8s.io/cloud-provider cloud.go.
    """

    def config(self, name: str) -> Configuration:
        """A configuration of the official client, a copy that the caller may change."""
        ...

    def client(self, name: str) -> ApiClient:
        """An API client of the official library, to be wrapped as in
        `CoreV1Api(builder.client("acme"))`.

        The host's has one client for each name, whose connections many threads share, so that it
        may be asked for at each use: do not close it, and do not change its configuration. Take
        another name for `kubernetes.stream`, which takes a client for itself for a moment. A watch
        without time limits of yours ends after half a minute, as any watch ends now and then.
        """
        ...

    def cluster_name(self) -> str:
        """The name that load balancers and routes are asked for by (--cluster-name); empty where
        nobody said it, as in `python -m cloudprovider check`.

        A provider whose configuration names the cluster, too, raises in `initialize` where the two
        differ: it would look nodes up under one name and build load balancers under the other.
        """
        ...

    def cluster_identity(self) -> str | None:
        """The UID of the namespace kube-system: the same for the cluster's whole life, and
        different for each cluster.

        None when it may not be read. Mark cloud objects with it beside the cluster's name, which is
        "kubernetes" in many clusters at once.
        """
        ...


@runtime_checkable
class LookAgain(Protocol):
    """Implemented by the `ClientBuilder` that `initialize` gets: the provider asks the host to look
    at an object again.

    A host of an older version lacks it, and so may a test: ask
    `isinstance(client_builder, LookAgain)`.
    """

    def look_again(self, kind: str, namespace: str, name: str) -> None:
        """Have the host look at this object again, because something of yours has changed: a
        certificate that it names, a quota, an operation that ended.

        "Service": its load balancer is ensured, although the Service is the same, and although it
        failed a moment ago. "Node", with the namespace "": its instance's metadata is read.

        Any thread, as often as you like; returns at once. Calls for one object are gathered: it is
        looked at once more after the last call. A Service that is named again and again is looked
        at ever more seldom, up to once in 30 seconds. What users and nodes wait for goes first. An
        object that is not there, or has nothing of this provider, is ignored, and so is every call
        in a process that does not lead.

        Raises ValueError for another kind or for what is no name, TypeError for what is no text.
        """
        ...


class Lister(Protocol[T_co]):
    """A view of the host's cache of one kind of object. Thread-safe, answers from memory.

    The objects are shared with every other reader: never change one. They may be a moment old.
    """

    def get(self, key: str) -> T_co | None:
        """The object with this key, "name" or "namespace/name"; None when the cache has none."""
        ...

    def list(self) -> Sequence[T_co]:
        """All objects, in no particular order."""
        ...


class EndpointSliceLister(Lister["V1EndpointSlice"], Protocol):
    """EndpointSlices by "namespace/name", and those of a Service. Without what tells which pod an
    endpoint is (`target_ref`, `hostname`) and without hints."""

    def of_service(self, namespace: str, name: str) -> Sequence[V1EndpointSlice]:
        """The EndpointSlices with this Service's name in their label kubernetes.io/service-name."""
        ...


class Listers(Protocol):
    """The host's caches, by kind. Empty until the host has listed: see `has_synced`."""

    @property
    def nodes(self) -> Lister[V1Node]:
        """Nodes, by name."""
        ...

    @property
    def services(self) -> Lister[V1Service]:
        """Services, by "namespace/name"."""
        ...

    @property
    def persistent_volumes(self) -> Lister[V1PersistentVolume]:
        """Persistent volumes, by name."""
        ...

    @property
    def endpoint_slices(self) -> EndpointSliceLister:
        """EndpointSlices. Ask for it in `set_informers`, and only where you need it: the host then
        lists and watches them all, and needs the permission for it (list and watch on
        endpointslices of discovery.k8s.io).

        What `LoadBalancer.depends_on` reads here may change its answer: it is asked again when
        slices of a Service have changed, and never before the cache is filled.
        """
        ...

    def has_synced(self) -> bool:
        """Whether every cache that was asked for holds a complete first listing."""
        ...


@runtime_checkable
class InformerUser(Protocol):
    """Optional, for a provider that reads the cluster's objects: define `set_informers` on the
    `Interface`.

    Follows: InformerUser in k8s.io/cloud-provider cloud.go.
    """

    def set_informers(self, informers: Listers) -> None:
        """Called once, after `initialize` and before the caches are filled. Keep the argument and
        return at once."""
        ...
