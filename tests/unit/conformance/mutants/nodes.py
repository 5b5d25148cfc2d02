"""Mutants of I, B, N, K and Z: instances, SSH keys and zones."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from attrs import evolve
from kubernetes.client.models.v1_node import V1Node

from cloudprovider import (
    Call,
    CloudProviderError,
    InstanceMetadata,
    InstanceNotFound,
    InstanceState,
    Zone,
    call_scope,
)
from cloudprovider.helpers import provider_id_of
from cloudprovider.testing.conformance import Feature, new_node
from cloudprovider.testing.conformance.trial import name_of
from cloudprovider.testing.fake.errors import BadRequest
from cloudprovider.testing.fake.instances import (
    FakeInstances,
    FakeInstancesBatch,
    FakeInstancesV2,
    FakeKeyedInstancesV2,
)
from cloudprovider.testing.fake.others import FakeZones
from cloudprovider.testing.fake.records import SSHKey
from tests.unit.conformance.mutants.bench import ALL, breaks

ONE = ALL & ~Feature.INSTANCES_BATCH
MANY = ALL & ~Feature.INSTANCES_V2
R = TypeVar("R")
log = logging.getLogger(__name__)
RACE = 0.004  # seconds for which a shared variable is open to other threads


def is_outage(error: CloudProviderError) -> bool:
    """Whether the lab broke the cloud: the fake raises subclasses for everything else."""
    return type(error) is CloudProviderError


# ---- InstancesV2


@breaks("I1", ONE)
class ForgetsToReturn(FakeInstancesV2):
    """`instance_shutdown` answers None for a machine that runs."""

    def instance_shutdown(self, node: V1Node) -> bool:
        return super().instance_shutdown(node) or None  # type: ignore[return-value]  # the mistake


@breaks("I2", ONE)
class ZoneForPeople(FakeInstancesV2):
    """The zone is written for people: it is no label value."""

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        return evolve(super().instance_metadata(node), zone="Zone A (north)")


@breaks("I3", ONE)
class StoppedIsGone(FakeInstancesV2):
    """A machine that is switched off is said to be gone."""

    def instance_exists(self, node: V1Node) -> bool:
        return super().instance_exists(node) and not super().instance_shutdown(node)


@breaks("I4", ONE)
class KnownIsThere(FakeInstancesV2):
    """A node that has a provider ID is taken to have a machine."""

    def instance_exists(self, node: V1Node) -> bool:
        return super().instance_exists(node) or bool(provider_id_of(node))


@breaks("I5", ONE)
class UnknownIsThere(FakeInstancesV2):
    """A node without a provider ID is taken to have a machine."""

    def instance_exists(self, node: V1Node) -> bool:
        return super().instance_exists(node) or not provider_id_of(node)


@breaks("I6", ONE)
class ByNameAlone(FakeInstancesV2):
    """Metadata is looked up by the node's name, also where it has a provider ID."""

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        return super().instance_metadata(new_node(name_of(node)))


@breaks("I7", ONE)
class ForeignIsGone(FakeInstancesV2):
    """Another provider's machine is said to be gone."""

    def instance_exists(self, node: V1Node) -> bool:
        try:
            return super().instance_exists(node)
        except BadRequest:
            return False


@breaks("I8", ONE)
class OutageIsGone(FakeInstancesV2):
    """An error of the cloud is taken for "no such machine"."""

    def instance_exists(self, node: V1Node) -> bool:
        try:
            return super().instance_exists(node)
        except CloudProviderError as error:
            if is_outage(error):
                raise InstanceNotFound(str(error)) from error
            raise


@breaks("I9", ONE)
class Wavering(FakeInstancesV2):
    """A label changes at every question."""

    asked = 0

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        self.asked += 1
        return evolve(super().instance_metadata(node), additional_labels={"example.com/asked": str(self.asked)})


@breaks("I10", ONE)
class ScribblesOnNodes(FakeInstancesV2):
    """A mark is written on the Node that was handed over."""

    def instance_shutdown(self, node: V1Node) -> bool:
        assert node.metadata is not None
        node.metadata.annotations = {"example.com/seen": "yes"}
        return super().instance_shutdown(node)


