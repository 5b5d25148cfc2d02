"""The caches as a provider sees them: `cloudprovider.host.Listers` over the shared informers.

Stage 2. Data comes from the informer factory; it goes to a provider with `set_informers`. An informer is made only when
the provider asks for its kind, so that no right and no memory is needed for what nobody reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controllers.runtime import cache
from controllers.runtime.cache import NODES, InformerFactory, Resource, T

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume
    from kubernetes.client.models.v1_service import V1Service

    from cloudprovider.host import Lister


class InformerListers:
    """Implements `cloudprovider.host.Listers`. Thread-safe."""

    def __init__(self, informers: InformerFactory) -> None:
        self._informers = informers

    @property
    def nodes(self) -> Lister[V1Node]:
        """Nodes, by name."""
        return self._lister(NODES)

    @property
    def services(self) -> Lister[V1Service]:
        """Services, by "namespace/name"."""
        return self._lister(cache.SERVICES)

    @property
    def persistent_volumes(self) -> Lister[V1PersistentVolume]:
        """Persistent volumes, by name."""
        return self._lister(cache.PERSISTENT_VOLUMES)

    def has_synced(self) -> bool:
        """Whether every cache that was asked for holds a complete first listing."""
        return self._informers.has_synced()

    def _lister(self, resource: Resource[T]) -> Lister[T]:
        return self._informers.informer(resource).lister
