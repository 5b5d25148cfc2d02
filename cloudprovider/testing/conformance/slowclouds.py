"""Scenarios of what a cloud does later, or not at all: builds and deletions that take their time,
quotas that are used up; and of what a load balancer does with UDP, health checks and everyone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from kubernetes.client.models.v1_service import V1Service

from cloudprovider.errors import ImplementedElsewhere, InstanceNotFound, NotImplementedByProvider, RetryError
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.bench import name_of
from cloudprovider.testing.conformance.calls import Outcome, attempt, limited
from cloudprovider.testing.conformance.features import Feature
from cloudprovider.testing.conformance.lab import service_port
from cloudprovider.testing.conformance.loadbalancerfailures import check_absent
from cloudprovider.testing.conformance.loadbalancers import balancer_of, check_ports, spoilt
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.routes import only
from cloudprovider.testing.conformance.trial import Trial

R = TypeVar("R")
_LB, _ROUTES = Feature.LOAD_BALANCER, Feature.ROUTES
_SECONDS = 4.0
_EVERYONE = frozenset({"0.0.0.0/0"})


def _check_health_check(trial: Trial, service: V1Service, wanted: tuple[str, int]) -> None:
    found = balancer_of(trial, service).health_check
    assert found == wanted, (
        f"with externalTrafficPolicy Local the health check asks {found!r}; {wanted!r} is due (helpers."
        "health_check_path_port): nodes without a pod of the Service would get its traffic"
    )


def _within_its_deadline(trial: Trial, call: Callable[[], R]) -> Outcome[R]:
    """How a call ends that has its deadline, and time enough to send a request."""
    return limited(call, deadline=max(trial.lab.deadline, _SECONDS), grace=trial.lab.grace)


class SlowCloudScenarios(ConformanceBase):
    """`LoadBalancer` and `Routes`: what takes time, what is full, and what is seldom asked for."""

    @scenario("L35", _LB | Feature.UDP, hooks=("load_balancer",))
    def test_l35_udp(self, trial: Trial) -> None:
        """A port over UDP is one over UDP, and one number over TCP and UDP is two ports."""
        service, nodes = trial.service(ports=((53, 30053, "UDP"),)), trial.machines(1)
        assert service.spec is not None
        trial.ensure(service, nodes)
        trial.eventually(partial(check_ports, trial, service))
        service.spec.ports = [service_port(53, 30053, "UDP"), service_port(53, 30054, "TCP")]
        trial.ensure(service, nodes)
        trial.eventually(partial(check_ports, trial, service))

    @scenario("L36", _LB | Feature.HEALTH_CHECKS, hooks=("load_balancer",))
    def test_l36_the_health_check_of_local(self, trial: Trial) -> None:
        """With `externalTrafficPolicy: Local` the health check asks the Service's health check node
        port, and follows it."""
        service, nodes = trial.service(), trial.machines(1)
        assert service.spec is not None
        service.spec.external_traffic_policy = "Local"
        for port in (32100, 32101):
            service.spec.health_check_node_port = port
            trial.ensure(service, nodes)
            trial.eventually(partial(_check_health_check, trial, service, ("/healthz", port)))

    @scenario("L37", _LB | Feature.SOURCE_RANGES, hooks=("load_balancer",))
    def test_l37_open_to_everyone(self, trial: Trial) -> None:
        """Without source ranges everyone may connect, also when there were some before."""
        service, nodes = trial.service(ports=((80, 30937),)), trial.machines(1)
        assert service.spec is not None
        # Narrow first: a rule that was made must be taken away again.
        for ranges in (["192.0.2.0/24"], None):
            service.spec.load_balancer_source_ranges = ranges
            trial.ensure(service, nodes)

            def look(wanted: frozenset[str] = frozenset(ranges or _EVERYONE)) -> None:
                found = balancer_of(trial, service).source_ranges
                assert found == wanted, (
                    f"{sorted(found)} may connect; the Service allows {sorted(wanted)}: one without "
                    "loadBalancerSourceRanges is open to everyone"
                )

            trial.eventually(look)

    @scenario("L38", _LB, hooks=("builds_slowly",))
    def test_l38_still_building(self, trial: Trial) -> None:
        """While the cloud builds it, `ensure_load_balancer` raises RetryError within its deadline;
        then it is finished."""
        service, nodes = trial.service(), trial.machines(1)
        build = trial.building(service, nodes)
        with trial.builds_slowly():
            outcome = _within_its_deadline(trial, build)
        if outcome.error is None:
            status = outcome.value
            assert status is not None, "ensure_load_balancer returned None while the cloud builds"
            assert status.ingress, (
                "ensure_load_balancer returned a status without address while the cloud builds: the host would take "
                "it for finished. Raise RetryError"
            )
        else:
            assert isinstance(outcome.error, RetryError), (
                f"ensure_load_balancer {outcome} while the cloud builds, which is told as a failure: raise RetryError"
            )
        trial.ensure(service, nodes)

    @scenario("L39", _LB, hooks=("builds_slowly", "resources"))
    def test_l39_still_deleting(self, trial: Trial) -> None:
        """While the cloud deletes it, `ensure_load_balancer_deleted` does not return; it raises
        RetryError within its deadline."""
        before, service = trial.resources(), trial.service()
        trial.ensure(service, trial.machines(1))
        delete = partial(trial.balancers().ensure_load_balancer_deleted, trial.cluster_name, service)
        with trial.builds_slowly():
            outcome = _within_its_deadline(trial, delete)
            left = trial.resources() - before
        assert outcome.error is not None or not left, (
            f"ensure_load_balancer_deleted returned while the cloud still deletes {sorted(left)}: the host would let "
            "the Service go, and nobody would see it if the deletion failed. Raise RetryError"
        )
        assert outcome.error is None or isinstance(outcome.error, RetryError), (
            f"ensure_load_balancer_deleted {outcome} while the cloud deletes: raise RetryError"
        )
        trial.remove(service)
        trial.eventually(partial(check_absent, trial, service, before))

    @scenario("L40", _LB, hooks=("quota",))
    def test_l40_a_quota_is_told(self, trial: Trial) -> None:
        """Where the cloud's quota is used up, `ensure_load_balancer` raises; with room again it
        builds."""
        service, nodes = trial.service(), trial.machines(1)
        build = trial.building(service, nodes)
        with trial.quota():
            outcome = attempt(build)
        assert outcome.error is not None, (
            f"ensure_load_balancer {outcome} although the cloud's quota is used up: raise with the cloud's words"
        )
        assert not isinstance(outcome.error, NotImplementedByProvider | ImplementedElsewhere), (
            f"ensure_load_balancer {outcome} where the cloud's quota is used up: the host would leave the Service alone"
        )
        trial.ensure(service, nodes)

    @scenario("L41", _LB)
    def test_l41_deleted_whatever_the_service_became(self, trial: Trial) -> None:
        """A load balancer is deleted also for a Service that could not be built any more."""
        service = trial.service()
        trial.ensure(service, trial.machines(1))
        outcome = attempt(partial(trial.remove, spoilt(service)))
        assert outcome.error is None, (
            f"ensure_load_balancer_deleted {outcome} for a Service that it would not build any more: look only at what "
            "says which load balancer it is, or the Service can never be deleted"
        )
        found = trial.found(service)
        assert found is None, f"ensure_load_balancer_deleted returned, and get_load_balancer still answers {found!r}"

    @scenario("R19", _ROUTES, hooks=("page",))
    def test_r19_more_routes_than_a_page(self, trial: Trial) -> None:
        """Of more routes than a page of a listing has, every one is listed."""
        node, routes = trial.machine(), trial.routes()
        made = [trial.route(node) for _ in range(trial.lab.page + 1)]
        for number, route in enumerate(made):
            routes.create_route(trial.cluster_name, f"hint-{number}", route)

        def look() -> None:
            listed = {one.destination_cidr for one in routes.list_routes(trial.cluster_name)}
            lacking = [one.destination_cidr for one in made if one.destination_cidr not in listed]
            assert not lacking, (
                f"of {len(made)} routes, {', '.join(lacking)} are not listed: a page of a listing has {trial.lab.page}"
            )

        trial.eventually(look)

    @scenario("R22", _ROUTES, hooks=("create_machine", "stop_machine"))
    def test_r22_a_stopped_machines_route_stays(self, trial: Trial) -> None:
        """The route to a machine that is switched off is listed with its node, and is no
        blackhole."""
        node = trial.new_machine()
        route = trial.route(node)
        routes = trial.routes()
        routes.create_route(trial.cluster_name, f"uid-of-{name_of(node)}", route)
        trial.lab.stop_machine(node)

        def look() -> None:
            assert not only(trial, route).blackhole, (
                "the route to a stopped machine is listed as a blackhole, which says that its machine is gone: the "
                "host would delete it"
            )

        trial.eventually(look)

    @scenario("R23", _ROUTES, hooks=("quota",))
    def test_r23_a_full_table_is_told(self, trial: Trial) -> None:
        """Where the cloud's route table is full, `create_route` raises; with room again it
        creates."""
        route = trial.route(trial.machine())
        routes = trial.routes()
        create = partial(routes.create_route, trial.cluster_name, "hint", route)
        with trial.quota():
            outcome = attempt(create)
        assert outcome.error is not None, (
            "create_route returned although the route table is full: the node would be told that it has a network. "
            "Raise with the cloud's words"
        )
        # By each of these the host would take the route for somebody else's affair, and stop
        # asking.
        wrong = InstanceNotFound | NotImplementedByProvider | ImplementedElsewhere
        assert not isinstance(outcome.error, wrong), f"create_route {outcome} where the route table is full"
        create()