@breaks("I11", ONE)
class OneNodeForAllThreads(FakeInstancesV2):
    """The node that is asked about is kept in an attribute that all threads share."""

    node: V1Node

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        self.node = node
        time.sleep(RACE)
        return super().instance_metadata(self.node)


@breaks("I12", ONE)
class NoTimeLimit(FakeInstancesV2):
    """Requests have no time limit."""

    def instance_exists(self, node: V1Node) -> bool:
        with call_scope(Call()):
            return super().instance_exists(node)


# ---- InstancesBatch

Metadata = Mapping[str, InstanceMetadata | CloudProviderError]
States = Mapping[str, InstanceState | CloudProviderError]


@breaks("B1", MANY)
class OnlyTheFirst(FakeInstancesBatch):
    """Of several machines that run, only the first is in the answer."""

    def instances_state(self, nodes: Sequence[V1Node]) -> States:
        found = dict(super().instances_state(nodes))
        running = [name for name, state in found.items() if state is InstanceState.RUNNING]
        for name in running[1:]:
            del found[name]
        return found


@breaks("B2", MANY)
class BatchZoneForPeople(FakeInstancesBatch):
    """The zone is written for people: it is no label value."""

    def instances_metadata(self, nodes: Sequence[V1Node]) -> Metadata:
        found = super().instances_metadata(nodes).items()
        return {name: evolve(one, zone="Zone A") if isinstance(one, InstanceMetadata) else one for name, one in found}


@breaks("B3", MANY)
class NeverShutDown(FakeInstancesBatch):
    """A machine that is switched off is said to run."""

    def instances_state(self, nodes: Sequence[V1Node]) -> States:
        found = super().instances_state(nodes).items()
        return {name: InstanceState.RUNNING if one is InstanceState.SHUTDOWN else one for name, one in found}


@breaks("B4", MANY)
class KnownRuns(FakeInstancesBatch):
    """A node that has a provider ID is taken to have a machine that runs."""

    def instances_state(self, nodes: Sequence[V1Node]) -> States:
        known = {name_of(node) for node in nodes if provider_id_of(node)}
        found = super().instances_state(nodes).items()
        return {
            name: InstanceState.RUNNING if isinstance(one, InstanceNotFound) and name in known else one
            for name, one in found
        }


@breaks("B5", MANY)
class BatchByNameAlone(FakeInstancesBatch):
    """Metadata is looked up by the nodes' names, also where they have provider IDs of this
    cloud."""

    def instances_metadata(self, nodes: Sequence[V1Node]) -> Metadata:
        ours = "fake://"
        return super().instances_metadata(
            [new_node(name_of(node)) if provider_id_of(node).startswith(ours) else node for node in nodes]
        )


@breaks("B6", MANY)
class ListingKnowsLess(FakeInstancesBatch):
    """The listing that serves batches of many does not have the machine's type."""

    def instances_metadata(self, nodes: Sequence[V1Node]) -> Metadata:
        found = super().instances_metadata(nodes)
        if len(nodes) == 1:
            return found
        return {k: evolve(v, instance_type="") if isinstance(v, InstanceMetadata) else v for k, v in found.items()}


@breaks("B7", MANY)
class RefusesItsOwnSize(FakeInstancesBatch):
    """`max_batch` is larger than what the cloud takes."""

    @property
    def max_batch(self) -> int:
        return super().max_batch * 2

    def instances_state(self, nodes: Sequence[V1Node]) -> States:
        if len(nodes) > self.max_batch // 2:
            raise BadRequest("too many")
        return super().instances_state(nodes)


@breaks("B8", MANY)
class BatchForeignIsGone(FakeInstancesBatch):
    """Another provider's machine is said to be gone."""

    def instances_state(self, nodes: Sequence[V1Node]) -> States:
        found = super().instances_state(nodes).items()
        return {name: InstanceState.GONE if isinstance(one, BadRequest) else one for name, one in found}


@breaks("B9", MANY)
class BatchOutageIsGone(FakeInstancesBatch):
    """An error of the cloud is taken for an empty list of machines: all are gone."""

    def instances_state(self, nodes: Sequence[V1Node]) -> States:
        try:
            return super().instances_state(nodes)
        except CloudProviderError as error:
            if is_outage(error):
                return {name_of(node): InstanceState.GONE for node in nodes}
            raise


