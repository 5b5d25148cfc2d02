"""Which requests a fault strikes, and how often. What the faults do is tested over HTTP."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider.testing.apiserver.faults import Action, Fault, Faults

METHODS, PATHS = st.sampled_from(["GET", "PATCH"]), st.sampled_from(["/api/v1/nodes", "/api/v1/nodes/a", "/healthz"])


def test_a_rule_strikes_as_often_as_it_says() -> None:
    faults = Faults()
    rule = faults.status(500, method="PATCH", count=2)
    assert [bool(faults.strike("PATCH", "/x", False)) for _ in range(4)] == [True, True, False, False]
    assert (rule.hits, rule.count) == (2, 0)
    assert faults.strike("GET", "/x", False) == []


@given(st.lists(st.tuples(METHODS, PATHS, st.booleans()), max_size=10), st.sampled_from([None, "GET", "P"]),
       st.sampled_from([None, "nodes$", "/a"]), st.sampled_from([None, True, False]))  # fmt: skip
def test_matching(
    requests: list[tuple[str, str, bool]], method: str | None, path: str | None, watches: bool | None
) -> None:
    faults = Faults()
    rule = faults.add(Fault(Action.RESET, method, path, None, watches))
    for asked, target, watching in requests:
        expected = (
            (method is None or method in asked)
            and (path is None or re.search(path, target) is not None)
            and watches in (None, watching)
        )
        assert (faults.strike(asked, target, watching) == [rule]) is expected
    faults.remove(rule)
    faults.remove(rule)
    assert all(faults.strike(*request) == [] for request in requests)


def test_latencies_come_with_one_other_fault_at_most() -> None:
    faults = Faults()
    slow, slower = faults.latency(1), faults.latency(2)
    first, second = faults.status(500, count=1), faults.reset()
    assert faults.strike("GET", "/", False) == [slow, slower, first]
    assert faults.strike("GET", "/", False) == [slow, slower, second]
    assert second.hits == 1
    faults.clear()
    assert faults.strike("GET", "/", False) == []


@pytest.mark.parametrize(
    ("code", "reason"), [(429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable"), (418, "")]
)
def test_injected_statuses_have_the_usual_reasons(code: int, reason: str) -> None:
    assert Faults().status(code).reason == reason


def test_open_watches_are_broken_by_path() -> None:
    faults = Faults()
    nodes: list[object] = []
    services: list[object] = []
    with faults.watching("/api/v1/services?watch=1", services.append):
        with faults.watching("/api/v1/nodes?watch=1", nodes.append):
            assert faults.open_watches() == 2
            assert faults.break_watches(Action.TRUNCATE, path="nodes") == 1
        assert [signal.action for signal in nodes if isinstance(signal, Fault)] == [Action.TRUNCATE]
        assert services == []
        assert faults.open_watches("nodes") == 0
