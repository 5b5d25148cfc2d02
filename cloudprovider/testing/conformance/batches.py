"""Scenarios B: many nodes' instances in one call, as `InstancesBatch` answers for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kubernetes.client.models.v1_node import V1Node

from cloudprovider.checks import answers
from cloudprovider.errors import CloudProviderError, InstanceNotFound
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.instances import InstanceMetadata, InstancesBatch, InstanceState
from cloudprovider.internal.readonly import read_only
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.bench import name_of
from cloudprovider.testing.conformance.calls import Outcome, at_once, attempt, right, unchanged
from cloudprovider.testing.conformance.features import Feature
from cloudprovider.testing.conformance.lab import new_node
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.trial import Trial

_BATCH = Feature.INSTANCES_BATCH
_MACHINES = ("create_machine",)


def both(batch: InstancesBatch) -> tuple[Callable[[Sequence[V1Node]], Mapping[str, Any]], ...]:
    return batch.instances_metadata, batch.instances_state


def is_gone(answer: object) -> bool:
    return answer is InstanceState.GONE or isinstance(answer, InstanceNotFound)


def _identity(answer: object) -> str:
    return answer.provider_id if isinstance(answer, InstanceMetadata) else repr(answer)


def _never_gone(outcome: Outcome[Mapping[str, Any]], node: V1Node, why: str) -> None:
    """Raises AssertionError when the outcome says that the node's instance is gone."""
    assert not isinstance(outcome.error, InstanceNotFound), f"the batch {outcome} {why}"
    gone = outcome.value is not None and is_gone(outcome.value.get(name_of(node)))
    assert not gone, f"the batch says that {name_of(node)} is gone {why}: the node would be deleted"


