"""Load balancers that were deleted soon after a take-over are looked at once more: the manager
before may have been stopped in the middle of a call, which is then carried out late."""

from __future__ import annotations

import pytest

from cloudprovider import CloudProviderError, ImplementedElsewhere, LoadBalancerKept, NotImplementedByProvider
from controllers.service.orphans import AFTER, FIRST
from tests.unit.service.bench import Bench
from tests.unit.service.objects import raw_service, service

KEY = "default/web"


@pytest.fixture
def bench(served: Bench) -> Bench:
    served.orphans.begin()
    return served


def _delete(bench: Bench) -> None:
    bench.server.delete(KEY)
    bench.settle(rounds=3)
    assert bench.cloud.methods() == ["delete"]
    bench.forget()


def _late(bench: Bench, uid: str = "uid-web") -> None:
    """The manager before asked for the load balancer, and the cloud builds it now."""
    bench.cloud.ensure("prod", service(uid=uid), [])
    bench.forget()


def _later(bench: Bench, seconds: float = AFTER) -> list[str]:
    bench.clock.advance(seconds)
    bench.settle(rounds=1)
    return bench.cloud.methods()


def test_one_that_is_there_again_is_deleted_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    _delete(bench)
    _late(bench)
    assert _later(bench) == ["get", "delete"]
    assert bench.cloud.balancers == {}
    assert "the load balancer of Service default/web, which is deleted, is there again" in caplog.text
    assert _later(bench, 1000.0) == ["get", "delete"]  # once


def test_one_that_is_gone_is_left_alone_and_a_plan_does_not_wait_for_it(bench: Bench) -> None:
    _delete(bench)
    assert bench.again.unfinished() == []
    assert _later(bench) == ["get"]
    assert _later(bench, 1000.0) == ["get"]


@pytest.mark.row("S31")
def test_one_that_is_kept_is_not_looked_at(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.cloud.fail["delete"] = LoadBalancerKept("lb-1 has deletion protection")
    _delete(bench)
    assert KEY not in bench.server.services, "the finalizer is off"
    assert _later(bench) == []
    assert "there again" not in caplog.text


@pytest.mark.row("S31")
def test_one_that_is_kept_in_the_meantime_is_left_alone(bench: Bench) -> None:
    _delete(bench)
    _late(bench)
    bench.cloud.fail["delete"] = LoadBalancerKept("lb-1 has deletion protection")
    assert _later(bench) == ["get", "delete"]
    assert _later(bench, 1000.0) == ["get", "delete"]


def test_a_new_service_of_its_name_keeps_its_own(bench: Bench) -> None:
    _delete(bench)
    _late(bench)
    bench.server.put(raw_service(uid="uid-new"))
    bench.settle()
    bench.forget()
    assert _later(bench) == ["get", "delete"]
    assert list(bench.cloud.balancers) == ["uid-new"]


def test_nothing_is_asked_where_a_new_service_would_have_the_same_load_balancer(bench: Bench) -> None:
    bench.cloud.named_by_key = True
    _delete(bench)
    _late(bench)
    assert _later(bench) == []
    assert list(bench.cloud.balancers) == ["uid-web"]


def test_nothing_is_asked_while_the_api_server_has_the_service(bench: Bench) -> None:
    bench.server.edit(KEY, lambda raw: raw["spec"].update(type="ClusterIP"))
    bench.settle(rounds=3)
    assert bench.cloud.methods() == ["delete"]
    bench.forget()
    _late(bench)
    assert _later(bench) == []


@pytest.mark.parametrize(
    ("answer", "called"), [(NotImplementedByProvider(), ["get", "delete"]), (ImplementedElsewhere(), ["get"])]
)
def test_a_cloud_that_cannot_show_it_is_told_again_unless_it_is_anothers(
    bench: Bench, answer: Exception, called: list[str]
) -> None:
    _delete(bench)
    _late(bench)
    bench.cloud.fail["get"] = answer
    assert _later(bench) == called


@pytest.mark.parametrize("method", ["get", "delete"])
def test_it_is_tried_again_after_a_failure(bench: Bench, method: str) -> None:
    _delete(bench)
    _late(bench)
    bench.cloud.fail[method] = CloudProviderError("down")
    _later(bench)
    _late(bench)
    bench.cloud.fail.clear()
    assert _later(bench, 60.0) == ["get", "delete"]
    assert bench.cloud.balancers == {}


def test_what_is_deleted_later_is_not_looked_at_again(bench: Bench) -> None:
    bench.clock.advance(FIRST)
    _delete(bench)
    _late(bench)
    assert _later(bench) == []
