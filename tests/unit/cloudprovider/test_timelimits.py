"""A client's limits end before the host's deadline; what is too short for a request is refused at
once."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider import Call, CallCancelled, CallDeadlineExceeded, call_scope
from cloudprovider.helpers import time_limit, time_limits

START = 1000.0


def call(left: float) -> Call:
    return Call(deadline=START + left, monotonic=lambda: START)


def test_without_a_deadline_the_most_counts() -> None:
    assert time_limit() == 30.0
    assert time_limit(most=7) == 7
    assert time_limits(most=12) == (5.0, 7.0)


@pytest.mark.parametrize(
    ("left", "given", "limit"),
    [
        (10, {}, 9.0),
        (100, {}, 30.0),
        (10, {"margin": 0.25}, 9.75),
        (10, {"calls": 3}, 3.0),
        (10, {"most": 2}, 2.0),
        (1.5, {}, 0.5),
    ],
)
def test_a_margin_is_left_before_the_deadline(left: float, given: dict[str, Any], limit: float) -> None:
    with call_scope(call(left)):
        assert time_limit(**given) == pytest.approx(limit)


def test_several_requests_share_what_is_left_when_each_is_made() -> None:
    clock = [START]
    with call_scope(Call(deadline=START + 10, monotonic=lambda: clock[0])):
        assert time_limit(calls=3) == pytest.approx(3.0)
        clock[0] += 1.0  # the first one took less than its share
        assert time_limit(calls=2) == pytest.approx(4.0)
        clock[0] += 4.0
        assert time_limit() == pytest.approx(4.0)


@pytest.mark.parametrize(("left", "given"), [(1.4, {}), (0, {}), (2.9, {"calls": 4}), (5, {"least": 4.5})])
def test_too_little_is_refused_before_the_request_begins(left: float, given: dict[str, Any]) -> None:
    with call_scope(call(left)), pytest.raises(CallDeadlineExceeded):
        time_limit(**given)


def test_the_refusal_says_how_much_is_left_and_a_cancelled_call_makes_no_further_request() -> None:
    told = "2.5 s are left of this call: less than 0.5 s for each of 4 requests and a margin of 1 s"
    with call_scope(call(2.5)), pytest.raises(CallDeadlineExceeded, match=f"^{told}$"):
        time_limits(calls=4)
    stop = threading.Event()
    stop.set()
    with call_scope(Call(cancelled=stop)), pytest.raises(CallCancelled):
        time_limit()


@pytest.mark.parametrize("given", [{"calls": 0}, {"least": 0}, {"least": 5, "most": 4}, {"margin": -1}, {"connect": 0}])
def test_numbers_that_make_no_sense(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"makes no sense|must be a positive"):
        time_limits(**given)


@given(st.floats(0, 1000), st.integers(1, 5), st.floats(0.01, 60))
def test_connecting_and_reading_together_end_before_the_deadline(left: float, calls: int, connect: float) -> None:
    with call_scope(call(left)):
        try:
            first, second = time_limits(calls=calls, connect=connect)
        except CallDeadlineExceeded:
            assert left < 1.0 + calls * 0.5 + 1e-9
            return
    assert 0 < first <= connect
    assert second > 0
    assert calls * (first + second) <= left - 1.0 + 1e-9


def test_a_cloud_that_never_answers_gives_the_thread_back_before_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, urllib3.PoolManager() as http, call_scope(Call()) as _:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(urllib3.exceptions.TimeoutError):
            http.request("GET", url, timeout=urllib3.Timeout(time_limit(most=0.1, least=0.1)), retries=False)
