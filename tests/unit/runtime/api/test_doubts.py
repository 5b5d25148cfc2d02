"""When connections are doubted, and when they are given up."""

from __future__ import annotations

import pytest
from attrs import define, field

from controllers.runtime.api.doubts import APART, Doubts
from tests.support.clock import FakeClock


@define
class Connections:
    """Notes from when on they are doubted."""

    discarded: list[float] = field(factory=list)
    interrupted: list[float] = field(factory=list)

    def discard_idle(self, since: float) -> None:
        self.discarded.append(since)

    def interrupt_silent(self, since: float) -> None:
        self.interrupted.append(since)


@pytest.mark.row("K4")
def test_idle_ones_go_at_once_and_silent_ones_when_a_newer_connection_works() -> None:
    clock, both = FakeClock(monotonic=100.0), (Connections(), Connections())
    doubts = Doubts(clock)
    for one in both:
        doubts.join(one)
    doubts.answered(opened=90.0)
    doubts.unanswered(began=95.0)
    assert [one.discarded for one in both] == [[95.0], [95.0]]
    doubts.answered(opened=95.0)  # as old as the request that was lost: it says nothing of the others
    assert [one.interrupted for one in both] == [[], []]
    doubts.answered(opened=95.1)
    doubts.answered(opened=95.2)
    assert [one.interrupted for one in both] == [[95.0], [95.0]]


def test_the_latest_request_counts() -> None:
    doubts, one = Doubts(FakeClock(monotonic=100.0)), Connections()
    doubts.join(one)
    for began in (95.0, 97.0, 96.0):
        doubts.unanswered(began)
    doubts.answered(opened=96.5)
    assert one.interrupted == []
    doubts.answered(opened=97.5)
    assert one.interrupted == [97.0]


def test_they_are_given_up_once_a_minute_and_idle_ones_each_time() -> None:
    clock, one = FakeClock(monotonic=100.0), Connections()
    doubts = Doubts(clock)
    doubts.join(one)
    doubts.unanswered(95.0)
    doubts.answered(opened=96.0)
    clock.advance(APART - 1)
    doubts.unanswered(158.0)
    doubts.answered(opened=158.5)
    assert (one.discarded, one.interrupted) == ([95.0, 158.0], [95.0])
    clock.advance(1)
    doubts.unanswered(159.0)
    doubts.answered(opened=159.5)
    assert one.interrupted == [95.0, 159.0]