@breaks("B10", MANY)
class ForeignErrorsAsValues(FakeInstancesBatch):
    """The client's own exception stands for a machine that never was."""

    def instances_metadata(self, nodes: Sequence[V1Node]) -> Metadata:
        found: dict[str, Any] = dict(super().instances_metadata(nodes))
        for node in nodes:
            if not provider_id_of(node) and isinstance(found.get(name_of(node)), InstanceNotFound):
                found[name_of(node)] = KeyError(name_of(node))
        return found


@breaks("B11", MANY)
class TurnsTheList(FakeInstancesBatch):
    """The list of nodes that was handed over is turned round."""

    def instances_state(self, nodes: Sequence[V1Node]) -> States:
        assert isinstance(nodes, list)
        nodes.reverse()
        return super().instances_state(nodes)


@breaks("B12", MANY)
class OneBatchForAllThreads(FakeInstancesBatch):
    """The nodes that are asked about are kept in an attribute that all threads share."""

    nodes: Sequence[V1Node]

    def instances_metadata(self, nodes: Sequence[V1Node]) -> Metadata:
        self.nodes = nodes
        time.sleep(RACE)
        return super().instances_metadata(self.nodes)


@breaks("B13", MANY)
class BatchNoTimeLimit(FakeInstancesBatch):
    """Requests have no time limit."""

    def instances_state(self, nodes: Sequence[V1Node]) -> States:
        with call_scope(Call()):
            return super().instances_state(nodes)


# ---- Instances


@breaks("N1")
class NoTypeByID(FakeInstances):
    """The type is known by name, and not by provider ID."""

    def instance_type_by_provider_id(self, provider_id: str) -> str:
        super().instance_type_by_provider_id(provider_id)
        return ""


@breaks("N2")
class AnotherID(FakeInstances):
    """`instance_id` is another ID than the one in the provider ID."""

    def instance_id(self, node_name: str) -> str:
        return f"internal-{super().instance_id(node_name)}"


@breaks("N3")
class NeverOff(FakeInstances):
    """A machine that is switched off is said to run."""

    def instance_shutdown_by_provider_id(self, provider_id: str) -> bool:
        super().instance_shutdown_by_provider_id(provider_id)
        return False


@breaks("N4")
class AlwaysThere(FakeInstances):
    """Every provider ID of this cloud is taken to have a machine."""

    def instance_exists_by_provider_id(self, provider_id: str) -> bool:
        super().instance_exists_by_provider_id(provider_id)
        return True


@breaks("N5")
class OlderOutageIsGone(FakeInstances):
    """An error of the cloud is taken for "no such machine"."""

    def instance_exists_by_provider_id(self, provider_id: str) -> bool:
        try:
            return super().instance_exists_by_provider_id(provider_id)
        except CloudProviderError as error:
            if is_outage(error):
                return False
            raise


@breaks("N6")
class OlderForeignIsGone(FakeInstances):
    """Another provider's machine is said to be gone."""

    def instance_exists_by_provider_id(self, provider_id: str) -> bool:
        try:
            return super().instance_exists_by_provider_id(provider_id)
        except BadRequest:
            return False


@breaks("N7")
class OneNameForAllThreads(FakeInstances):
    """The name that is asked about is kept in an attribute that all threads share."""

    name: str

    def instance_id(self, node_name: str) -> str:
        self.name = node_name
        time.sleep(RACE)
        return super().instance_id(self.name)


@breaks("N8")
class OlderNoTimeLimit(FakeInstances):
    """Requests have no time limit."""

    def instance_exists_by_provider_id(self, provider_id: str) -> bool:
        with call_scope(Call()):
            return super().instance_exists_by_provider_id(provider_id)


@breaks("N9")
class KeyExists(FakeInstances):
    """An SSH key that is there already is an error."""

    keys: tuple[bytes, ...] = ()

    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        if key_data in self.keys:
            raise CloudProviderError("the key exists")
        self.keys = (*self.keys, key_data)
        super().add_ssh_key_to_all_instances(user, key_data)


