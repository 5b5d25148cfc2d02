"""Scenarios L, second half: a load balancer is wholly removed, whatever failed before; clusters are
kept apart.

Failures come from the lab's `outage(after)`: the scenario repeats a call with the cloud failing
after 0, 1, 2 ... requests, so that every step of a provider's call is the last one once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial

from kubernetes.client.models.v1_service import V1Service

from cloudprovider.errors import ImplementedElsewhere, LoadBalancerKept, RetryError
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.calls import Outcome, attempt, limited, unwell
from cloudprovider.testing.conformance.features import Feature
from cloudprovider.testing.conformance.lab import annotated
from cloudprovider.testing.conformance.loadbalancers import balancer_of
from cloudprovider.testing.conformance.ownedloadbalancers import listed
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.trial import Trial

_LB = Feature.LOAD_BALANCER
_MOST_STEPS = 200  # requests of one call; more is an outage that never strikes


def interrupted(trial: Trial, call: Callable[[], object], *, first: int = 0) -> Iterator[Outcome[object]]:
    """Make a call with the cloud failing after 0, 1, 2 ... requests; each outcome, the last of them
    a success.

    A call that raised `RetryError` sent all its requests: the cloud is still at work, and the walk
    is over.
    """
    for after in itertools.count(first):
        with trial.outage(after):
            outcome = attempt(call)
        yield outcome
        if outcome.error is None or isinstance(outcome.error, RetryError):
            return
        assert after < _MOST_STEPS, f"the call fails however late the outage begins: it {outcome}"


def check_absent(trial: Trial, service: V1Service, before: frozenset[str]) -> None:
    """Raises AssertionError when something of the Service's load balancer is left in the cloud."""
    status = trial.found(service)
    assert status is None, f"after the deletion get_load_balancer still answers {status!r}"
    left = trial.resources() - before
    assert not left, f"ensure_load_balancer_deleted returned, and {sorted(left)} are left in the cloud for ever"


def _check_kept(trial: Trial, service: V1Service, cluster_name: str, status: object) -> None:
    found = trial.balancers().get_load_balancer(cluster_name, service)
    assert found == status, (
        "after one cluster deleted its load balancer, that of the other cluster's Service of the same name has the "
        f"status {found!r}; it was {status!r}"
    )


def _check_listed_as_kept(trial: Trial, service: V1Service) -> None:
    found = listed(trial, service)
    assert [one.kept for one in found] == [True], f"owned_load_balancers has {found!r}, which is not marked as kept"


