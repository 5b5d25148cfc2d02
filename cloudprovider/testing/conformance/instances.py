"""Scenarios I: one node's instance, as `InstancesV2` answers for it."""

from __future__ import annotations

from functools import partial

from kubernetes.client.models.v1_node import V1Node

from cloudprovider.checks import answers
from cloudprovider.errors import InstanceNotFound
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.instances import InstanceMetadata, InstancesV2
from cloudprovider.internal.readonly import read_only
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.bench import name_of
from cloudprovider.testing.conformance.calls import at_once, attempt, exists, right, unchanged, unwell
from cloudprovider.testing.conformance.features import Feature
from cloudprovider.testing.conformance.lab import new_node
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.trial import Trial

_V2 = Feature.INSTANCES_V2
_MACHINES = ("create_machine",)


def _exists(instances: InstancesV2, node: V1Node) -> bool:
    return exists(instances.instance_exists, node)


class InstanceScenarios(ConformanceBase):
    """`InstancesV2`."""

    @scenario("I1", _V2, hooks=_MACHINES)
    def test_i1_a_running_machine_exists(self, trial: Trial) -> None:
        """A machine that runs exists and is not shut down."""
        instances, node = trial.instances(), trial.machine()
        assert _exists(instances, node), f"instance_exists says that the running machine of {name_of(node)} is gone"
        answer = instances.instance_shutdown(node)
        assert answer is False, f"instance_shutdown answered {answer!r} for a machine that runs"

    @scenario("I2", _V2, hooks=_MACHINES)
    def test_i2_metadata_is_fit_to_be_written(self, trial: Trial) -> None:
        """Metadata has a provider ID of this provider, and addresses, labels, taints and
        annotations that the host writes."""
        answer = trial.instances().instance_metadata(trial.registered())
        prefixes = trial.provider.provider_id_prefixes()
        what = f"instance_metadata of {name_of(trial.registered())}"
        right(what, answers.metadata, answer, prefixes=prefixes, strict=True)

    @scenario("I3", _V2, hooks=("create_machine", "stop_machine"))
    def test_i3_a_stopped_machine_exists(self, trial: Trial) -> None:
        """A machine that was switched off still exists, and is shut down."""
        instances, node = trial.instances(), trial.stopped()
        assert _exists(instances, node), (
            "instance_exists says that a stopped machine is gone: its node would be deleted"
        )

        def look() -> None:
            answer = instances.instance_shutdown(node)
            assert answer is True, f"instance_shutdown answered {answer!r} for a machine that is switched off"

        trial.eventually(look)

    @scenario("I4", _V2, hooks=("create_machine", "delete_machine"))
    def test_i4_a_deleted_machine_is_gone(self, trial: Trial) -> None:
        """A deleted machine is gone: `instance_exists` says so, and the other methods raise
        InstanceNotFound."""
        instances, node = trial.instances(), trial.deleted()

        def look() -> None:
            assert not _exists(instances, node), "instance_exists says that a deleted machine is there"
            for method in (instances.instance_shutdown, instances.instance_metadata):
                outcome = attempt(partial(method, node))
                assert isinstance(outcome.error, InstanceNotFound), (
                    f"{method.__name__} {outcome} for a deleted machine; InstanceNotFound is due"
                )

        trial.eventually(look)

    @scenario("I5", _V2, hooks=_MACHINES)
    def test_i5_a_machine_that_never_was(self, trial: Trial) -> None:
        """A node without a provider ID, whose machine never was there, is gone by name."""
        node = new_node(trial.bench.name("never"))
        assert not _exists(trial.instances(), node), f"instance_exists finds a machine for the unknown {name_of(node)}"

    @scenario("I6", _V2, hooks=_MACHINES)
    def test_i6_the_provider_id_finds_the_machine(self, trial: Trial) -> None:
        """A machine is found by the node's provider ID, whatever the node is called."""
        trial.needs_ids()
        node = trial.machine()
        renamed = new_node(trial.bench.name("renamed"), provider_id=provider_id_of(node))
        outcome = attempt(lambda: trial.instances().instance_metadata(renamed))
        assert isinstance(outcome.value, InstanceMetadata), (
            f"instance_metadata {outcome} for a node with the provider ID {provider_id_of(node)} and another name"
        )
        assert trial.provider.same_provider_id(provider_id_of(node), outcome.value.provider_id), (
            f"asked for {provider_id_of(node)}, instance_metadata answered for {outcome.value.provider_id}"
        )

    @scenario("I7", _V2)
    def test_i7_another_providers_machine_is_unknown(self, trial: Trial) -> None:
        """A node with another provider's ID is unknown, never gone."""
        trial.needs_ids()
        node = new_node(trial.bench.name("foreign"), provider_id="another-cloud://i-1")
        outcome = attempt(lambda: trial.instances().instance_exists(node))
        assert outcome.value is not False, (
            f"instance_exists {outcome} for {provider_id_of(node)}: the node of another cloud would be deleted"
        )
        assert not isinstance(outcome.error, InstanceNotFound), (
            f"instance_exists {outcome} for {provider_id_of(node)}: the node of another cloud would be deleted"
        )

    @scenario("I8", _V2, hooks=("create_machine", "outage"))
    def test_i8_an_outage_is_unknown(self, trial: Trial) -> None:
        """While the cloud cannot answer, every method raises, and none says that the instance is
        gone."""
        instances, node = trial.instances(), trial.machine()
        with trial.outage():
            unwell("instance_exists", partial(instances.instance_exists, node))
            unwell("instance_shutdown", partial(instances.instance_shutdown, node))
            unwell("instance_metadata", partial(instances.instance_metadata, node))

    @scenario("I9", _V2, hooks=_MACHINES)
    def test_i9_metadata_does_not_waver(self, trial: Trial) -> None:
        """Asked again, metadata is the same, addresses in the same order."""
        instances, node = trial.instances(), trial.machine()
        first = instances.instance_metadata(node)
        # Sets and dictionaries of the cloud come in any order: each change would be a write to the
        # Node.
        for _ in range(3):
            again = instances.instance_metadata(node)
            assert again == first, f"instance_metadata answered {first!r}, and then {again!r}"

    @scenario("I10", _V2, hooks=_MACHINES)
    def test_i10_the_node_is_read_only(self, trial: Trial) -> None:
        """The Node that is handed over is not changed."""
        instances, node = trial.instances(), read_only(trial.machine())
        for method in (instances.instance_exists, instances.instance_shutdown, instances.instance_metadata):
            with unchanged(method.__name__):
                method(node)

    @scenario("I11", _V2, hooks=_MACHINES)
    def test_i11_many_threads_ask(self, trial: Trial) -> None:
        """Calls from many threads at once get the answers that single calls get."""
        instances, nodes = trial.instances(), trial.machines(2) * 4
        alone = [instances.instance_metadata(node) for node in nodes]
        together = at_once([partial(instances.instance_metadata, node) for node in nodes])
        for node, expected, outcome in zip(nodes, alone, together, strict=True):
            found = outcome.value.provider_id if outcome.value is not None else str(outcome)
            assert found == expected.provider_id, (
                f"asked by {len(nodes)} threads at once, instance_metadata of {name_of(node)} is about {found}; asked "
                f"alone, about {expected.provider_id}"
            )

    @scenario("I12", _V2, hooks=("create_machine", "hang"))
    def test_i12_a_hung_cloud_costs_the_deadline(self, trial: Trial) -> None:
        """While the cloud hangs, a call ends soon after its deadline, and does not say that the
        instance is gone."""
        outcome = trial.in_a_hang(partial(_exists, trial.instances(), trial.machine()))
        assert outcome.value is not False, "instance_exists says that the instance is gone because the cloud hangs"
