"""How the capabilities find machines in the store (stage 5): by provider ID, by name, or by making them appear.

Shared by instances, zones, load balancers and routes. A node with a provider ID is looked up by that alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider.errors import CloudProviderError, InstanceNotFound, NotImplementedByProvider
from cloudprovider.helpers.addresses import provided_node_ip
from cloudprovider.helpers.ips import parse_ip
from cloudprovider.helpers.objects import addresses_of, node_name
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.instances import InstanceMetadata
from cloudprovider.testing.fake.config import FakeConfig
from cloudprovider.testing.fake.errors import BadRequest
from cloudprovider.testing.fake.expand import from_template, instance_id
from cloudprovider.testing.fake.faultbook import Key
from cloudprovider.testing.fake.gate import Gate
from cloudprovider.testing.fake.methods import matches
from cloudprovider.testing.fake.model import as_patterns
from cloudprovider.testing.fake.records import INSTANCES, REMOVED_INSTANCES, Address, Instance
from cloudprovider.testing.fake.store import Transaction, View

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

__all__ = ["Machines", "node_addresses", "node_key"]

R = TypeVar("R")


def node_key(node: V1Node) -> Key:
    """The node's name and provider ID."""
    return node_name(node), provider_id_of(node)


def node_addresses(addresses: Iterable[Address]) -> tuple[V1NodeAddress, ...]:
    """Addresses as the contract wants them; new objects every time, as the caller may change them."""
    return tuple([V1NodeAddress(type=kind, address=address) for kind, address in addresses])


class Machines:
    """Finds machines, and asks the gate about them. Thread-safe."""

    def __init__(self, config: FakeConfig, gate: Gate) -> None:
        self.config = config
        self._gate = gate
        self._prefix = f"{config.provider}://"

    def provider_id(self, instance: Instance) -> str:
        """The machine's provider ID; empty in a cloud without."""
        return self._prefix + instance.id if self.config.provider_ids else ""

    def metadata(self, instance: Instance) -> InstanceMetadata:
        """What the cloud says of the machine."""
        return InstanceMetadata(
            provider_id=self.provider_id(instance),
            instance_type=instance.type,
            node_addresses=node_addresses(instance.addresses),
            zone=instance.zone,
            region=instance.region,
            additional_labels=instance.labels,
        )

    def ask(self, method: str, nodes: Sequence[V1Node], work: Callable[[View], R], arguments: Sequence[object]) -> R:
        """Pass a question about nodes through the gate; `work` then finds them, those that only now appear too."""
        return self._ask(method, [node_key(node) for node in nodes], {node_name(n): n for n in nodes}, work, arguments)

    def ask_name(self, method: str, name: str, work: Callable[[Instance], R]) -> R:
        """Pass a question about the machine of a name through the gate. Raises `InstanceNotFound`."""
        return self._ask(method, [(name,)], {name: None}, lambda view: work(self.by_name(view, name)), ())

    def ask_provider_id(
        self, method: str, provider_id: str, work: Callable[[Instance], R], absent: R | None = None
    ) -> R:
        """Pass a question about the machine with a provider ID through the gate.

        Without an answer to give for an absent machine, raises `InstanceNotFound`.
        """

        def find(view: View) -> R:
            try:
                return work(self.by_provider_id(view, provider_id))
            except InstanceNotFound:
                if absent is None:
                    raise
                return absent

        # Of an ID alone, the name can only be told where the ID was made from it.
        name = provider_id.removeprefix(f"{self._prefix}i-")
        keys = [(name if instance_id(name) == provider_id.removeprefix(self._prefix) else "", provider_id)]
        prepare = self._preparation(keys, {})
        return self._gate.read(method, [(provider_id,)], find, prepare=prepare)

    def by_nodes(self, view: View, keys: Sequence[Key]) -> dict[str, Instance | CloudProviderError]:
        """By node name, its machine, or why there is none."""
        by_id: dict[str, str] = {}
        names: list[str] = []
        found: dict[str, Instance | CloudProviderError] = {}
        for name, provider_id in keys:
            if not provider_id or not self.config.provider_ids:
                names.append(name)
            elif provider_id.startswith(self._prefix):
                by_id[name] = provider_id.removeprefix(self._prefix)
            else:
                found[name] = _foreign(provider_id)
        named: Mapping[str, Instance] = view.get_many(INSTANCES, names)
        found.update(named)
        instances = view.find_many(INSTANCES, by_id.values())
        found.update((name, instances[id_]) for name, id_ in by_id.items() if id_ in instances)
        for name, provider_id in keys:
            if name not in found:
                found[name] = InstanceNotFound(f"no instance {provider_id or name}")
        return found

    def by_name(self, view: View, name: str) -> Instance:
        """Raises `InstanceNotFound`."""
        instance = view.get(INSTANCES, name)
        if instance is None:
            raise InstanceNotFound(f"no instance {name}")
        return instance

    def by_provider_id(self, view: View, provider_id: str) -> Instance:
        """Raises `InstanceNotFound`; `NotImplementedByProvider` in a cloud without provider IDs."""
        if not self.config.provider_ids:
            raise NotImplementedByProvider("this cloud has no provider IDs")
        if not provider_id.startswith(self._prefix):
            raise _foreign(provider_id)
        instance = view.find(INSTANCES, provider_id.removeprefix(self._prefix))
        if instance is None:
            raise InstanceNotFound(f"no instance {provider_id}")
        return instance

    def appear(self, tx: Transaction, keys: Sequence[Key], nodes: Mapping[str, V1Node | None]) -> None:
        """Make the machines that appear because they are asked about.

        A node that has an ID of this cloud already, from a run before this one, keeps it.
        """
        template = self.config.on_demand
        if template is None:
            return
        ids = {
            key[0]: key[1].removeprefix(self._prefix) if len(key) > 1 and self.config.provider_ids else ""
            for key in keys
            if matches(as_patterns(template.names), key[:1])
            and (len(key) == 1 or not key[1] or key[1].startswith(self._prefix))
        }
        there = set(tx.get_many(INSTANCES, ids)) | set(tx.get_many(REMOVED_INSTANCES, ids))
        for name, id_ in ids.items():
            if name not in there:
                node = nodes.get(name)
                brought = _brought(node) if node is not None and template.addresses_from_node else ()
                number = tx.add("appeared") - 1
                tx.put(INSTANCES, name, from_template(template, name, number, id=id_, brought=brought))

    def _preparation(
        self, keys: Sequence[Key], nodes: Mapping[str, V1Node | None]
    ) -> Callable[[Transaction], None] | None:
        if self.config.on_demand is None:
            return None
        return lambda tx: self.appear(tx, keys, nodes)

    def _ask(
        self,
        method: str,
        keys: Sequence[Key],
        nodes: Mapping[str, V1Node | None],
        work: Callable[[View], R],
        arguments: Sequence[object],
    ) -> R:
        prepare = self._preparation(keys, nodes)
        return self._gate.read(method, keys, work, arguments=arguments, prepare=prepare)


def _foreign(provider_id: str) -> CloudProviderError:
    return BadRequest(f"{provider_id} is not of this cloud: whether it exists is unknown here")


def _brought(node: V1Node) -> tuple[Address, ...]:
    """The IPs that a node brings along: those that its kubelet was told, or else those that it has."""
    provided = provided_node_ip(node)
    if provided:
        return tuple(("InternalIP", text.strip()) for text in provided.split(",") if parse_ip(text.strip()) is not None)
    return tuple((one.type, one.address) for one in addresses_of(node) if one.type.endswith("IP"))