class LoadBalancerFailureScenarios(ConformanceBase):
    """`LoadBalancer`: removal, failures, and clusters side by side."""

    @scenario("L20", _LB)
    def test_l20_it_is_wholly_removed(self, trial: Trial) -> None:
        """Deleted, nothing of it is left in the cloud."""
        before, service = trial.resources(), trial.service()
        trial.ensure(service, trial.machines(1))
        trial.remove(service)
        trial.eventually(partial(check_absent, trial, service, before))

    @scenario("L21", _LB)
    def test_l21_absent_already_is_success(self, trial: Trial) -> None:
        """Deleting what is deleted already, or never was built, is success."""
        service = trial.service()
        for _ in range(2):
            outcome = attempt(partial(trial.remove, service))
            assert outcome.error is None, f"ensure_load_balancer_deleted {outcome} for what does not exist"

    @scenario("L22", _LB, hooks=("outage",))
    def test_l22_a_half_built_one_is_completed(self, trial: Trial) -> None:
        """Wherever building was interrupted, the next ensure completes the load balancer and builds
        no second one."""
        whole = trial.service()
        empty, nodes = trial.resources(), trial.machines(1)
        trial.ensure(whole, nodes)
        # Counted once without any interruption: how many parts one has is the vendor's own affair.
        parts = len(trial.resources() - empty)
        before, service = trial.resources(), trial.service()
        build = trial.building(service, nodes)
        for _ in interrupted(trial, build):
            pass
        status = trial.ensure(service, nodes)
        found = trial.found(service)
        assert found == status, f"completed, get_load_balancer answers {found!r}, ensure_load_balancer {status!r}"
        built = trial.resources() - before
        assert len(built) <= parts, (
            f"interrupted and completed, it consists of {len(built)} parts ({sorted(built)}); otherwise of {parts}"
        )

    @scenario("L23", _LB, hooks=("outage",))
    def test_l23_a_half_built_one_is_wholly_removed(self, trial: Trial) -> None:
        """Wherever building was interrupted, deletion leaves nothing in the cloud."""
        before, service, nodes = trial.resources(), trial.service(), trial.machines(1)
        build = trial.building(service, nodes)
        for outcome in interrupted(trial, build):
            if outcome.error is not None:
                trial.remove(service)
                trial.eventually(partial(check_absent, trial, service, before))

    @scenario("L24", _LB, hooks=("outage",))
    def test_l24_an_interrupted_deletion_goes_on(self, trial: Trial) -> None:
        """An interrupted deletion raises; repeated, it removes the rest. It never returns while
        something is left."""
        before, service = trial.resources(), trial.service()
        trial.ensure(service, trial.machines(1))
        for outcome in interrupted(
            trial, partial(trial.balancers().ensure_load_balancer_deleted, trial.cluster_name, service)
        ):
            if isinstance(outcome.error, RetryError):
                trial.remove(service)
            if outcome.error is None or isinstance(outcome.error, RetryError):
                trial.eventually(partial(check_absent, trial, service, before))

    @scenario("L25", _LB, hooks=("outage",))
    def test_l25_an_outage_is_not_absence(self, trial: Trial) -> None:
        """While the cloud cannot answer, `get_load_balancer` raises: None would say that there is
        none."""
        service, _ = trial.standing()
        with trial.outage():
            unwell("get_load_balancer", partial(trial.found, service))

    @scenario("L26", _LB, hooks=("outage",))
    def test_l26_an_outage_is_not_success(self, trial: Trial) -> None:
        """While the cloud refuses every request, building, updating and deleting raise."""
        service, nodes = trial.standing()
        balancers, cluster = trial.balancers(), trial.cluster_name
        calls: tuple[tuple[str, Callable[[], object]], ...] = (
            ("ensure_load_balancer", partial(balancers.ensure_load_balancer, cluster, trial.service(), nodes)),
            ("update_load_balancer", partial(balancers.update_load_balancer, cluster, service, nodes[:1])),
            ("ensure_load_balancer_deleted", partial(balancers.ensure_load_balancer_deleted, cluster, service)),
        )
        with trial.outage():
            for question, call in calls:
                error = unwell(question, call)
                assert not isinstance(error, ImplementedElsewhere), (
                    f"{question} raised ImplementedElsewhere in an outage: the host would leave the Service alone"
                )

    @scenario("L27", _LB)
    def test_l27_clusters_are_kept_apart(self, trial: Trial) -> None:
        """Services of one name in two clusters have a load balancer each, and each cluster deletes
        only its own."""
        other = f"{trial.cluster_name}-2"
        ours = trial.service()
        assert ours.metadata is not None
        theirs = trial.service(name=ours.metadata.name, cluster_name=other)
        nodes = trial.machines(1)
        trial.ensure(ours, nodes)
        absent = trial.balancers().get_load_balancer(other, theirs)
        assert absent is None, f"the other cluster's Service of the same name already has {absent!r}"
        status = trial.ensure(theirs, nodes, cluster_name=other)
        trial.remove(ours)
        trial.eventually(partial(_check_kept, trial, theirs, other, status))

    @scenario("L28", _LB, hooks=("outage", "load_balancer"))
    def test_l28_an_interrupted_change_is_carried_out(self, trial: Trial) -> None:
        """Wherever a change of ports and nodes was interrupted, the next ensure carries out the
        rest."""
        service = trial.service(ports=((80, 30080),))
        one, two = trial.machines(2)
        trial.ensure(service, [one])
        assert service.spec is not None
        assert service.spec.ports is not None
        service.spec.ports[0].node_port = 31080
        change = trial.building(service, [two])
        for _ in interrupted(trial, change):
            pass
        trial.ensure(service, [two])

        def look() -> None:
            facts = balancer_of(trial, service)
            assert provider_id_of(two) in facts.targets, (
                f"after an interrupted change {provider_id_of(two)} is no target"
            )
            found = {node_port for _, _, node_port in facts.ports}
            assert found == {31080}, f"after an interrupted change the node ports are {sorted(found)}, not 31080"

        trial.eventually(look)

    @scenario("L29", _LB)
    def test_l29_a_cancelled_call_builds_nothing(self, trial: Trial) -> None:
        """A call that is cancelled, or out of time, before it begins raises and builds nothing."""
        before, service, nodes = trial.resources(), trial.service(), trial.machines(1)
        build = trial.building(service, nodes)
        fix = "ask current_call().check() before each step that changes something"
        for what, outcome in (
            ("cancelled", limited(build, cancelled=True, grace=trial.lab.patience)),
            ("out of time", limited(build, deadline=0.0, grace=trial.lab.patience)),
        ):
            assert outcome.error is not None, f"ensure_load_balancer built on although its call was {what}: {fix}"
            status = trial.found(service)
            assert status is None, f"ensure_load_balancer raised, and built, although its call was {what}: {fix}"
        more = trial.resources() - before
        assert not more, f"ensure_load_balancer built {sorted(more)} although its call was cancelled: {fix}"

    @scenario("L30", _LB, hooks=("hang",))
    def test_l30_a_hung_cloud_costs_the_deadline(self, trial: Trial) -> None:
        """While the cloud hangs, `get_load_balancer` ends soon after its deadline, by raising."""
        service, _ = trial.standing()
        outcome = trial.in_a_hang(partial(trial.found, service))
        assert outcome.error is not None, f"get_load_balancer {outcome} while the cloud hangs: it must raise"

    @scenario("L31", _LB | Feature.KEPT_LOAD_BALANCERS, hooks=("kept_annotations",))
    def test_l31_a_kept_one_stays(self, trial: Trial) -> None:
        """Asked to keep it, deletion raises `LoadBalancerKept`; the load balancer stays, and is
        listed as kept."""
        service = trial.service()
        status = trial.ensure(service, trial.machines(1))
        keeping = annotated(service, trial.lab.kept_annotations())
        outcome = attempt(partial(trial.remove, keeping))
        assert isinstance(outcome.error, LoadBalancerKept), (
            f"ensure_load_balancer_deleted {outcome} for a Service that keeps its load balancer: raise LoadBalancerKept"
        )
        found = trial.found(keeping)
        assert found == status, f"kept, get_load_balancer answers {found!r}; it was {status!r}"
        if Feature.OWNED_LOAD_BALANCERS in trial.features:
            trial.eventually(partial(_check_listed_as_kept, trial, service))

    @scenario("L32", _LB)
    def test_l32_deleted_after_its_annotations_went(self, trial: Trial) -> None:
        """Deleted without its annotations and as another type it is gone, or its name depends on
        them."""
        service = trial.service(annotations={"example.com/note": "built"})
        trial.ensure(service, trial.machines(1))
        bare = deepcopy(service)
        assert bare.metadata is not None
        assert bare.spec is not None
        bare.metadata.annotations, bare.spec.type, bare.status = {}, "ClusterIP", None
        balancers, cluster = trial.balancers(), trial.cluster_name
        trial.remove(bare)
        if balancers.get_load_balancer_name(cluster, bare) != balancers.get_load_balancer_name(cluster, service):
            trial.remove(service)  # as the host does
        found = balancers.get_load_balancer(cluster, service)
        assert found is None, (
            f"deleted without its annotations, get_load_balancer answers {found!r}: if annotations choose which load "
            "balancer it is, get_load_balancer_name must depend on them"
        )
