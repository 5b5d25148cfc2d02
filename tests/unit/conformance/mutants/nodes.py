"""Mutants of I, B, N, K and Z: instances, SSH keys and zones."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve
from kubernetes.client.models.v1_node import V1Node

from cloudprovider import (
    CloudProviderError,
    InstanceMetadata,
    InstanceNotFound,
    InstanceState,
    NotImplementedByProvider,
    Taint,
    Zone,
)
from cloudprovider.helpers import provider_id_of
from cloudprovider.testing.conformance import Feature, new_node
from cloudprovider.testing.conformance.bench import name_of
from cloudprovider.testing.fake.instances import (
    FakeInstances,
    FakeInstancesBatch,
    FakeInstancesV2,
    FakeKeyedInstancesV2,
)
from cloudprovider.testing.fake.machines import BadRequest
from cloudprovider.testing.fake.others import FakeZones
from cloudprovider.testing.fake.records import SSHKey
from tests.unit.conformance.mutants.bench import ALL, breaks, broken
from tests.unit.conformance.mutants.ways import (
    answering,
    answering_each,
    gone,
    in_an_outage,
    instead_of,
    shared_by_threads,
    unlimited,
)

ONE = ALL & ~Feature.INSTANCES_BATCH
MANY = ALL & ~Feature.INSTANCES_V2
log = logging.getLogger(__name__)


# ---- InstancesV2

V2 = FakeInstancesV2
broken(
    "I1", V2, "instance_shutdown", answering(lambda off, _: off or None),
    "`instance_shutdown` answers None for a machine that runs.", ONE,
)  # fmt: skip
broken(
    "I2", V2, "instance_metadata",
    answering(lambda found, _: evolve(found, taints=[Taint("example.com/gpu", "noSchedule")])),
    "The effect of a taint is written otherwise than Kubernetes does.", ONE,
)  # fmt: skip
broken(
    "I2", V2, "instance_metadata",
    answering(lambda found, _: evolve(found, annotations={"cluster.kubernetes.io/machine": "m1"})),
    "An annotation lies in the namespace of Kubernetes itself.", ONE,
)  # fmt: skip
broken(
    "I2", V2, "instance_metadata", answering(lambda found, _: evolve(found, instance_type="Small (2 cores)")),
    "The instance type is written for people: it is no label value.", ONE,
)  # fmt: skip


@breaks("I3", ONE)
class StoppedIsGone(FakeInstancesV2):
    """A machine that is switched off is said to be gone."""

    def instance_exists(self, node: V1Node) -> bool:
        return super().instance_exists(node) and not super().instance_shutdown(node)


broken(
    "I4", V2, "instance_exists", answering(lambda there, node: there or bool(provider_id_of(node))),
    "A node that has a provider ID is taken to have a machine.", ONE,
)  # fmt: skip
broken(
    "I5", V2, "instance_exists", answering(lambda there, node: there or not provider_id_of(node)),
    "A node without a provider ID is taken to have a machine.", ONE,
)  # fmt: skip


@breaks("I6", ONE, without=["create_twin"])
class ByNameAlone(FakeInstancesV2):
    """Metadata is looked up by the node's name, also where it has a provider ID."""

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        return super().instance_metadata(new_node(name_of(node)))


broken(
    "I7", V2, "instance_exists", instead_of(BadRequest, lambda _: False),
    "Another provider's machine is said to be gone.", ONE,
)  # fmt: skip
broken(
    "I8", V2, "instance_exists", in_an_outage(gone),
    'An error of the cloud is taken for "no such machine".', ONE,
)  # fmt: skip


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


broken(
    "I11", V2, "instance_metadata", shared_by_threads,
    "The node that is asked about is kept in an attribute that all threads share.", ONE,
)  # fmt: skip
broken("I12", V2, "instance_exists", unlimited, "Requests have no time limit.", ONE)


# ---- InstancesBatch

Metadata = Mapping[str, InstanceMetadata | CloudProviderError]
States = Mapping[str, InstanceState | CloudProviderError]
Batch = FakeInstancesBatch


@breaks("B1", MANY)
class OnlyTheFirst(FakeInstancesBatch):
    """Of several machines that run, only the first is in the answer."""

    def instances_state(self, nodes: Sequence[V1Node]) -> States:
        found = dict(super().instances_state(nodes))
        running = [name for name, state in found.items() if state is InstanceState.RUNNING]
        for name in running[1:]:
            del found[name]
        return found


