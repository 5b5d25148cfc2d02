"""Scenarios L, first half: a load balancer is named, built, found again, and follows its Service
and its nodes.

The second half, removal and failures, is in `loadbalancerfailures.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from uuid import uuid4

from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service
from kubernetes.client.models.v1_service_port import V1ServicePort

from cloudprovider.checks import answers
from cloudprovider.errors import ImplementedElsewhere, NotImplementedByProvider
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.internal.readonly import read_only
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.calls import at_once, attempt, right, unchanged
from cloudprovider.testing.conformance.features import Feature
from cloudprovider.testing.conformance.lab import BalancerFacts, annotated, new_node, new_service
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.trial import Trial

_LB = Feature.LOAD_BALANCER


def balancer_of(trial: Trial, service: V1Service) -> BalancerFacts:
    """What the cloud itself says about the Service's load balancer. Raises AssertionError when
    there is none."""
    name = trial.balancer_name(service)
    facts = trial.lab.load_balancer(name)
    assert facts is not None, f"the cloud has no load balancer {name}, although ensure_load_balancer returned"
    return facts


def _wanted_ports(service: V1Service) -> set[tuple[int, str, int]]:
    assert service.spec is not None
    return {(port.port, port.protocol or "TCP", port.node_port or 0) for port in service.spec.ports or ()}


def check_ports(trial: Trial, service: V1Service) -> None:
    wanted, found = _wanted_ports(service), balancer_of(trial, service).ports
    assert found == wanted, f"the load balancer has the ports {sorted(found)}; the Service has {sorted(wanted)}"


def check_targets(trial: Trial, service: V1Service, nodes: Sequence[V1Node]) -> None:
    """Raises AssertionError when the load balancer's targets are others than these nodes."""
    wanted, found = {provider_id_of(node) for node in nodes}, balancer_of(trial, service).targets
    assert found == wanted, f"the load balancer has the targets {sorted(found)}; the nodes are {sorted(wanted)}"


def spoilt(service: V1Service) -> V1Service:
    """The same Service, as no cloud would build it."""
    copy = deepcopy(service)
    spec = copy.spec
    assert spec is not None
    assert spec.ports is not None
    spec.session_affinity, spec.load_balancer_ip = "ClientIP", "192.0.2.77"
    spec.load_balancer_source_ranges = ["nonsense"]
    spec.ports[0].node_port, spec.ports[0].protocol = None, "SCTP"
    return copy


