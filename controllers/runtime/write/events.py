"""Events for people (stage 6): reported by any controller, written to the cluster beside its work.

`EventRecorder.event` takes microseconds and never fails for the cluster's sake. A few writer
threads count, combine and write; what is about one object is written by one thread, in order. The
queue is bounded, each write is tried a bounded number of times, and what is dropped is counted by
reason and logged. Follows client-go's tools/record (the core/v1 form, as Go's controllers)."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any, Final

from controllers.runtime.api import RestClient
from controllers.runtime.cleaning import one_line
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics
from controllers.runtime.write.correlation import MAX_MESSAGE, Correlator, EventMemory, Happening, Reference, reference
from controllers.runtime.write.eventwriter import Counts, Lane

__all__ = ["EventRecorder", "Reference", "reference"]

log = logging.getLogger(__name__)

WRITERS: Final = 4
CAPACITY: Final = 16384
"""Events waiting, over all writers."""


class EventRecorder:
    """Reports Events under one component's name; thread-safe. Threads start with the first.

    `stop` writes what is left; until then nothing has to be called. Metrics:
    event_recorder_writes_total{component, operation}, event_recorder_merged_total{component},
    event_recorder_dropped_total{component,reason}. Recorders with the same metrics share one memory
    (`correlation.py`)."""

    def __init__(
        self,
        rest: RestClient,
        component: str,
        *,
        clock: Clock = SYSTEM_CLOCK,
        metrics: Metrics | None = None,
        writers: int = WRITERS,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`chance` gives numbers in [0, 1)."""
        metrics = metrics or Metrics()
        counts = Counts(metrics, component, clock)
        memory = EventMemory.of(metrics)
        self._clock = clock
        self._counts = counts
        self._lanes = tuple(
            Lane(
                rest,
                component,
                counts,
                capacity=CAPACITY // writers,
                correlator=Correlator(memory),
                chance=chance,
                name=f"{component}-events-{number}",
            )
            for number in range(writers)
        )

    def event(self, obj: Any, type: str, reason: str, message: str) -> None:
        """Report that something happened to an object: a model, raw JSON or a Reference.

        `type` is "Normal" or "Warning", `reason` one CamelCase word for machines, `message` a
        sentence for people, which is cleaned (`cleaning.py`: tenants read Events) and cut at 1,024
        characters. Returns at once; when the queue is full, the Event is dropped and counted.
        Raises ValueError for another type, an empty reason, or an object without kind or name.
        """
        if type not in ("Normal", "Warning") or not reason or len(reason) > 128:
            raise ValueError(f"an Event's type is Normal or Warning and its reason a word: {type!r}, {reason!r}")
        message = one_line(message, MAX_MESSAGE)
        ref = reference(obj)
        now = self._clock.time()
        happening = Happening(ref, type, reason, message, now, now, at=self._clock.monotonic())
        log.debug("Event %s %s: %s %s/%s: %s", type, reason, ref.kind, ref.namespace, ref.name, message)
        lane = self._lanes[hash((ref.kind, ref.namespace, ref.name)) % len(self._lanes)]
        refusal = lane.put(happening)
        if refusal:
            self._counts.drop(refusal, f"{reason} about {ref.kind} {ref.namespace}/{ref.name}")

    def flush(self, timeout: float) -> bool:
        """Wait until everything reported so far is written or dropped; False when `timeout` seconds
        were too short."""
        deadline = self._clock.monotonic() + timeout
        return all(lane.wait_idle(deadline - self._clock.monotonic()) for lane in self._lanes)

    def stop(self, timeout: float) -> bool:
        """Take no more Events, write what is left within `timeout` seconds, drop the rest, end the
        threads.

        True when nothing was left. May be called twice. A thread inside a request that does not
        return is left behind."""
        for lane in self._lanes:
            lane.close()
        flushed = self.flush(timeout)
        left = sum(lane.end() for lane in self._lanes)
        if left:
            self._counts.drop("stopped", "the last ones", left)
        return flushed and not left
