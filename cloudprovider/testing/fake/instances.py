"""Instances of the fake cloud, in all three forms, and zones (stage 5).

An instance is found by the node's provider ID, or by the node's name while it has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider.errors import CloudProviderError, InstanceNotFound, NotImplementedByProvider
from cloudprovider.instances import InstanceMetadata, Instances, InstancesBatch, InstanceState, InstancesV2
from cloudprovider.testing.fake.config import FakeConfig
from cloudprovider.testing.fake.errors import BadRequest
from cloudprovider.testing.fake.gate import Gate
from cloudprovider.testing.fake.records import INSTANCES, REMOVED_INSTANCES, SSH_KEYS, Address, Instance, Mark
from cloudprovider.testing.fake.store import Store, View
from cloudprovider.zones import Zone, Zones

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

__all__ = ["FakeInstances", "FakeInstancesV2", "FakeZones", "Machines"]


@lru_cache(maxsize=20_000)
def _addresses(addresses: tuple[Address, ...]) -> tuple[V1NodeAddress, ...]:
    return tuple(V1NodeAddress(type=kind, address=value) for kind, value in addresses)


class Machines:
    """Finds machines in the store, and makes those that appear on demand. Thread-safe."""

    def __init__(self, config: FakeConfig, store: Store) -> None:
        self.config = config
        self._store = store
        self._prefix = f"{config.provider}://"

    def provider_id(self, instance: Instance) -> str:
        return self._prefix + instance.id if self.config.provider_ids else ""

    def by_node(self, nodes: Sequence[tuple[str, str]], as_of: float | None = None) -> dict[str, Instance]:
        """By node name, the machines of these (name, provider ID) pairs; absent ones are left out."""
        self._appear([name for name, _ in nodes])
        with self._store.read(as_of) as view:
            return self._look_up(view, nodes)

    def by_name(self, name: str, as_of: float | None = None) -> Instance:
        """Raises InstanceNotFound."""
        return self._one(name, "", as_of)

    def by_provider_id(self, provider_id: str, as_of: float | None = None) -> Instance:
        """Raises InstanceNotFound; NotImplementedByProvider in a cloud without provider IDs."""
        if not self.config.provider_ids:
            raise NotImplementedByProvider("this cloud has no provider IDs")
        return self._one("", provider_id, as_of)

    def _one(self, name: str, provider_id: str, as_of: float | None) -> Instance:
        found = self.by_node([(name, provider_id)], as_of).get(name)
        if found is None:
            raise InstanceNotFound(f"no instance {provider_id or name}")
        return found

    def _look_up(self, view: View, nodes: Sequence[tuple[str, str]]) -> dict[str, Instance]:
        by_id = {id_.removeprefix(self._prefix): name for name, id_ in nodes if id_.startswith(self._prefix)}
        names = [name for name, id_ in nodes if not id_]
        found = view.get_many(INSTANCES, names)
        if by_id:
            found |= {by_id[id_]: one for id_, one in view.find_many(INSTANCES, by_id).items()}
        return found

    def _appear(self, names: Sequence[str]) -> None:
        kind = self.config.on_demand
        wanted = [name for name in names if name]
        if kind is None or not wanted:
            return
        with self._store.read() as view:
            known = view.get_many(INSTANCES, wanted)
            removed = view.get_many(REMOVED_INSTANCES, wanted)
        new = [name for name in wanted if name not in known and name not in removed]
        if new:
            with self._store.write(settled=True) as change:
                for name in new:
                    change.put(INSTANCES, name, kind.named(name, change.add("appeared")))


def _names(node: V1Node) -> tuple[str, str]:
    """(name, provider ID) of a node, which are also the names that faults match."""
    assert node.metadata is not None
    return node.metadata.name or "", (node.spec.provider_id if node.spec is not None else None) or ""


def _metadata(machines: Machines, instance: Instance) -> InstanceMetadata:
    return InstanceMetadata(
        provider_id=machines.provider_id(instance),
        instance_type=instance.type,
        node_addresses=_addresses(instance.addresses),
        zone=instance.zone,
        region=instance.region,
        additional_labels=instance.labels,
    )


class FakeInstancesV2(InstancesV2, InstancesBatch):
    """InstancesV2 and InstancesBatch of one fake cloud."""

    def __init__(self, gate: Gate, machines: Machines) -> None:
        self._gate = gate
        self._machines = machines

    @property
    def max_batch(self) -> int:
        return self._machines.config.max_batch

    def instance_exists(self, node: V1Node) -> bool:
        names = _names(node)
        return self._gate.call(
            "instance_exists", [names], lambda as_of: bool(self._machines.by_node([names], as_of)), arguments=[node]
        )

    def instance_shutdown(self, node: V1Node) -> bool:
        return self._gate.call(
            "instance_shutdown", [_names(node)], lambda as_of: self._find(node, as_of).shutdown, arguments=[node]
        )

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        return self._gate.call(
            "instance_metadata",
            [_names(node)],
            lambda as_of: _metadata(self._machines, self._find(node, as_of)),
            arguments=[node],
        )

    def instances_metadata(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceMetadata | CloudProviderError]:
        return self._batch("instances_metadata", nodes, lambda one: _metadata(self._machines, one))

    def instances_state(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceState | CloudProviderError]:
        return self._batch(
            "instances_state", nodes, lambda one: InstanceState.SHUTDOWN if one.shutdown else InstanceState.RUNNING
        )

    def _find(self, node: V1Node, as_of: float | None) -> Instance:
        names = _names(node)
        found = self._machines.by_node([names], as_of).get(names[0])
        if found is None:
            raise InstanceNotFound(f"no instance {names[1] or names[0]}")
        return found

    def _batch(self, method: str, nodes: Sequence[V1Node], answer: Any) -> dict[str, Any]:
        if len(nodes) > self.max_batch:
            raise BadRequest(f"{method}: {len(nodes)} nodes in one call, the most is {self.max_batch}")
        keys = [_names(node) for node in nodes]

        def work(as_of: float | None) -> dict[str, Any]:
            found = self._machines.by_node(keys, as_of)
            gone = {name: InstanceNotFound(f"no instance {id_ or name}") for name, id_ in keys if name not in found}
            return {**{name: answer(one) for name, one in found.items()}, **gone}

        return self._gate.call(method, keys, work, arguments=[nodes])


class FakeInstances(Instances):
    """The older Instances of one fake cloud."""

    def __init__(self, gate: Gate, machines: Machines, store: Store) -> None:
        self._gate = gate
        self._machines = machines
        self._store = store

    def node_addresses(self, name: str) -> Sequence[V1NodeAddress]:
        work = lambda as_of: _addresses(self._machines.by_name(name, as_of).addresses)  # noqa: E731
        return self._gate.call("node_addresses", [(name,)], work)

    def node_addresses_by_provider_id(self, provider_id: str) -> Sequence[V1NodeAddress]:
        work = lambda as_of: _addresses(self._machines.by_provider_id(provider_id, as_of).addresses)  # noqa: E731
        return self._gate.call("node_addresses_by_provider_id", [(provider_id,)], work)

    def instance_id(self, node_name: str) -> str:
        def work(as_of: float | None) -> str:
            if not self._machines.config.provider_ids:
                raise NotImplementedByProvider("this cloud has no provider IDs")
            return self._machines.by_name(node_name, as_of).id

        return self._gate.call("instance_id", [(node_name,)], work)

    def instance_type(self, name: str) -> str:
        return self._gate.call("instance_type", [(name,)], lambda as_of: self._machines.by_name(name, as_of).type)

    def instance_type_by_provider_id(self, provider_id: str) -> str:
        work = lambda as_of: self._machines.by_provider_id(provider_id, as_of).type  # noqa: E731
        return self._gate.call("instance_type_by_provider_id", [(provider_id,)], work)

    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        def work(_: float | None) -> None:
            with self._store.write() as change:
                change.put(SSH_KEYS, f"{user}/{key_data.decode()}", Mark(user))

        self._gate.call("add_ssh_key_to_all_instances", [(user,)], work)

    def current_node_name(self, hostname: str) -> str:
        return self._gate.call("current_node_name", [(hostname,)], lambda _: hostname)

    def instance_exists_by_provider_id(self, provider_id: str) -> bool:
        def work(as_of: float | None) -> bool:
            try:
                self._machines.by_provider_id(provider_id, as_of)
            except InstanceNotFound:
                return False
            return True

        return self._gate.call("instance_exists_by_provider_id", [(provider_id,)], work)

    def instance_shutdown_by_provider_id(self, provider_id: str) -> bool:
        work = lambda as_of: self._machines.by_provider_id(provider_id, as_of).shutdown  # noqa: E731
        return self._gate.call("instance_shutdown_by_provider_id", [(provider_id,)], work)


class FakeZones(Zones):
    """Zones of one fake cloud."""

    def __init__(self, gate: Gate, machines: Machines) -> None:
        self._gate = gate
        self._machines = machines

    def get_zone(self) -> Zone:
        """The zone of the first machine, as a cloud's metadata service would answer on it."""

        def work(_: float | None) -> Zone:
            first = next(self._machines.config.all_instances(), None)
            if first is None:
                raise CloudProviderError("this program runs on no instance of the fake cloud")
            return Zone(first.zone, first.region)

        return self._gate.call("get_zone", [], work)

    def get_zone_by_provider_id(self, provider_id: str) -> Zone:
        work = lambda as_of: _zone(self._machines.by_provider_id(provider_id, as_of))  # noqa: E731
        return self._gate.call("get_zone_by_provider_id", [(provider_id,)], work)

    def get_zone_by_node_name(self, node_name: str) -> Zone:
        work = lambda as_of: _zone(self._machines.by_name(node_name, as_of))  # noqa: E731
        return self._gate.call("get_zone_by_node_name", [(node_name,)], work)


def _zone(instance: Instance) -> Zone:
    return Zone(instance.zone, instance.region)