class BatchScenarios(ConformanceBase):
    """`InstancesBatch`."""

    @scenario("B1", _BATCH, hooks=_MACHINES)
    def test_b1_every_node_is_answered(self, trial: Trial) -> None:
        """A batch has an answer for every node that was asked about, under the node's name."""
        nodes = trial.machines(2)
        for method in both(trial.batch()):
            answer = method(nodes)
            assert isinstance(answer, Mapping), f"{method.__name__} answered {answer!r}, not a mapping"
            lacking = [name_of(node) for node in nodes if name_of(node) not in answer]
            assert not lacking, f"{method.__name__} says nothing about {', '.join(lacking)}; it has {sorted(answer)}"

    @scenario("B2", _BATCH, hooks=_MACHINES)
    def test_b2_metadata_is_fit_to_be_written(self, trial: Trial) -> None:
        """Metadata has a provider ID of this provider, and addresses, labels, taints and
        annotations that the host writes."""
        node = trial.registered()
        answer = trial.batch().instances_metadata([node]).get(name_of(node))
        prefixes = trial.provider.provider_id_prefixes()
        right(f"instances_metadata of {name_of(node)}", answers.metadata, answer, prefixes=prefixes, strict=True)

    @scenario("B3", _BATCH, hooks=("create_machine", "stop_machine"))
    def test_b3_running_and_stopped(self, trial: Trial) -> None:
        """A machine that runs is RUNNING, one that was switched off is SHUTDOWN and has metadata
        still."""
        batch, running, stopped = trial.batch(), trial.machine(), trial.stopped()

        def look() -> None:
            states = batch.instances_state([running, stopped])
            found = {state: states.get(name_of(node)) for state, node in (("run", running), ("stop", stopped))}
            assert found["run"] is InstanceState.RUNNING, f"instances_state: {found['run']!r} for a machine that runs"
            assert found["stop"] is InstanceState.SHUTDOWN, f"instances_state: {found['stop']!r} for a stopped machine"
            kept = batch.instances_metadata([stopped]).get(name_of(stopped))
            assert isinstance(kept, InstanceMetadata), f"instances_metadata: {kept!r} for a stopped machine"

        trial.eventually(look)

    @scenario("B4", _BATCH, hooks=("create_machine", "delete_machine"))
    def test_b4_a_deleted_machine_is_gone_alone(self, trial: Trial) -> None:
        """A deleted machine is GONE, or an InstanceNotFound as its value; the others in the batch
        are answered."""
        batch, running, deleted = trial.batch(), trial.machine(), trial.deleted()

        def look() -> None:
            states = batch.instances_state([deleted, running])
            assert is_gone(states.get(name_of(deleted))), (
                f"instances_state: {states.get(name_of(deleted))!r} for a deleted machine; GONE is due"
            )
            assert states.get(name_of(running)) is InstanceState.RUNNING, (
                f"beside a deleted machine, instances_state answers {states.get(name_of(running))!r} for a running one"
            )
            found = batch.instances_metadata([deleted, running])
            assert isinstance(found.get(name_of(deleted)), InstanceNotFound), (
                f"instances_metadata: {found.get(name_of(deleted))!r} for a deleted machine; InstanceNotFound is due"
            )
            assert isinstance(found.get(name_of(running)), InstanceMetadata), (
                f"beside a deleted machine, instances_metadata has {found.get(name_of(running))!r} for a running one"
            )

        trial.eventually(look)

    @scenario("B5", _BATCH, hooks=_MACHINES)
    def test_b5_the_provider_id_finds_the_machine(self, trial: Trial) -> None:
        """A machine is found by the node's provider ID, whatever the node is called; the answer has
        the node's name."""
        trial.needs_ids()
        provider_id = provider_id_of(trial.machine())
        renamed = new_node(trial.bench.name("renamed"), provider_id=provider_id)
        answer = trial.batch().instances_metadata([renamed]).get(name_of(renamed))
        assert isinstance(answer, InstanceMetadata), (
            f"instances_metadata: {answer!r} for a node with the provider ID {provider_id} and another name"
        )
        assert trial.provider.same_provider_id(provider_id, answer.provider_id), (
            f"asked for {provider_id}, instances_metadata answered for {answer.provider_id}"
        )

    @scenario("B6", _BATCH, hooks=_MACHINES)
    def test_b6_a_batch_equals_single_calls(self, trial: Trial) -> None:
        """What a batch of many says about a node is what a batch of one says, and what
        `InstancesV2` says."""
        batch, one, nodes = trial.batch(), trial.provider.instances_v2(), trial.machines(2)
        together = batch.instances_metadata(nodes)
        for node in nodes:
            found = together.get(name_of(node))
            alone = batch.instances_metadata([node]).get(name_of(node))
            assert found == alone, f"for {name_of(node)} a batch of many has {found!r}, a batch of one {alone!r}"
            if one is not None and Feature.INSTANCES_V2 in trial.features:
                single = one.instance_metadata(node)
                assert found == single, f"for {name_of(node)} a batch has {found!r}, InstancesV2 {single!r}"

    @scenario("B7", _BATCH, hooks=_MACHINES)
    def test_b7_max_batch_is_served(self, trial: Trial) -> None:
        """`max_batch` is a number, at least 1, and a batch of that many nodes is answered."""
        batch, node = trial.batch(), trial.machine()
        size = batch.max_batch
        nodes = trial.full_batch(size, node)
        for method in both(batch):
            outcome = attempt(partial(method, nodes))
            assert outcome.error is None, f"{method.__name__} of max_batch = {size} nodes {outcome}"
            answer = outcome.get().get(name_of(node))
            assert isinstance(answer, InstanceMetadata | InstanceState), (
                f"{method.__name__} of max_batch = {size} nodes has {answer!r} for the last of them"
            )

    @scenario("B8", _BATCH)
    def test_b8_another_providers_machine_is_unknown(self, trial: Trial) -> None:
        """A node with another provider's ID is unknown, never gone."""
        trial.needs_ids()
        node = new_node(trial.bench.name("foreign"), provider_id="another-cloud://i-1")
        for method in both(trial.batch()):
            _never_gone(attempt(partial(method, [node])), node, f"although it is another cloud's ({method.__name__})")

    @scenario("B9", _BATCH, hooks=("create_machine", "outage"))
    def test_b9_an_outage_is_unknown(self, trial: Trial) -> None:
        """While the cloud cannot answer, a batch raises or has errors as values; none says that an
        instance is gone."""
        batch, node = trial.batch(), trial.machine()
        with trial.outage():
            for method in both(batch):
                outcome = attempt(partial(method, [node]))
                _never_gone(outcome, node, f"while the cloud could not answer ({method.__name__})")
                answer = (outcome.value or {}).get(name_of(node))
                assert not isinstance(answer, InstanceMetadata | InstanceState), (
                    f"{method.__name__} answered {answer!r} while the cloud could not answer"
                )

    @scenario("B10", _BATCH, hooks=_MACHINES)
    def test_b10_values_are_of_the_contract(self, trial: Trial) -> None:
        """Values are InstanceMetadata or InstanceState, or a CloudProviderError for the node that
        it is about."""
        nodes = [*trial.machines(1), new_node(trial.bench.name("never"))]
        kinds: tuple[type[Any], ...] = (InstanceMetadata, InstanceState)
        for method, kind in zip(both(trial.batch()), kinds, strict=True):
            for name, value in method(nodes).items():
                assert isinstance(value, kind | CloudProviderError), (
                    f"{method.__name__} has {value!r} for {name}, which is no {kind.__name__} and no CloudProviderError"
                )

    @scenario("B11", _BATCH, hooks=_MACHINES)
    def test_b11_the_nodes_are_read_only(self, trial: Trial) -> None:
        """Neither the Nodes that are handed over nor their list are changed."""
        nodes = [read_only(node) for node in trial.machines(2)]
        before = list(nodes)
        for method in both(trial.batch()):
            with unchanged(method.__name__):
                method(nodes)
            assert nodes == before, f"{method.__name__} changed the list of Nodes that it was given"

    @scenario("B12", _BATCH, hooks=_MACHINES)
    def test_b12_many_threads_ask(self, trial: Trial) -> None:
        """Batches from many threads at once get the answers that single calls get."""
        batch, nodes = trial.batch(), trial.machines(2)
        asked = [[node] for node in nodes] * 4
        alone = [batch.instances_metadata(each) for each in asked]
        together = at_once([partial(batch.instances_metadata, each) for each in asked])
        for each, expected, outcome in zip(asked, alone, together, strict=True):
            name = name_of(each[0])
            assert outcome.error is None, f"of {len(asked)} batches at once, that about {name} {outcome}"
            found, wanted = _identity(outcome.get().get(name)), _identity(expected.get(name))
            assert found == wanted, f"of {len(asked)} batches at once, that about {name} has {found}; alone {wanted}"

    @scenario("B13", _BATCH, hooks=("create_machine", "hang"))
    def test_b13_a_hung_cloud_costs_the_deadline(self, trial: Trial) -> None:
        """While the cloud hangs, a batch ends soon after its deadline, and does not say that an
        instance is gone."""
        node = trial.machine()
        outcome = trial.in_a_hang(partial(trial.batch().instances_state, [node]))
        _never_gone(outcome, node, "while the cloud hangs")
