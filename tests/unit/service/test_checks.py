"""What is done although nothing changed in the cluster, and how seldom: rows S2, S19 and S20."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus

from cloudprovider import NotImplementedByProvider, RetryError
from controllers.cloudcalls import PRIORITY_SWEEP
from controllers.runtime.api import ServerError
from tests.support.controllers import Fault, Raw
from tests.unit.service.bench import Bench
from tests.unit.service.objects import raw_node, raw_service

HOUR = 3600.0


def _web(bench: Bench) -> Raw:
    return bench.server.services["default/web"]


def _hours(bench: Bench, hours: float) -> None:
    bench.settle(rounds=int(hours * 60), step=60.0)


def _shown(bench: Bench, ip: str) -> None:
    (balancer,) = bench.cloud.balancers.values()
    status = V1LoadBalancerStatus.from_dict({"ingress": [{"ip": ip}]})
    assert status is not None
    balancer.status = status


@pytest.mark.row("S19")
def test_an_unchanged_load_balancer_is_looked_at_each_period_and_ensured_twice_a_day(bench: Bench) -> None:
    bench.serve()
    _hours(bench, 11.5)
    assert bench.cloud.count("ensure") == 0
    assert bench.cloud.count("get") == 22
    assert set(bench.cloud.priorities) == {PRIORITY_SWEEP}
    _hours(bench, 12.8)
    assert bench.cloud.count("ensure") == 2
    assert bench.server.patches == []
    assert bench.recorder.events == []


@pytest.mark.row("S2")
@pytest.mark.parametrize("how", ["deleted", "another address"])
def test_what_a_look_shows_is_repaired_at_the_next_look(bench: Bench, how: str) -> None:
    bench.serve()
    if how == "deleted":
        bench.cloud.balancers.clear()
    else:
        _shown(bench, "198.51.100.77")
    bench.clock.advance(1700.0)
    bench.settle(rounds=1)
    assert bench.cloud.calls == []
    bench.clock.advance(100.0)
    bench.settle()
    assert bench.cloud.methods() == ["get", "ensure"]
    assert bench.recorder.reasons() == (["EnsuringLoadBalancer", "EnsuredLoadBalancer"] if how == "deleted" else [])
    bench.forget()
    bench.clock.advance(1800.0)
    bench.settle()
    assert bench.cloud.methods() == ["get"]


@pytest.mark.row("S2")
def test_what_a_look_does_not_show_is_repaired_when_all_is_ensured(bench: Bench) -> None:
    bench.serve()
    (balancer,) = bench.cloud.balancers.values()
    balancer.nodes = ["spoilt"]
    _hours(bench, 11.9)
    assert balancer.nodes == ["spoilt"]
    _hours(bench, 0.2)
    assert [one.nodes for one in bench.cloud.balancers.values()] == [bench.wanted_nodes()]


@pytest.mark.row("S19")
def test_a_provider_whose_looks_never_agree_with_its_answers_is_not_ensured_at_each_look(bench: Bench) -> None:
    bench.serve()
    bench.cloud.during = lambda method, _: _shown(bench, "198.51.100.77") if method == "get" else None
    _hours(bench, 6.2)
    assert bench.cloud.count("ensure") == 1
    assert bench.cloud.count("get") == 12


@pytest.mark.row("S2", "S19")
def test_a_provider_that_cannot_say_what_there_is_is_ensured_in_its_time(bench: Bench) -> None:
    bench.serve()
    bench.cloud.fail["get"] = NotImplementedByProvider("no such call")
    bench.cloud.balancers.clear()
    _hours(bench, 11.9)
    assert bench.cloud.count("ensure") == 0
    _hours(bench, 0.2)
    assert bench.cloud.count("ensure") == 1
    bench.forget()
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.cloud.fail["update"] = RetryError("busy", 5.0)
    bench.settle(rounds=3)
    assert bench.cloud.methods() == ["update"]


@pytest.mark.row("S2")
def test_a_check_never_stands_in_the_way_of_what_else_is_due(bench: Bench) -> None:
    bench.serve()
    bench.clock.advance(1795.0)
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.see()
    bench.clock.advance(5.0)  # the nodes are gathered and the look is due, both at once
    bench.settle(rounds=2)
    assert bench.cloud.count("update") == 1
    bench.forget()
    bench.server.put(raw_node("n3", "10.0.0.3"))
    bench.cloud.during = lambda method, _: (
        bench.server.faults.append(Fault(ServerError("down", status=500))) if method == "update" else None
    )
    bench.settle(rounds=2)
    assert bench.cloud.count("update") == 1
    bench.clock.advance(1800.0)  # the note was not written yet when the look is due
    bench.settle()
    note = _web(bench)["metadata"]["annotations"]["kubernetes-cloud-provider/applied-load-balancer"]
    assert note.endswith(f"nodes={bench.targets.current().digest}")


def _count_by(bench: Bench, until: Callable[[], bool]) -> list[int]:
    """When the cloud was asked to build, in minutes from now."""
    began, times = bench.clock.monotonic(), list[int]()
    bench.cloud.during = lambda method, _: (
        times.append(round((bench.clock.monotonic() - began) / 60)) if method == "ensure" else None
    )
    while not until():
        bench.settle(rounds=1, step=60.0)
    return times


@pytest.mark.row("S20")
@pytest.mark.parametrize(("looks", "hours"), [(True, 11), (False, 3)])
def test_a_load_balancer_that_never_gets_an_address_is_asked_for_ever_more_seldom(looks: bool, hours: int) -> None:
    bench = Bench("n1") if looks else Bench("n1", drift_period=0.0)
    bench.cloud.unfinished = True
    bench.server.put(raw_service())
    began = bench.clock.monotonic()
    assert _count_by(bench, lambda: bench.clock.monotonic() - began > hours * HOUR) == [0, 1, 3, 7, 15, 31]
    assert bench.cloud.count("get") <= 5 + 22
    assert bench.recorder.reasons().count("EnsuredLoadBalancer") == 1, "and it is told once"


@pytest.mark.row("S20")
def test_one_that_gets_its_address_soon_shows_it_soon(bench: Bench) -> None:
    bench.cloud.unfinished = True
    bench.server.put(raw_service())
    bench.settle()
    bench.cloud.unfinished = False
    bench.clock.advance(60.0)
    bench.settle()
    assert _web(bench)["status"]["loadBalancer"]["ingress"]
    bench.forget()
    _hours(bench, 3)
    assert bench.cloud.count("ensure") == 0


def test_one_that_gets_its_address_late_shows_it_at_the_next_look(bench: Bench) -> None:
    bench.cloud.unfinished = True
    bench.server.put(raw_service())
    _hours(bench, 2)
    bench.cloud.unfinished = False
    _shown(bench, "198.51.100.77")
    _hours(bench, 0.6)
    assert _web(bench)["status"]["loadBalancer"]["ingress"]
