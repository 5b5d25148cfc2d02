"""The fake cloud's other resources of a cluster: what its console added, as `add_resource` says."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from cloudprovider.ownedresources import OwnedResource, OwnedResources
from cloudprovider.testing.fake.faults import Key
from cloudprovider.testing.fake.gate import Part, carried


def _resource(_: FakeOwnedResources, __: str, resource: OwnedResource) -> list[Key]:
    return [(resource.id,)]


class FakeOwnedResources(Part, OwnedResources):
    """Security groups and their like of one fake cloud."""

    @override
    @carried()
    def list_owned_resources(self, cluster_name: str) -> Sequence[OwnedResource]:
        return [
            OwnedResource(one.kind, one.id, one.name)
            for _, one in sorted(self._world.resources.items())
            if one.cluster == cluster_name
        ]

    @override
    @carried(_resource, changes=True)
    def delete_owned_resource(self, cluster_name: str, resource: OwnedResource) -> None:
        found = self._world.resources.get(resource.id)
        if found is None or found.cluster != cluster_name:
            self._gate.calls.effect("absent")
            return
        del self._world.resources[resource.id]
        self._gate.calls.effect("deleted")