class LoadBalancerScenarios(ConformanceBase):
    """`LoadBalancer`: building and keeping in line."""

    @scenario("L1", _LB)
    def test_l1_nothing_before_it_is_built(self, trial: Trial) -> None:
        """Before it is built, `get_load_balancer` answers None, and builds nothing."""
        before, service = trial.resources(), trial.service()
        for _ in range(2):
            status = trial.found(service)
            assert status is None, f"get_load_balancer answered {status!r} for a Service that never had one"
        assert trial.resources() <= before, "get_load_balancer built something: it must change nothing"

    @scenario("L2", _LB)
    def test_l2_it_is_built(self, trial: Trial) -> None:
        """A load balancer that was built has a valid status, and `get_load_balancer` returns the
        same."""
        service = trial.service()
        status = trial.ensure(service, trial.machines(2))
        right("the status that ensure_load_balancer returned", answers.load_balancer_status, status)

        def look() -> None:
            found = trial.found(service)
            assert found == status, f"get_load_balancer answered {found!r}; ensure_load_balancer had {status!r}"

        trial.eventually(look)

    @scenario("L3", _LB)
    def test_l3_ensured_again_it_is_the_same(self, trial: Trial) -> None:
        """Ensured again, it is the same load balancer with the same address, and nothing is built
        beside it."""
        service, nodes = trial.standing()
        first, before = trial.ensure(service, nodes), trial.resources()
        for _ in range(2):
            again = trial.ensure(service, nodes)
            assert again == first, f"ensure_load_balancer returned {first!r}, and then {again!r}"
        more = trial.resources() - before
        assert not more, f"ensure_load_balancer for a finished load balancer built {sorted(more)}"

    @scenario("L4", _LB)
    def test_l4_the_name_is_stable(self, trial: Trial) -> None:
        """The name is valid and follows from the Service's identity: it stays when anything else
        changes, also after a restart."""
        service = trial.service()
        balancers, cluster = trial.balancers(), trial.cluster_name
        answer = balancers.get_load_balancer_name(cluster, service)
        name = right("get_load_balancer_name", answers.load_balancer_name, answer)
        # A cloud cuts or refuses long names, and two that are cut alike are one load balancer.
        longest = new_service("s" * 63, str(uuid4()), namespace="n" * 63)
        of_longest = balancers.get_load_balancer_name(cluster, longest)
        right("get_load_balancer_name of a Service with names of 63 characters", answers.load_balancer_name, of_longest)
        changed = annotated(_changed(service), {"example.com/note": "changed"})
        assert changed.metadata is not None
        changed.metadata.labels = {"team": "blue"}
        restarted = trial.balancers(trial.bench.another_provider())
        for what, ask in (
            ("again", partial(balancers.get_load_balancer_name, cluster, service)),
            ("after the Service changed", partial(balancers.get_load_balancer_name, cluster, changed)),
            ("after a restart", partial(restarted.get_load_balancer_name, cluster, service)),
        ):
            assert ask() == name, f"get_load_balancer_name answered {name!r}, and {what} {ask()!r}"

    @scenario("L5", _LB)
    def test_l5_names_are_different(self, trial: Trial) -> None:
        """A Service that was deleted and created again under its name has another load balancer:
        another name."""
        first = trial.service()
        assert first.metadata is not None
        # A new UID under the same name: the old one may still be deleted while the new one is
        # built.
        second = trial.service(name=first.metadata.name)
        names = [trial.balancer_name(each) for each in (first, second)]
        assert names[0] != names[1], f"two Services of one name and different UIDs have the load balancer {names[0]}"

    @scenario("L6", _LB)
    def test_l6_the_revision_is_constant(self, trial: Trial) -> None:
        """`load_balancer_revision` is a text, and the same in every process of one version."""
        answer = trial.balancers().load_balancer_revision()
        revision = right("load_balancer_revision", answers.revision, answer)
        restarted = trial.balancers(trial.bench.another_provider())
        for what, again in (("again", trial.balancers()), ("after a restart", restarted)):
            answer = again.load_balancer_revision()
            assert answer == revision, (
                f"load_balancer_revision answered {revision!r}, and {what} {answer!r}: the host would ensure "
                "every load balancer again"
            )

    @scenario("L7", _LB, hooks=("load_balancer",))
    def test_l7_it_has_the_services_ports(self, trial: Trial) -> None:
        """A new load balancer has the Service's ports and node ports."""
        service = trial.service(ports=((80, 30080), (443, 30443)))
        trial.ensure(service, trial.machines(1))
        trial.eventually(partial(check_ports, trial, service))

    @scenario("L8", _LB, hooks=("load_balancer",))
    def test_l8_it_follows_the_services_ports(self, trial: Trial) -> None:
        """When ports are added, changed or removed, the next ensure brings the load balancer in
        line."""
        service, nodes = trial.standing()
        assert service.spec is not None
        for ports in ([(80, 30080), (8443, 30843)], [(80, 31080), (8443, 30843)], [(8443, 30843)]):
            service.spec.ports = [
                V1ServicePort(name=f"port-{port}", port=port, node_port=node_port, protocol="TCP")
                for port, node_port in ports
            ]
            trial.ensure(service, nodes)
            trial.eventually(partial(check_ports, trial, service))

    @scenario("L9", _LB, hooks=("load_balancer",))
    def test_l9_it_has_the_nodes_as_targets(self, trial: Trial) -> None:
        """A new load balancer sends its traffic to the nodes that were handed over, and to no
        other."""
        service, nodes = trial.service(), trial.machines(2)
        trial.ensure(service, nodes)
        trial.eventually(partial(check_targets, trial, service, nodes))

    @scenario("L10", _LB, hooks=("load_balancer",))
    def test_l10_ensure_replaces_the_targets(self, trial: Trial) -> None:
        """Ensured with other nodes, it has these as targets: missing ones are removed, new ones are
        added."""
        service, _ = trial.standing()
        one, two, three = trial.machines(3)
        # Fewer, all others, and one that was there before: each needs another comparison.
        for nodes in ([one], [two, three], [one, two]):
            trial.ensure(service, nodes)
            trial.eventually(partial(check_targets, trial, service, nodes))

    @scenario("L11", _LB, hooks=("load_balancer",))
    def test_l11_update_replaces_the_targets(self, trial: Trial) -> None:
        """`update_load_balancer` makes the nodes the targets; repeated, it is the same; an empty
        list empties them."""
        service, _ = trial.standing()
        one, two, three = trial.machines(3)
        nodes: list[V1Node]
        # The empty list is what is left when the last node goes; it must not be taken for
        # "unchanged".
        for nodes in ([one], [two, three], [two, three], [], [one, two]):
            trial.patiently(trial.updating(service, nodes))
            trial.eventually(partial(check_targets, trial, service, nodes))

    @scenario("L12", _LB, hooks=("load_balancer",))
    def test_l12_update_changes_only_targets(self, trial: Trial) -> None:
        """`update_load_balancer` leaves ports and status as they are."""
        service, nodes = trial.standing()
        status = trial.found(service)
        before = balancer_of(trial, service)
        trial.patiently(trial.updating(_changed(service), nodes[:1]))
        after = balancer_of(trial, service)
        assert after.ports == before.ports, (
            f"update_load_balancer changed the ports from {sorted(before.ports)} to {sorted(after.ports)}"
        )
        found = trial.found(service)
        assert found == status, f"update_load_balancer changed the status from {status!r} to {found!r}"

    @scenario("L13", _LB)
    def test_l13_update_of_nothing_fails(self, trial: Trial) -> None:
        """`update_load_balancer` for a load balancer that does not exist raises, so that the host
        builds it."""
        service = trial.service()
        outcome = attempt(trial.updating(service, trial.machines(1)))
        assert outcome.error is not None, (
            "update_load_balancer returned for a load balancer that does not exist, and must create none: raise "
            "CloudProviderError, so that the host ensures it"
        )
        assert not isinstance(outcome.error, NotImplementedByProvider | ImplementedElsewhere), (
            f"update_load_balancer {outcome} for a load balancer that does not exist: the host would not build it"
        )

    @scenario("L14", _LB, hooks=("load_balancer",))
    def test_l14_foreign_nodes_do_no_harm(self, trial: Trial) -> None:
        """A node without a provider ID, or of another cloud, does not keep the others from being
        targets."""
        service, nodes = trial.standing()
        # In a cluster of two clouds, or while a node joins, the list has such nodes.
        strangers = [new_node(trial.bench.name("new")), new_node(trial.bench.name("far"), "another-cloud://i-1")]
        trial.ensure(service, [*strangers, *nodes])

        def look() -> None:
            lacking = {provider_id_of(node) for node in nodes} - balancer_of(trial, service).targets
            assert not lacking, f"with a foreign node in the list, {sorted(lacking)} are no targets"

        trial.eventually(look)

    @scenario("L15", _LB)
    def test_l15_service_and_nodes_are_read_only(self, trial: Trial) -> None:
        """The Service and the Nodes that are handed over are not changed, nor is the list of
        nodes."""
        service, nodes = read_only(trial.service()), [read_only(node) for node in trial.machines(2)]
        trial.ensure(service, nodes)
        before = list(nodes)
        balancers, cluster = trial.balancers(), trial.cluster_name
        for call in (
            partial(balancers.get_load_balancer_name, cluster, service),
            partial(balancers.get_load_balancer, cluster, service),
            partial(trial.ensure, service, nodes),
            partial(trial.patiently, partial(balancers.update_load_balancer, cluster, service, nodes)),
            partial(trial.remove, service),
        ):
            with unchanged("the provider"):
                call()
            assert nodes == before, "the provider changed the list of Nodes that it was given"

    @scenario("L16", _LB)
    def test_l16_a_restarted_provider_adopts_it(self, trial: Trial) -> None:
        """A provider that was just started finds, keeps and deletes what the one before it
        built."""
        service, nodes = trial.service(), trial.machines(1)
        status, before = trial.ensure(service, nodes), trial.resources()
        restarted = trial.bench.another_provider()
        balancers = trial.balancers(restarted)
        found = balancers.get_load_balancer(trial.cluster_name, service)
        assert found == status, f"after a restart get_load_balancer answers {found!r}; before it was {status!r}"
        again = trial.ensure(service, nodes, provider=restarted)
        assert again == status, f"after a restart ensure_load_balancer returned {again!r}; before it was {status!r}"
        more = trial.resources() - before
        assert not more, f"after a restart ensure_load_balancer built {sorted(more)}: the old one was not found"
        trial.remove(service, provider=restarted)
        left = balancers.get_load_balancer(trial.cluster_name, service)
        assert left is None, f"a provider that was restarted does not delete what was built before: {left!r}"

    @scenario("L17", _LB)
    def test_l17_many_services_at_once(self, trial: Trial) -> None:
        """Load balancers of several Services are built and deleted at the same time, each as if it
        were alone."""
        services, nodes = [trial.service() for _ in range(3)], trial.machines(1)
        # Some clouds build one after the other, whoever asks.
        patience = 3 * trial.lab.patience
        built = at_once([partial(trial.ensure, service, nodes) for service in services], within=patience)
        statuses = [outcome.get() for outcome in built]
        addresses = [repr(status.ingress) for status in statuses]
        assert len(set(addresses)) == len(addresses), f"Services built at once share an address: {addresses}"
        for service, status in zip(services, statuses, strict=True):
            found = trial.found(service)
            assert found == status, f"of load balancers built at once, one has the status {found!r}, not {status!r}"
        for outcome in at_once([partial(trial.remove, service) for service in services], within=patience):
            outcome.get()
        for service in services:
            left = trial.found(service)
            assert left is None, f"of load balancers deleted at once, one is left: {left!r}"

    @scenario("L18", _LB | Feature.SOURCE_RANGES, hooks=("load_balancer",))
    def test_l18_it_follows_the_source_ranges(self, trial: Trial) -> None:
        """`spec.loadBalancerSourceRanges` limits who may connect, and a change of it is carried
        out."""
        service, nodes = trial.standing()
        assert service.spec is not None
        for ranges in (["192.0.2.0/24"], ["192.0.2.0/24", "198.51.100.0/25"], ["198.51.100.0/25"]):
            service.spec.load_balancer_source_ranges = ranges
            trial.ensure(service, nodes)

            def look(wanted: frozenset[str] = frozenset(ranges)) -> None:
                found = balancer_of(trial, service).source_ranges
                assert found == wanted, f"{sorted(found)} may connect; the Service allows {sorted(wanted)}"

            trial.eventually(look)


def _changed(service: V1Service) -> V1Service:
    """The same Service with another port."""
    copy = deepcopy(service)
    assert copy.spec is not None
    copy.spec.ports = [V1ServicePort(name="other", port=8080, node_port=30808, protocol="TCP")]
    return copy
