"""Stage 2, seen from outside: how many objects wait to be served, and for how long the oldest has waited.

Computed from the cache when /metrics is read, so that nothing has to be kept up to date between. Histograms count who
was served; what never is, shows here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from controllers.runtime.clock import Clock
from controllers.runtime.metrics import Metrics

__all__ = ["watch_waiting"]

_FRESH = 1.0  # seconds for which one look serves: the two gauges are read at one scrape


def watch_waiting(
    metrics: Metrics,
    count: tuple[str, str],
    oldest: tuple[str, str],
    objects: Callable[[], Iterable[Any]],
    waits: Callable[[Any], bool],
    clock: Clock,
) -> None:
    """Add two gauges, each (name, documentation): of the objects that wait, and of the oldest's age in seconds."""
    lock = threading.Lock()
    seen_at, seen = float("-inf"), (0, 0.0)

    def look() -> tuple[int, float]:
        nonlocal seen_at, seen
        with lock:
            now = clock.monotonic()
            if now - seen_at >= _FRESH:
                created = [obj.metadata.creation_timestamp for obj in objects() if waits(obj)]
                births = [stamp.timestamp() for stamp in created if stamp is not None]
                seen = len(created), max(0.0, clock.time() - min(births)) if births else 0.0
                seen_at = now
            return seen

    metrics.gauge(*count).set_function(lambda: look()[0])
    metrics.gauge(*oldest).set_function(lambda: look()[1])
