"""Machines: `InstancesV2` and `InstancesBatch` for a cloud that can show one machine and list all
(stage 5, cloud call). A vendor's class says how, and what each machine's state and metadata are.

Not listed is never gone: a list may lag, or move on between two pages. Such a machine is asked for
by itself, and only the cloud's own "not found" counts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from typing_extensions import override

from cloudprovider.errors import CloudProviderError, InstanceNotFound
from cloudprovider.helpers.objects import node_name
from cloudprovider.helpers.providerid import format_provider_id, parse_provider_id, provider_id_of
from cloudprovider.instances import InstanceMetadata, InstancesBatch, InstanceState, InstancesV2

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

__all__ = ["Machine", "Machines"]


class Machine(Protocol):
    """What is asked of every machine."""

    @property
    def id(self) -> str:
        """The cloud's ID, which it never gives to another one."""
        ...

    @property
    def name(self) -> str:
        """The name of the node that runs on it: the machine's own, or what a tag says."""
        ...


MachineT = TypeVar("MachineT", bound=Machine)


class Machines(InstancesV2, InstancesBatch, Generic[MachineT]):
    """Machines of a cloud, found by provider ID ("acme://" and the ID), or by name while a node has
    none. For any thread."""

    provider: ClassVar[str]
    """Before "://" in provider IDs: must never change."""

    max_batch = 100

    few = 3
    """Up to so many nodes are asked about one by one; more of them by one listing."""

    @abstractmethod
    def machine(self, machine_id: str) -> MachineT | None:
        """The machine with this ID. None only where the cloud itself says that there is none."""

    @abstractmethod
    def machines(self, name: str = "") -> Sequence[MachineT]:
        """Those with this name, or all. Raise where a page failed."""

    @abstractmethod
    def state(self, machine: MachineT) -> InstanceState:
        """SHUTDOWN where it is switched off for certain; else RUNNING, in states that are new to
        you and in failed ones too: its node must not be deleted while it exists."""

    @abstractmethod
    def metadata(self, machine: MachineT, node: str) -> InstanceMetadata:
        """What is written on its node, whose name is `node`: an address of type Hostname is that
        one, whatever the machine is called today."""

    def provider_id(self, machine_id: str) -> str:
        """The provider ID of a machine."""
        return format_provider_id(self.provider, machine_id)

    def id_in(self, provider_id: str) -> str:
        """The machine's ID in a provider ID of ours. Raises CloudProviderError for another
        provider's: that means unknown, which is not "gone"."""
        try:
            parsed = parse_provider_id(provider_id)
        except ValueError as error:
            raise CloudProviderError(f"cannot read the provider ID: {error}") from error
        if parsed.provider != self.provider:
            raise CloudProviderError(f"{provider_id} belongs to another provider")
        return parsed.instance

    def ids_in(self, nodes: Sequence[V1Node]) -> frozenset[str]:
        """The machines' IDs of nodes, for the targets of a load balancer; nodes without a provider
        ID of ours are left out: a kubelet may write what it likes, and must spoil nothing for the
        others."""
        ids: set[str] = set()
        for node in nodes:
            # One node's odd ID must not cost the others their traffic.
            with suppress(CloudProviderError):
                ids.add(self.id_in(provider_id_of(node)))
        return frozenset(ids)

    def find(self, provider_id: str, name: str) -> MachineT:
        """The machine of a node, by `name` where the provider ID is "". Raises InstanceNotFound
        only where the cloud answered that there is none; CloudProviderError too where several have
        the name."""
        if provider_id:
            machine = self.machine(self.id_in(provider_id))
            if machine is None:
                raise InstanceNotFound(f"there is no machine {provider_id}")
            return machine
        # The cloud's own search may find parts of names, and in any case.
        named = [machine for machine in self.machines(name) if machine.name == name]
        if not named:
            raise InstanceNotFound(f"there is no machine named {name}")
        # The first hit would be chance, and a provider ID is written once, for ever.
        if len(named) > 1:
            raise CloudProviderError(f"{len(named)} machines are named {name}: rename all but one")
        return named[0]

    @override
    def instance_exists(self, node: V1Node) -> bool:
        try:
            self._find(node)
        except InstanceNotFound:
            return False
        return True

    @override
    def instance_shutdown(self, node: V1Node) -> bool:
        return self.state(self._find(node)) is InstanceState.SHUTDOWN

    @override
    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        return self.metadata(self._find(node), node_name(node))

    @override
    def instances_metadata(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceMetadata | CloudProviderError]:
        found = self.find_all(nodes)
        return {
            name: one if isinstance(one, CloudProviderError) else self.metadata(one, name)
            for name, one in found.items()
        }

    @override
    def instances_state(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceState | CloudProviderError]:
        found = self.find_all(nodes)
        return {name: one if isinstance(one, CloudProviderError) else self.state(one) for name, one in found.items()}

    def _find(self, node: V1Node) -> MachineT:
        return self.find(provider_id_of(node), node_name(node))

    def find_all(self, nodes: Sequence[V1Node]) -> Mapping[str, MachineT | CloudProviderError]:
        """The nodes' machines by node name, or why one has none. Raises what concerns them all."""
        # One listing costs as much as some questions, and its answer is one state of the cloud.
        listed = self.machines() if len(nodes) > self.few else []
        names = Counter(machine.name for machine in listed)
        by_id = {machine.id: machine for machine in listed}
        # Of two that share a name none is found here: `find` then says why.
        by_name = {machine.name: machine for machine in listed if names[machine.name] == 1}
        found: dict[str, MachineT | CloudProviderError] = {}
        for node in nodes:
            name, provider_id = node_name(node), provider_id_of(node)
            try:
                known = by_id.get(self.id_in(provider_id)) if provider_id else by_name.get(name)
                found[name] = known or self._find(node)
            except CloudProviderError as error:
                found[name] = error  # of this node alone
        return found
