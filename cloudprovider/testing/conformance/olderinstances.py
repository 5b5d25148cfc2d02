"""Scenarios N and Z: the older `Instances`, asked by name and by provider ID, and `Zones` beside
them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from cloudprovider.checks import answers
from cloudprovider.errors import InstanceNotFound, NotImplementedByProvider
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.instances import Instances
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.bench import name_of
from cloudprovider.testing.conformance.calls import at_once, attempt, exists, right, unwell
from cloudprovider.testing.conformance.features import Feature
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.trial import Trial, declared
from cloudprovider.zones import Zone, Zones

_OLDER, _ZONES = Feature.INSTANCES, Feature.ZONES
_MACHINES = ("create_machine",)


def _instances(trial: Trial) -> Instances:
    return declared(trial.provider.instances(), "instances")


def _zones(trial: Trial) -> Zones:
    return declared(trial.provider.zones(), "zones")


def _exists(instances: Instances, provider_id: str) -> bool:
    return exists(instances.instance_exists_by_provider_id, provider_id)


class OlderInstanceScenarios(ConformanceBase):
    """`Instances`."""

    @scenario("N1", _OLDER, hooks=_MACHINES)
    def test_n1_by_name_and_by_id_agree(self, trial: Trial) -> None:
        """Addresses and type are valid, and the same by name and by provider ID."""
        instances, node = _instances(trial), trial.machine()
        name, provider_id = name_of(node), provider_id_of(node)
        answer = instances.node_addresses(name)
        addresses = right(f"node_addresses of {name}", answers.addresses, answer, strict=True)
        kind = right(f"instance_type of {name}", answers.label_text, instances.instance_type(name))
        found = instances.node_addresses_by_provider_id(provider_id)
        assert list(found) == list(addresses), f"addresses by name: {addresses!r}, by provider ID: {found!r}"
        by_id = instances.instance_type_by_provider_id(provider_id)
        assert by_id == kind, f"type by name: {kind!r}, by provider ID: {by_id!r}"

    @scenario("N2", _OLDER, hooks=_MACHINES)
    def test_n2_the_instance_id_makes_the_provider_id(self, trial: Trial) -> None:
        """`instance_id` is the part of the provider ID behind "<provider>://"; `external_id` is a
        text too."""
        instances, node = _instances(trial), trial.machine()
        made = f"{trial.provider.provider_name()}://{instances.instance_id(name_of(node))}"
        assert trial.provider.same_provider_id(provider_id_of(node), made), (
            f"instance_id makes the provider ID {made}; the machine's is {provider_id_of(node)}"
        )
        external = attempt(partial(instances.external_id, name_of(node)))
        assert isinstance(external.value, str) or isinstance(external.error, NotImplementedByProvider), (
            f"external_id {external}; a text or NotImplementedByProvider is due"
        )

    @scenario("N3", _OLDER, hooks=("create_machine", "stop_machine"))
    def test_n3_a_stopped_machine_exists(self, trial: Trial) -> None:
        """A machine that runs exists and is not shut down; one that was switched off exists and
        is."""
        instances = _instances(trial)

        def look() -> None:
            for node, expected in ((trial.machine(), False), (trial.stopped(), True)):
                provider_id = provider_id_of(node)
                assert _exists(instances, provider_id), f"instance_exists_by_provider_id says {provider_id} is gone"
                answer = instances.instance_shutdown_by_provider_id(provider_id)
                assert answer is expected, f"instance_shutdown_by_provider_id answered {answer!r}, not {expected}"

        trial.eventually(look)

    @scenario("N4", _OLDER, hooks=("create_machine", "delete_machine"))
    def test_n4_a_deleted_machine_is_gone(self, trial: Trial) -> None:
        """A deleted machine is gone: it does not exist, and every other method raises
        InstanceNotFound."""
        instances, node = _instances(trial), trial.deleted()
        name, provider_id = name_of(node), provider_id_of(node)

        def look() -> None:
            assert not _exists(instances, provider_id), f"instance_exists_by_provider_id says {provider_id} is there"
            calls: tuple[Callable[[], object], ...] = (
                partial(instances.node_addresses, name),
                partial(instances.node_addresses_by_provider_id, provider_id),
                partial(instances.instance_id, name),
                partial(instances.instance_type, name),
                partial(instances.instance_type_by_provider_id, provider_id),
            )
            for call in calls:
                outcome = attempt(call)
                assert isinstance(outcome.error, InstanceNotFound), f"{outcome} for a deleted machine"

        trial.eventually(look)

    @scenario("N5", _OLDER, hooks=("create_machine", "outage"))
    def test_n5_an_outage_is_unknown(self, trial: Trial) -> None:
        """While the cloud cannot answer, every method raises, and none says that the instance is
        gone."""
        instances, node = _instances(trial), trial.machine()
        name, provider_id = name_of(node), provider_id_of(node)
        with trial.outage():
            for method in (instances.node_addresses, instances.instance_id, instances.instance_type):
                unwell(method.__name__, partial(method, name))
            for ask in (
                instances.instance_exists_by_provider_id,
                instances.instance_shutdown_by_provider_id,
                instances.node_addresses_by_provider_id,
                instances.instance_type_by_provider_id,
            ):
                unwell(ask.__name__, partial(ask, provider_id))

    @scenario("N6", _OLDER)
    def test_n6_another_providers_machine_is_unknown(self, trial: Trial) -> None:
        """Another provider's ID is unknown, never gone."""
        outcome = attempt(partial(_instances(trial).instance_exists_by_provider_id, "another-cloud://i-1"))
        assert outcome.value is not False, f"instance_exists_by_provider_id {outcome} for another cloud's machine"
        assert not isinstance(outcome.error, InstanceNotFound), (
            f"instance_exists_by_provider_id {outcome} for another cloud's machine: its node would be deleted"
        )

    @scenario("N7", _OLDER, hooks=_MACHINES)
    def test_n7_many_threads_ask(self, trial: Trial) -> None:
        """Calls from many threads at once get the answers that single calls get."""
        instances, nodes = _instances(trial), trial.machines(2) * 4
        alone = [instances.instance_id(name_of(node)) for node in nodes]
        together = at_once([partial(instances.instance_id, name_of(node)) for node in nodes])
        for node, expected, outcome in zip(nodes, alone, together, strict=True):
            assert outcome.value == expected, (
                f"instance_id of {name_of(node)} {outcome} when asked by {len(nodes)} threads at once; alone it "
                f"answered {expected!r}"
            )

    @scenario("N8", _OLDER, hooks=("create_machine", "hang"))
    def test_n8_a_hung_cloud_costs_the_deadline(self, trial: Trial) -> None:
        """While the cloud hangs, a call ends soon after its deadline, and does not say that the
        instance is gone."""
        outcome = trial.in_a_hang(partial(_exists, _instances(trial), provider_id_of(trial.machine())))
        assert outcome.value is not False, "instance_exists_by_provider_id says gone because the cloud hangs"

    @scenario("N9", _OLDER)
    def test_n9_ssh_keys_may_be_given_again(self, trial: Trial) -> None:
        """`add_ssh_key_to_all_instances` may be repeated, or raises NotImplementedByProvider."""
        key = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBlISmtQsAHDS11OZIBeazeLq3wQz8gF3N444y2SzEGP"
        for _ in range(2):
            outcome = attempt(partial(_instances(trial).add_ssh_key_to_all_instances, "conformance", key))
            assert outcome.error is None or isinstance(outcome.error, NotImplementedByProvider), (
                f"add_ssh_key_to_all_instances {outcome}"
            )


