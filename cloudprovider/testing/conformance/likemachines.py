"""Scenarios I and B of machines that are easily confused: in other states than running and stopped,
with names that begin alike, or two of one name; and where a machine stands.

The questions are the same for `InstancesV2` and `InstancesBatch`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kubernetes.client.models.v1_node import V1Node

from cloudprovider.errors import InstanceNotFound
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.instances import InstanceMetadata, InstanceState
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.bench import name_of
from cloudprovider.testing.conformance.calls import Outcome, attempt
from cloudprovider.testing.conformance.features import Feature
from cloudprovider.testing.conformance.lab import new_node
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.trial import Trial

_V2, _BATCH = Feature.INSTANCES_V2, Feature.INSTANCES_BATCH
Ask = Callable[[V1Node], Outcome[Any]]


def _of_one(trial: Trial) -> Ask:
    """What `InstancesV2` says of a node's machine: its metadata."""
    instances = trial.instances()
    return lambda node: attempt(partial(instances.instance_metadata, node))


def _of_a_batch(trial: Trial) -> Ask:
    """The same of a batch."""
    batch = trial.batch()

    def ask(node: V1Node) -> Outcome[Any]:
        outcome = attempt(partial(batch.instances_metadata, [node]))
        value = (outcome.value or {}).get(name_of(node))
        return Outcome(error=value) if isinstance(value, Exception) else Outcome(value, outcome.error)

    return ask


def _check_similar(trial: Trial, ask: Ask) -> None:
    machine = trial.bench.new_machine(f"{trial.bench.name('alike')}-ab")
    # The cloud's own search finds a part of a name, and most take its first hit.
    for name in (name_of(machine)[:-1], f"{name_of(machine)}c"):
        outcome = ask(new_node(name))
        assert not isinstance(outcome.value, InstanceMetadata), (
            f"asked about {name}, which has no machine, the provider {outcome}. There is one of {name_of(machine)}: "
            "compare whole names (the cloud's own search often matches a part)"
        )


def _check_twins(trial: Trial, ask: Ask) -> None:
    one = trial.new_machine()
    two = trial.lab.create_twin(one)
    try:
        for node in (one, two):
            _check_found(trial, ask, node)
        outcome = ask(new_node(name_of(one)))
    finally:
        # The lab's own: the bench knows nothing of it, and would leave it running.
        trial.lab.delete_machine(two)
    why = f"two machines are known by the name {name_of(one)}, and a Node without a provider ID"
    assert not isinstance(outcome.value, InstanceMetadata), (
        f"{why} gets {outcome.value.provider_id}, by chance: raise CloudProviderError, which says that there are two"
    )
    assert not isinstance(outcome.error, InstanceNotFound), f"{why} is told that it has none: its Node would be deleted"


def _check_found(trial: Trial, ask: Ask, node: V1Node) -> None:
    """Raises AssertionError unless a node with a provider ID is answered by that machine."""
    # By its name alone neither is found, and must not be.
    if not provider_id_of(node):
        return
    outcome = ask(node)
    found = outcome.value.provider_id if isinstance(outcome.value, InstanceMetadata) else str(outcome)
    assert trial.provider.same_provider_id(found, provider_id_of(node)), (
        f"of two machines of one name, asked for {provider_id_of(node)}, the provider's answer is about {found}"
    )


def _check_placement(trial: Trial, ask: Ask) -> None:
    node = trial.machine()
    said, wanted = ask(node).get(), trial.lab.placement(node)
    assert (said.zone, said.region) == wanted, (
        f"metadata of {name_of(node)} has the zone {said.zone!r} and the region {said.region!r}; in the cloud they are "
        f"{wanted[0]!r} and {wanted[1]!r}"
    )


def _check_pages(trial: Trial, ask: Ask, nodes: list[V1Node]) -> None:
    unknown = [name_of(node) for node in nodes if not isinstance(ask(node).value, InstanceMetadata)]
    assert not unknown, (
        f"of {len(nodes)} machines that run, {', '.join(unknown)} are not found: a page of a listing has "
        f"{trial.lab.page}. Read every page, or most nodes of a large account would be deleted"
    )


