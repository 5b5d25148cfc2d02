"""What goes through the vendor pool (stage 5, cloud call): the job, its cancellation, and the inbox that hears of it.

The gateway makes a job for each call; the pool runs it and moves its state; the thread that waits learns of it by its
inbox.
"""

from __future__ import annotations

import enum
import math
import threading
from collections import deque
from concurrent.futures import Future
from typing import Any

from attrs import frozen

from controllers.runtime.clock import Clock, ClockEvent
from controllers.runtime.queue import bounded

__all__ = ["Cancellation", "Flow", "Inbox", "Job", "JobState"]


@frozen
class Flow:
    """What a call is part of: its kind, and the namespace whose object it is about, "" for the cluster's."""

    kind: str
    namespace: str = ""


class JobState(enum.Enum):
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    """It ended in time; `answer` or `error` is set."""
    OVERDUE = "overdue"
    """Given up, and still running."""
    LATE = "late"
    """Given up, and ended since."""


class Cancellation:
    """The stop signal of one call: a flag that turns into an event only if the vendor waits for it. Thread-safe."""

    __slots__ = ("_clock", "_event", "_lock", "_set")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._set = False
        self._event: ClockEvent | None = None

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        with self._lock:
            self._set = True
            event = self._event
        if event is not None:
            event.set()

    def wait(self, timeout: float | None = None) -> bool:
        with self._lock:
            if self._set:
                return True
            if self._event is None:
                self._event = ClockEvent(self._clock)
            event = self._event
        return event.wait(timeout)


class Inbox:
    """Where one thread waits for the jobs it submitted; see `VendorPool.submit`. Fields are guarded by `condition`."""

    __slots__ = ("condition", "ended", "started", "wake_at")

    def __init__(self) -> None:
        self.condition = threading.Condition(threading.Lock())
        self.ended: deque[Any] = deque()
        """Jobs that ended, late ones too; and whatever else this thread is to be told."""
        self.started: deque[Job] = deque()
        """Jobs that began to run, with their deadlines."""
        self.wake_at = -math.inf
        """Until when the thread sleeps, by the clock; -inf while it is awake."""

    def put(self, item: object) -> None:
        """Tell the thread something. May be called from any thread."""
        with self.condition:
            self.ended.append(item)
            self.condition.notify()

    def clear(self) -> None:
        """Forget everything. Jobs and inboxes know each other, and the collector of cycles should not have to come for
        every call."""
        self.ended.clear()
        self.started.clear()

    def wait(self, clock: Clock, until: float) -> None:
        """Sleep until something is there or the clock reads `until` (inf: without end). By the inbox's thread only."""
        with self.condition:
            if self.ended or self.started:
                return
            left = None if until == math.inf else until - clock.monotonic()
            if left is None or left > 0:
                self.wake_at = until
                with bounded():  # the gateway's deadlines end it: no stall of the worker that waits
                    clock.wait(self.condition, left)
                self.wake_at = -math.inf


class Job:
    """One call. Filled by the gateway; the fields below the line belong to the pool, under its lock."""

    __slots__ = (
        "answer",
        "cancelled",
        "deadline",
        "error",
        "fate",
        "flow",
        "inbox",
        "key",
        "limited",
        "method",
        "outcome",
        "patience",
        "priority",
        "started",
        "state",
        "timeout",
        "until",
        "work",
    )

    def __init__(
        self,
        work: Any,
        method: str,
        key: str,
        inbox: Inbox,
        *,
        timeout: float,
        priority: int,
        clock: Clock,
        flow: Flow,
        patience: float = math.inf,
        limited: bool = True,
    ) -> None:
        self.work = work
        self.method = method
        self.key = key
        """What is parked while the job is overdue; "" parks nothing."""
        self.inbox = inbox
        self.timeout = timeout
        self.priority = priority
        self.flow = flow
        """What it is part of, for whose turn it is; see `turns.py`."""
        self.patience = min(patience, timeout)
        """Seconds after its start when the inbox's thread wants to look at it."""
        self.limited = limited
        """Whether the limiter is asked; not for what never reaches the cloud."""
        self.cancelled = Cancellation(clock)
        # ----
        self.state = JobState.QUEUED
        self.started = math.nan
        self.deadline = math.inf
        self.answer: Any = None
        self.error: Exception | None = None
        self.outcome = ""
        self.fate = ""
        """Why it was given up."""
        self.until: Future[None] | None = None

    def take_error(self) -> Exception | None:
        """The error, to be taken once: its traceback leads back to this job, and would keep it alive."""
        try:
            return self.error
        finally:
            self.error = None
