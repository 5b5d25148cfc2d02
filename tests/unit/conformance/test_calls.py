"""Calls with a deadline, as conformance makes them."""

from __future__ import annotations

import threading
import time

import pytest

from cloudprovider.call import current_call
from cloudprovider.testing.conformance.calls import limited


def test_a_call_that_is_late_once_is_asked_again_with_three_times_its_time() -> None:
    """A busy machine fails nobody."""
    over, calls = threading.Event(), list[float | None]()

    def call() -> str:
        calls.append(current_call().deadline)
        if len(calls) == 1:
            over.wait(60)
        return "answer"

    began = time.monotonic()
    try:
        assert limited(call, deadline=0.2, grace=0.1).get() == "answer"
    finally:
        over.set()
    first, second = calls
    assert first is not None
    assert second is not None
    assert first >= began + 0.2
    assert second >= first + 0.1 + 0.6


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_call_that_does_not_end_fails(cancelled: bool) -> None:
    over = threading.Event()
    deadline = 0.0 if cancelled else 0.05
    with pytest.raises(AssertionError, match=r"the call has not ended .* after its deadline"):
        limited(lambda: over.wait(60), deadline=deadline, grace=0.05, cancelled=cancelled)
    over.set()
