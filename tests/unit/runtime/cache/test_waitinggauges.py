"""Gauges of what waits: counted from the cache at a scrape."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from controllers.runtime.metrics import Metrics, watch_waiting
from tests.support.clock import FakeClock


def made(born: float | None) -> Any:
    stamp = None if born is None else datetime.fromtimestamp(born, UTC)
    return SimpleNamespace(metadata=SimpleNamespace(creation_timestamp=stamp))


@pytest.mark.row("O2")
def test_the_number_and_the_age_of_the_oldest(clock: FakeClock) -> None:
    metrics = Metrics()
    now = clock.time()
    objects = [made(now - 30), made(now - 5), made(None), made(now - 1000)]
    looks = []

    def everything() -> list[Any]:
        looks.append(1)
        return objects

    watch_waiting(metrics, ("a", "A."), ("b", "B."), everything, lambda obj: obj is not objects[-1], clock)
    assert (metrics.value("a"), metrics.value("b")) == (3, 30)
    assert len(looks) == 1, "one look for both gauges"
    objects[:] = [made(now)]
    clock.advance(2.0)
    assert (metrics.value("a"), metrics.value("b")) == (0, 0)


def test_a_clock_that_was_set_back_makes_nobody_younger_than_nothing(clock: FakeClock) -> None:
    metrics = Metrics()
    watch_waiting(metrics, ("a", "A."), ("b", "B."), lambda: [made(clock.time() + 60)], lambda obj: True, clock)
    assert (metrics.value("a"), metrics.value("b")) == (1, 0)
