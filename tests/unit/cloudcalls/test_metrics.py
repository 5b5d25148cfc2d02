"""What is counted, and what health says, of calls that fail one after the other."""

from __future__ import annotations

from typing import Any

import pytest

from cloudprovider import InstanceNotFound, QuotaExceeded
from controllers.cloudcalls.metrics import STRANGER
from tests.unit.cloudcalls.support import Provider, World, batch_of, metadata, nodes, world


def fail(w: World, key: str, error: Exception, method: str = "m") -> None:
    def vendor() -> None:
        raise error

    with pytest.raises(Exception):  # noqa: B017, PT011 - what it is does not matter here
        w.calls.call(method, vendor, key=key)


@pytest.mark.row("M6")
def test_two_gateways_may_share_the_families(w: World) -> None:
    for name in ("a", "b"):
        with world(Provider(name=name)) as other:
            other.calls.call("list_routes", lambda: None, key="k")
            labels = {"provider": name, "method": "list_routes", "outcome": "success"}
            assert other.metrics.value("cloudprovider_api_requests_total", **labels) == 1


def test_a_cloud_that_answers_nothing_is_no_more_healthy(w: World) -> None:
    for number in range(3):
        fail(w, f"node/n{number}", OSError("connection refused"))
    assert w.calls.health().ok, "it has only begun"
    w.clock.advance(5)
    health = w.calls.health()
    assert not health.ok
    assert "every call has failed for 5 s (3 calls), the last one: m: " in health.message
    assert "connection refused" in health.message
    w.calls.call("m", lambda: None, key="k")
    assert w.calls.health().ok


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ("service/a/web", OSError("refused")),  # always the same one: it may be to blame itself
        ("route/10.244.1.0/24", OSError("refused")),
        ("route/10.244.{}.0/24", QuotaExceeded("100 of 100 routes")),
        ("node/{}", InstanceNotFound("gone")),
        (STRANGER + "persistentvolume/{}", OSError("refused")),
    ],
)
@pytest.mark.row("X12")
def test_what_proves_nothing_about_the_cloud(w: World, key: str, error: Exception) -> None:
    for number in range(5):
        fail(w, key.format(number), error)
    w.clock.advance(60)
    assert w.calls.health().ok


@pytest.mark.row("P10")
def test_the_routes_of_one_node_prove_nothing_those_of_more_do(w: World) -> None:
    for key in ("route/10.244.1.0/24", "route/fd00:1::/64") * 3:
        fail(w, key, OSError("refused"))
    w.clock.advance(60)
    assert w.calls.health().ok
    fail(w, "route/10.244.2.0/24", OSError("refused"))
    assert not w.calls.health().ok


def test_an_answer_to_a_batch_counts_if_one_of_its_keys_was_answered() -> None:
    good: dict[str, Any] = {}

    def answer(seq: Any) -> dict[str, Any]:
        return {one.metadata.name: OSError("no") for one in seq} | good

    with world(Provider(instances_batch=batch_of(answer))) as w:
        for ok in (False, True):
            for _ in range(3):
                w.fetch(nodes(3))
            w.clock.advance(6)
            assert w.calls.health().ok is ok
            good["n0"] = metadata("n0")
