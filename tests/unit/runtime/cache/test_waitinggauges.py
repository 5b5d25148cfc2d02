"""Gauges of what waits: counted from the cache at a scrape."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from controllers.runtime.metrics import Metrics, watch_waiting
from tests.support.clock import FakeClock


def made(uid: str, born: float | None) -> Any:
    stamp = None if born is None else datetime.fromtimestamp(born, UTC)
    return SimpleNamespace(metadata=SimpleNamespace(uid=uid, creation_timestamp=stamp), waits=True)


class Gauges:
    """Two gauges over a cache."""

    def __init__(self, clock: FakeClock) -> None:
        self.metrics, self.objects, self.looks = Metrics(), list[Any](), 0
        watch_waiting(self.metrics, ("a", "A."), ("b", "B."), self.everything, lambda obj: obj.waits, clock)

    def everything(self) -> list[Any]:
        self.looks += 1
        return self.objects

    def values(self) -> tuple[float | None, float | None]:
        return self.metrics.value("a"), self.metrics.value("b")


@pytest.mark.row("O2")
def test_the_number_and_how_long_the_first_of_them_has_waited(clock: FakeClock) -> None:
    gauges = Gauges(clock)
    clock.advance(30)
    now = clock.time()
    gauges.objects = [made("1", now - 30.9), made("2", now - 5), made("3", None)]
    assert gauges.values() == (3, 30)
    assert gauges.looks == 1, "one look for both gauges"
    clock.advance(2)
    del gauges.objects[0]
    assert gauges.values() == (2, 7)
    clock.advance(2)
    gauges.objects.clear()
    assert gauges.values() == (0, 0)


@pytest.mark.row("O23")
def test_an_old_object_waits_from_when_it_was_first_seen_to_wait(clock: FakeClock) -> None:
    """A Service that is made a LoadBalancer after a year, a node that is tainted again."""
    gauges, year = Gauges(clock), 365 * 86400
    gauges.objects = [made("old", clock.time() - year), made("other", clock.time() - year)]
    gauges.objects[1].waits = False
    clock.advance(15)
    assert gauges.values() == (1, 0), "nobody knows since when"
    clock.advance(15)
    assert gauges.values() == (1, 15)
    gauges.objects[0].waits, gauges.objects[1].waits = False, True
    clock.advance(15)
    assert gauges.values() == (1, 0)
    clock.advance(600)
    assert gauges.values() == (1, 600)


def test_a_clock_that_was_set_back_makes_nobody_younger_than_nothing(clock: FakeClock) -> None:
    gauges = Gauges(clock)
    gauges.objects = [made("1", clock.time() + 60)]
    assert gauges.values() == (1, 0)
