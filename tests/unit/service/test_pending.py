"""A cloud that takes its time, or has no room: what the Service's owner is told, how often the
cloud is asked, and since when it has been asked."""

from __future__ import annotations

import logging

import pytest

from cloudprovider import Pending, QuotaExceeded, RetryError
from tests.unit.service.bench import Bench
from tests.unit.service.objects import raw_node

pytestmark = [pytest.mark.usefixtures("served"), pytest.mark.row("P10")]
KEY = "default/web"


@pytest.fixture(autouse=True)
def quiet(served: Bench, bench: Bench) -> None:
    """What the building before the test came to is not looked at."""
    bench.recorder.clear()
    bench.cloud.began.clear()
    bench.cloud.calls.clear()


def _move(bench: Bench, ip: str) -> None:
    bench.server.edit(KEY, lambda raw: raw["spec"].update(loadBalancerIP=ip))


def test_a_build_of_minutes_is_one_ensuring_and_its_words(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    began = bench.clock.monotonic()
    bench.cloud.fail["ensure"] = Pending("the load balancer is being built", 5.0)
    _move(bench, "192.0.2.77")
    bench.settle(rounds=120)
    bench.cloud.fail["ensure"] = Pending("its listeners are being built", 5.0)
    bench.settle(rounds=120)
    bench.cloud.fail.clear()
    tries = bench.cloud.count("ensure")
    bench.settle(rounds=60)
    assert bench.recorder.reasons("web").count("EnsuringLoadBalancer") == 1
    told = [one for one in bench.recorder.events if one.reason == "LoadBalancerPending"]
    assert [(one.type, one.message.partition(": ")[2]) for one in told] == [
        ("Normal", "the load balancer is being built"),
        ("Normal", "its listeners are being built"),
    ]
    assert bench.recorder.reasons("web", type="Warning") == []
    assert "EnsuredLoadBalancer" in bench.recorder.reasons("web")
    assert "failed" not in caplog.text
    assert 10 < tries < 40, "few questions for four minutes"
    assert {round(since - began) for since in bench.cloud.began} == {0}, "it has taken since the first try"


def test_a_build_without_end_is_a_warning(bench: Bench) -> None:
    bench.cloud.fail["ensure"] = Pending("the load balancer is being built", 5.0)
    _move(bench, "192.0.2.77")
    bench.settle(rounds=200, step=10.0)
    told = [one for one in bench.recorder.events if one.type == "Warning"]
    assert {one.reason for one in told} == {"LoadBalancerPending"}
    assert len(told) == 2, "one each 15 minutes"
    assert told[0].message == (
        "The cloud is at work on the load balancer, for more than 15 minutes: the load balancer is being built"
    )


def test_what_waits_for_a_node_is_no_work_of_the_cloud(bench: Bench) -> None:
    """`RetryError` says "ask again", and only `Pending` that the cloud has begun something."""
    bench.cloud.fail["ensure"] = RetryError("it is built as soon as there is a node to send traffic to", 30.0)
    _move(bench, "192.0.2.77")
    bench.settle(rounds=100, step=10.0)
    told = [(one.type, one.message) for one in bench.recorder.events if one.reason == "LoadBalancerPending"]
    assert told == [
        ("Normal", "The load balancer has to wait: it is built as soon as there is a node to send traffic to"),
        (
            "Warning",
            "The load balancer has had to wait for more than 15 minutes: it is built as soon as there is a node to "
            "send traffic to",
        ),
    ]


def test_another_change_begins_anew_and_so_does_what_was_done(bench: Bench) -> None:
    bench.cloud.fail["ensure"] = Pending("being built", 5.0)
    _move(bench, "192.0.2.77")
    bench.settle(rounds=20)
    _move(bench, "192.0.2.78")
    changed = bench.clock.monotonic()
    bench.settle(rounds=20)
    bench.cloud.fail.clear()
    bench.settle(rounds=20)
    assert bench.recorder.reasons("web").count("EnsuringLoadBalancer") == 2
    assert bench.cloud.began[-1] == pytest.approx(changed, abs=2)
    _move(bench, "192.0.2.77")
    bench.settle(rounds=20)
    assert bench.recorder.reasons("web").count("EnsuringLoadBalancer") == 3
    assert bench.cloud.began[-1] == pytest.approx(bench.clock.monotonic() - 20, abs=2)


def test_targets_and_deletions_that_take_long_are_no_failures(bench: Bench) -> None:
    bench.cloud.fail["update"] = Pending("targets are being registered", 5.0)
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.settle(rounds=30)
    assert bench.metrics.value("service_controller_nodesync_error_total") == 0
    assert bench.cloud.count("ensure") == 0
    bench.cloud.fail["delete"] = Pending("being deleted", 5.0)
    bench.server.delete(KEY)
    bench.settle(rounds=60)
    reasons = bench.recorder.reasons("web")
    assert reasons.count("DeletingLoadBalancer") == 1
    assert reasons.count("LoadBalancerPending") == 2
    assert bench.recorder.reasons("web", type="Warning") == []


def test_a_quota_is_told_and_asked_about_again_after_ten_minutes(bench: Bench) -> None:
    bench.cloud.fail["ensure"] = QuotaExceeded("20 of 20 load balancers")
    _move(bench, "192.0.2.77")
    bench.settle(rounds=60, step=10.0)
    assert bench.cloud.count("ensure") == 1
    [message] = bench.recorder.messages("Warning")
    assert message.endswith("20 of 20 load balancers")
    bench.settle(rounds=10, step=10.0)
    assert bench.cloud.count("ensure") == 2