class ZoneScenarios(ConformanceBase):
    """`Zones`."""

    @scenario("Z1", _ZONES, hooks=_MACHINES)
    def test_z1_by_name_and_by_id_agree(self, trial: Trial) -> None:
        """Zone and region are valid label values, and the same by node name and by provider ID."""
        zones, node = _zones(trial), trial.machine()
        place = zones.get_zone_by_node_name(name_of(node))
        right(f"get_zone_by_node_name of {name_of(node)}", answers.zone, place)
        by_id = zones.get_zone_by_provider_id(provider_id_of(node))
        assert by_id == place, f"the zone by node name: {place!r}, by provider ID: {by_id!r}"

    @scenario("Z2", _ZONES, hooks=("create_machine", "delete_machine"))
    def test_z2_a_deleted_machine_has_no_zone(self, trial: Trial) -> None:
        """For a deleted machine both lookups raise InstanceNotFound."""
        zones, node = _zones(trial), trial.deleted()

        def look() -> None:
            for call in (
                partial(zones.get_zone_by_node_name, name_of(node)),
                partial(zones.get_zone_by_provider_id, provider_id_of(node)),
            ):
                outcome = attempt(call)
                assert isinstance(outcome.error, InstanceNotFound), f"{outcome} for a deleted machine"

        trial.eventually(look)

    @scenario("Z3", _ZONES, hooks=("create_machine", "outage"))
    def test_z3_an_outage_is_unknown(self, trial: Trial) -> None:
        """While the cloud cannot answer, both lookups raise, and none says that the instance is
        gone."""
        zones, node = _zones(trial), trial.machine()
        with trial.outage():
            unwell("get_zone_by_node_name", partial(zones.get_zone_by_node_name, name_of(node)))
            unwell("get_zone_by_provider_id", partial(zones.get_zone_by_provider_id, provider_id_of(node)))

    @scenario("Z4", _ZONES)
    def test_z4_the_programs_own_zone(self, trial: Trial) -> None:
        """`get_zone` answers a Zone, or raises NotImplementedByProvider."""
        outcome = attempt(_zones(trial).get_zone)
        assert isinstance(outcome.value, Zone) or isinstance(outcome.error, NotImplementedByProvider), (
            f"get_zone {outcome}; a Zone or NotImplementedByProvider is due"
        )

    @scenario("Z5", _ZONES, hooks=("create_machine", "hang"))
    def test_z5_a_hung_cloud_costs_the_deadline(self, trial: Trial) -> None:
        """While the cloud hangs, a lookup ends soon after its deadline, and does not say that the
        instance is gone."""
        zones, provider_id = _zones(trial), provider_id_of(trial.machine())
        outcome = trial.in_a_hang(partial(zones.get_zone_by_provider_id, provider_id))
        assert not isinstance(outcome.error, InstanceNotFound), "the zone is said to be gone because the cloud hangs"