class LikeMachineScenarios(ConformanceBase):
    """`InstancesV2` and `InstancesBatch`: machines that are easily confused."""

    @scenario("I13", _V2, hooks=("create_machine", "page"))
    def test_i13_more_machines_than_a_page(self, trial: Trial) -> None:
        """Of more machines than a page of a listing has, every one is found, by ID and by name."""
        nodes = trial.machines(trial.lab.page + 1)
        # Initialised and as registered: by ID and by name, which are two listings in most clouds.
        _check_pages(trial, _of_one(trial), [*nodes, *trial.bench.running(len(nodes))])

    @scenario("I15", _V2, hooks=("create_machine", "states", "set_state"))
    def test_i15_in_every_state_it_exists(self, trial: Trial) -> None:
        """A machine that is being built or deleted, or has failed, still exists."""
        instances = trial.instances()
        for state in trial.lab.states:
            node = trial.new_machine()
            trial.lab.set_state(node, state)
            outcome = attempt(partial(instances.instance_exists, node))
            assert outcome.value is True, (
                f"instance_exists {outcome} for a machine in the state {state!r}: only what the cloud no longer knows "
                "is gone, or the node would be deleted"
            )

    @scenario("I16", _V2, hooks=("create_machine",))
    def test_i16_names_that_begin_alike(self, trial: Trial) -> None:
        """A machine is found by its whole name, not by a part of it."""
        _check_similar(trial, _of_one(trial))

    @scenario("I17", _V2, hooks=("create_machine", "delete_machine", "create_twin"))
    def test_i17_two_of_one_name(self, trial: Trial) -> None:
        """Of two machines of one name none is chosen by chance; by its provider ID each is
        found."""
        _check_twins(trial, _of_one(trial))

    @scenario("I18", _V2, hooks=("create_machine", "placement"))
    def test_i18_zone_and_region(self, trial: Trial) -> None:
        """Zone and region are those of the machine, each in its place."""
        _check_placement(trial, _of_one(trial))

    @scenario("B14", _BATCH, hooks=("create_machine", "page"))
    def test_b14_more_machines_than_a_page(self, trial: Trial) -> None:
        """A batch of more machines than a page of a listing has finds every one."""
        batch, nodes = trial.batch(), trial.machines(trial.lab.page + 1)
        found: dict[str, Any] = {}
        # As the host cuts: a page may be longer than a batch.
        for at in range(0, len(nodes), batch.max_batch):
            found |= batch.instances_metadata(nodes[at : at + batch.max_batch])
        _check_pages(trial, lambda node: Outcome(found.get(name_of(node))), nodes)

    @scenario("B16", _BATCH, hooks=("create_machine", "states", "set_state"))
    def test_b16_in_every_state_it_exists(self, trial: Trial) -> None:
        """A machine that is being built or deleted, or has failed, is not GONE."""
        batch = trial.batch()
        for state in trial.lab.states:
            node = trial.new_machine()
            trial.lab.set_state(node, state)
            found = batch.instances_state([node]).get(name_of(node))
            assert found in (InstanceState.RUNNING, InstanceState.SHUTDOWN), (
                f"instances_state: {found!r} for a machine in the state {state!r}: only what the cloud no longer knows "
                "is gone, or the node would be deleted"
            )

    @scenario("B17", _BATCH, hooks=("create_machine",))
    def test_b17_names_that_begin_alike(self, trial: Trial) -> None:
        """In a batch, a machine is found by its whole name, not by a part of it."""
        _check_similar(trial, _of_a_batch(trial))

    @scenario("B18", _BATCH, hooks=("create_machine", "delete_machine", "create_twin"))
    def test_b18_two_of_one_name(self, trial: Trial) -> None:
        """In a batch, of two machines of one name none is chosen by chance; by its provider ID each
        is found."""
        _check_twins(trial, _of_a_batch(trial))

    @scenario("B19", _BATCH, hooks=("create_machine", "placement"))
    def test_b19_zone_and_region(self, trial: Trial) -> None:
        """In a batch, zone and region are those of the machine, each in its place."""
        _check_placement(trial, _of_a_batch(trial))
