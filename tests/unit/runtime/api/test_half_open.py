"""When connections become suspect, and when they are given up."""

from __future__ import annotations

import pytest

from controllers.runtime.api.transport import INTERRUPT_INTERVAL, HalfOpenDetection, Transport
from tests.support.clock import FakeClock


class Connections(Transport):
    """Notes from when on they are suspect."""

    def __init__(self) -> None:
        self.discarded: list[float] = []
        self.interrupted: list[float] = []

    def discard_idle(self, since: float) -> None:
        self.discarded.append(since)

    def interrupt_silent(self, since: float) -> None:
        self.interrupted.append(since)


@pytest.mark.row("K4")
def test_idle_ones_go_at_once_and_silent_ones_when_a_newer_connection_works() -> None:
    clock, both = FakeClock(monotonic=100.0), (Connections(), Connections())
    detection = HalfOpenDetection(clock)
    for one in both:
        detection.add(one)
    detection.answered(opened=90.0)
    detection.timed_out(95.0)
    assert [one.discarded for one in both] == [[95.0], [95.0]]
    detection.answered(opened=95.0)  # as old as the request that was lost: it says nothing of the others
    assert [one.interrupted for one in both] == [[], []]
    detection.answered(opened=95.1)
    detection.answered(opened=95.2)
    assert [one.interrupted for one in both] == [[95.0], [95.0]]


def test_the_latest_request_counts() -> None:
    detection, one = HalfOpenDetection(FakeClock(monotonic=100.0)), Connections()
    detection.add(one)
    for began in (95.0, 97.0, 96.0):
        detection.timed_out(began)
    detection.answered(opened=96.5)
    assert one.interrupted == []
    detection.answered(opened=97.5)
    assert one.interrupted == [97.0]


def test_they_are_given_up_once_a_minute_and_idle_ones_each_time() -> None:
    clock, one = FakeClock(monotonic=100.0), Connections()
    detection = HalfOpenDetection(clock)
    detection.add(one)
    detection.timed_out(95.0)
    detection.answered(opened=96.0)
    clock.advance(INTERRUPT_INTERVAL - 1)
    detection.timed_out(158.0)
    detection.answered(opened=158.5)
    assert (one.discarded, one.interrupted) == ([95.0, 158.0], [95.0])
    clock.advance(1)
    detection.timed_out(159.0)
    detection.answered(opened=159.5)
    assert one.interrupted == [95.0, 159.0]