broken(
    "B2", Batch, "instances_metadata",
    answering_each(InstanceMetadata, lambda one: evolve(one, taints=[Taint("gpu", "NoSchedule", v) for v in "ab"])),
    "Two taints have one key and effect: the API server refuses the Node.", MANY,
)  # fmt: skip
broken(
    "B2", Batch, "instances_metadata", answering_each(InstanceMetadata, lambda one: evolve(one, instance_type="S A")),
    "The instance type is written for people: it is no label value.", MANY,
)  # fmt: skip
broken(
    "B3", Batch, "instances_state", answering_each(InstanceState, lambda _: InstanceState.RUNNING),
    "A machine that is switched off is said to run.", MANY,
)  # fmt: skip


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


@breaks("B5", MANY, without=["create_twin"])
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


broken(
    "B8", Batch, "instances_state", answering_each(BadRequest, lambda _: InstanceState.GONE),
    "Another provider's machine is said to be gone.", MANY,
)  # fmt: skip
broken(
    "B9", Batch, "instances_state", in_an_outage(lambda nodes: {name_of(one): InstanceState.GONE for one in nodes}),
    "An error of the cloud is taken for an empty list of machines: all are gone.", MANY,
)  # fmt: skip


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


broken(
    "B12", Batch, "instances_metadata", shared_by_threads,
    "The nodes that are asked about are kept in an attribute that all threads share.", MANY,
)  # fmt: skip
broken("B13", Batch, "instances_state", unlimited, "Requests have no time limit.", MANY)


# ---- Instances

Older = FakeInstances
broken(
    "N1", Older, "instance_type_by_provider_id", answering(lambda *_: ""),
    "The type is known by name, and not by provider ID.",
)  # fmt: skip
broken(
    "N2", Older, "instance_id", answering(lambda found, _: f"internal-{found}"),
    "`instance_id` is another ID than the one in the provider ID.",
)  # fmt: skip
broken(
    "N3", Older, "instance_shutdown_by_provider_id", answering(lambda *_: False),
    "A machine that is switched off is said to run.",
)  # fmt: skip
broken(
    "N4", Older, "instance_exists_by_provider_id", answering(lambda *_: True),
    "Every provider ID of this cloud is taken to have a machine.",
)  # fmt: skip
broken(
    "N5", Older, "instance_exists_by_provider_id", in_an_outage(lambda _: False),
    'An error of the cloud is taken for "no such machine".',
)  # fmt: skip
broken(
    "N6", Older, "instance_exists_by_provider_id", instead_of(BadRequest, lambda _: False),
    "Another provider's machine is said to be gone.",
)  # fmt: skip
broken(
    "N7", Older, "instance_id", shared_by_threads,
    "The name that is asked about is kept in an attribute that all threads share.",
)  # fmt: skip
broken("N8", Older, "instance_exists_by_provider_id", unlimited, "Requests have no time limit.")


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
        if _record_key(user, key_data) not in self.keys:
            super().add_ssh_key_to_all_instances(user, key_data)


KEYED, ADD = FakeKeyedInstancesV2, "add_ssh_key_to_all_instances"
broken("K5", KEYED, ADD, instead_of(BadRequest, lambda *_: None), "What is no key is left out without a word.", ONE)
broken("K6", KEYED, ADD, in_an_outage(lambda *_: None), "The method returns although the cloud refused.", ONE)
broken("K7", KEYED, ADD, unlimited, "Requests have no time limit.", ONE)


@breaks("K8", ONE)
class LogsTheKey(_Keys):
    """The key is logged as it is installed."""

    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        log.debug("installing %r for %s", key_data, user)
        super().add_ssh_key_to_all_instances(user, key_data)


# ---- Zones

broken(
    "Z1", FakeZones, "get_zone_by_provider_id", answering(lambda found, _: evolve(found, region="")),
    "By provider ID only the zone is known, not the region.",
)  # fmt: skip
broken(
    "Z2", FakeZones, "get_zone_by_node_name", instead_of(InstanceNotFound, lambda _: Zone()),
    "A machine that is gone has an empty zone.",
)  # fmt: skip
broken(
    "Z3", FakeZones, "get_zone_by_node_name", in_an_outage(lambda _: Zone()),
    "An error of the cloud is answered by an empty zone.",
)  # fmt: skip
broken("Z4", FakeZones, "get_zone", instead_of(NotImplementedByProvider, lambda: None), "`get_zone` answers None.")
broken("Z5", FakeZones, "get_zone_by_provider_id", unlimited, "Requests have no time limit.")
