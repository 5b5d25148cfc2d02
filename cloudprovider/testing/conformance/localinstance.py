"""Scenarios M: the machine that the program runs on, as its metadata service answers for it."""

from __future__ import annotations

from functools import partial

from cloudprovider.checks import answers
from cloudprovider.helpers.labels import node_name_problems
from cloudprovider.interface import Interface
from cloudprovider.localinstance import LocalInstance
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.bench import name_of
from cloudprovider.testing.conformance.calls import one_a_line, right, unwell
from cloudprovider.testing.conformance.features import Feature
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.trial import Trial, declared

_LOCAL = Feature.LOCAL_INSTANCE
_MACHINE = ("local_machine",)
_COMPARED = ("provider_id", "instance_type", "zone", "region")


def _local(provider: Interface) -> LocalInstance:
    return declared(provider.local_instance(), "local_instance")


class LocalInstanceScenarios(ConformanceBase):
    """`LocalInstance`."""

    @scenario("M1", _LOCAL, hooks=_MACHINE)
    def test_m1_metadata_is_fit_for_a_kubelet(self, trial: Trial) -> None:
        """Metadata has a provider ID of this provider, valid addresses and label values, the same
        every time."""
        trial.lab.local_machine()
        answer = _local(trial.provider).local_metadata()
        prefixes = trial.provider.provider_id_prefixes()
        right("local_metadata", answers.metadata, answer, prefixes=prefixes, strict=True)
        again = _local(trial.provider).local_metadata()
        assert again == answer, f"local_metadata answered {answer!r}, and then {again!r}"

    @scenario("M2", _LOCAL, hooks=_MACHINE)
    def test_m2_the_node_has_its_name(self, trial: Trial) -> None:
        """`local_node_name` answers the name that the machine's node has."""
        name = name_of(trial.lab.local_machine())
        answer: object = _local(trial.provider).local_node_name(name)
        assert isinstance(answer, str), f"local_node_name answered {answer!r}, not a text"
        problems = node_name_problems(answer)
        assert not problems, f"local_node_name:{one_a_line(problems)}"
        assert answer == name, f"local_node_name answered {answer!r}; the node's name is {name!r}"

    @scenario("M3", _LOCAL, hooks=_MACHINE)
    def test_m3_the_factory_is_enough(self, trial: Trial) -> None:
        """A provider whose `initialize` was not called answers: a machine that boots has no cluster
        and no secrets."""
        trial.lab.local_machine()
        expected = _local(trial.provider).local_metadata()
        # A machine that boots has no cluster yet, and its kubelet waits for this answer.
        answer = _local(trial.bench.started_provider()).local_metadata()
        assert answer == expected, f"local_metadata answered {answer!r} before initialize, and {expected!r} after it"

    @scenario("M4", _LOCAL | Feature.INSTANCES_V2, hooks=_MACHINE)
    def test_m4_it_agrees_with_the_cloud(self, trial: Trial) -> None:
        """What the machine says of itself is what the cloud says of its node: provider ID, type,
        zone and region."""
        node, instances = trial.lab.local_machine(), trial.instances()
        local = _local(trial.provider).local_metadata()
        cloud = trial.eventually(partial(instances.instance_metadata, node))
        problems = [
            f"{field}: the machine says {mine!r}, the cloud {theirs!r}"
            for field in _COMPARED
            if (mine := getattr(local, field)) and mine != (theirs := getattr(cloud, field))
        ]
        assert not problems, f"the kubelet would write what the node controller corrects:{one_a_line(problems)}"

    @scenario("M5", _LOCAL, hooks=(*_MACHINE, "outage"))
    def test_m5_an_outage_is_unknown(self, trial: Trial) -> None:
        """While the metadata service cannot answer, an error is raised that is no
        InstanceNotFound."""
        trial.lab.local_machine()
        with trial.outage():
            unwell("local_metadata", _local(trial.provider).local_metadata)

    @scenario("M6", _LOCAL, hooks=(*_MACHINE, "hang"))
    def test_m6_a_hung_service_costs_the_deadline(self, trial: Trial) -> None:
        """While the metadata service hangs, a call ends soon after its deadline: the boot goes
        on."""
        trial.lab.local_machine()
        trial.in_a_hang(_local(trial.provider).local_metadata)