# ---- SSHKeys


class _Keys(FakeKeyedInstancesV2):
    """The same, with a look at what is installed, and a way to spoil it."""

    def known(self, user: str, key_data: bytes) -> bool:
        """Whether any machine, or none where there is none, was given the key."""
        return _record_key(user, key_data) in self.keys

    @property
    def keys(self) -> dict[tuple[str, str], SSHKey]:
        """What is installed."""
        return self._gate.world.ssh_keys


def _record_key(user: str, key_data: bytes) -> tuple[str, str]:
    return user, key_data.decode(errors="replace")


@breaks("K1", ONE)
class KeyIsThere(_Keys):
    """A key that every machine has already is an error."""

    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        found = self.keys.get(_record_key(user, key_data))
        if found is not None and len(found.machines) == len(self._gate.world.instances):
            raise CloudProviderError("the key is there already")
        super().add_ssh_key_to_all_instances(user, key_data)


@breaks("K2", ONE)
class FirstMachineOnly(_Keys):
    """The key is installed on one machine alone."""

    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        super().add_ssh_key_to_all_instances(user, key_data)
        found = self.keys[_record_key(user, key_data)]
        self.keys[_record_key(user, key_data)] = evolve(found, machines=found.machines[:1])


@breaks("K3", ONE)
class OneKeyForEachUser(_Keys):
    """A user's key takes the place of the one before."""

    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        super().add_ssh_key_to_all_instances(user, key_data)
        for key in list(self.keys):
            if key[0] == user and key[1].encode() != key_data:
                del self.keys[key]


@breaks("K4", ONE)
class KnownKeysAreDone(_Keys):
    """A key that was installed once is not installed again."""

    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        if not self.known(user, key_data):
            super().add_ssh_key_to_all_instances(user, key_data)


@breaks("K5", ONE)
class TakesAnything(_Keys):
    """What is no key is left out without a word."""

    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        with suppress(BadRequest):
            super().add_ssh_key_to_all_instances(user, key_data)


@breaks("K6", ONE)
class SwallowsTheOutage(_Keys):
    """The method returns although the cloud refused."""

    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        try:
            super().add_ssh_key_to_all_instances(user, key_data)
        except CloudProviderError as error:
            if not is_outage(error):
                raise


@breaks("K7", ONE)
class KeysWithoutTimeLimit(_Keys):
    """Requests have no time limit."""

    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        with call_scope(Call()):
            super().add_ssh_key_to_all_instances(user, key_data)


@breaks("K8", ONE)
class LogsTheKey(_Keys):
    """The key is logged as it is installed."""

    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        log.debug("installing %r for %s", key_data, user)
        super().add_ssh_key_to_all_instances(user, key_data)


# ---- Zones


@breaks("Z1")
class NoRegionByID(FakeZones):
    """By provider ID only the zone is known, not the region."""

    def get_zone_by_provider_id(self, provider_id: str) -> Zone:
        return evolve(super().get_zone_by_provider_id(provider_id), region="")


@breaks("Z2")
class NowhereInsteadOfGone(FakeZones):
    """A machine that is gone has an empty zone."""

    def get_zone_by_node_name(self, node_name: str) -> Zone:
        try:
            return super().get_zone_by_node_name(node_name)
        except InstanceNotFound:
            return Zone()


@breaks("Z3")
class NowhereInAnOutage(FakeZones):
    """An error of the cloud is answered by an empty zone."""

    def get_zone_by_node_name(self, node_name: str) -> Zone:
        try:
            return super().get_zone_by_node_name(node_name)
        except CloudProviderError as error:
            if is_outage(error):
                return Zone()
            raise


@breaks("Z4")
class NoOwnZone(FakeZones):
    """`get_zone` answers None."""

    def get_zone(self) -> Zone:
        return None  # type: ignore[return-value]  # the mistake


@breaks("Z5")
class ZonesWithoutTimeLimit(FakeZones):
    """Requests have no time limit."""

    def get_zone_by_provider_id(self, provider_id: str) -> Zone:
        with call_scope(Call()):
            return super().get_zone_by_provider_id(provider_id)
