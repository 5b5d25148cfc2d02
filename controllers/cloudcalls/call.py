"""One call to the provider (stage 5, cloud call): what is to be called, how far it is, and where
its end is waited for.

Capabilities and questions about nodes make a `CloudCall`; the gateway fills in its limits and runs
it; the pool moves its state. The thread that waits for it reads its `Inbox`.
"""

from __future__ import annotations

import enum
import math
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from attrs import define, field, frozen

from controllers.cloudcalls.limits import PRIORITY_NORMAL
from controllers.runtime.clock import Clock, ClockEvent
from controllers.runtime.queue import bounded

R = TypeVar("R")


@frozen
class Flow:
    """What a call is part of: its kind, and its object's namespace, "" for none."""

    kind: str
    namespace: str = ""


class CallState(enum.Enum):
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    """It ended in time; `answer` or `error` is set."""
    OVERDUE = "overdue"
    """Given up, and still running."""
    LATE = "late"
    """Given up, and ended since."""


class Inbox:
    """Where one thread waits for the calls it submitted. Fields are guarded by `condition`."""

    __slots__ = ("condition", "ended", "started", "wake_at")

    def __init__(self) -> None:
        self.condition = threading.Condition(threading.Lock())
        self.ended: deque[CloudCall[Any]] = deque()
        """Calls that ended, late ones too."""
        self.started: deque[CloudCall[Any]] = deque()
        """Calls that began to run, with their deadlines."""
        self.wake_at = -math.inf
        """Until when the thread sleeps, by the clock; -inf while it is awake."""

    def put(self, call: CloudCall[Any]) -> None:
        """A call ended: wake the thread. May be called from any thread."""
        with self.condition:
            self.ended.append(call)
            self.condition.notify()

    def begun(self, call: CloudCall[Any]) -> None:
        """A call runs. The thread is woken only if it would sleep past `look_at`."""
        with self.condition:
            self.started.append(call)
            if call.look_at < self.wake_at:
                self.condition.notify()

    def clear(self) -> None:
        """Forget everything. Calls and inboxes know each other, and the collector of cycles should
        not have to come for every call."""
        self.ended.clear()
        self.started.clear()

    def wait(self, clock: Clock, until: float) -> None:
        """Sleep until something is there or the clock reads `until` (inf: without end). By the
        inbox's thread only."""
        with self.condition:
            if self.ended or self.started:
                return
            left = None if until == math.inf else until - clock.monotonic()
            if left is None or left > 0:
                self.wake_at = until
                with bounded():  # the deadlines of calls end it: no stall of the worker that waits
                    clock.wait(self.condition, left)
                self.wake_at = -math.inf


@define(eq=False)
class CloudCall(Generic[R]):
    """One call; submitted once. `Gateway.submit` fills in what stands below the first line, the
    pool what stands below the second, under its lock."""

    method: str
    """The vendor's method, as in the metrics."""
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    key: str
    """Whom the call is about. While an overdue call for a key runs, no other is made for it. "" for
    a batch: that parks nothing."""
    check: Callable[[Any], R]
    """Turns the raw answer into a valid one, or raises InvalidAnswer. Runs in the vendor thread."""
    mutating: bool = False
    """Whether the call changes the cloud: then it passes the guard first."""
    priority: int = PRIORITY_NORMAL

    about: str = field(init=False, default="")
    """For people, where `key` is empty."""
    counted: bool = field(init=False, default=True)
    """Whether it shows in the metrics and keeps to the rate; accessors that do no work don't."""
    slow: Callable[[str, str], None] | None = field(init=False, default=None)
    """Called once, with the key and words for people, when the call has more time than usual and
    needs it; in the thread that waits in `Gateway.call`."""

    # ----
    inbox: Inbox = field(init=False)
    timeout: float = field(init=False)
    patience: float = field(init=False)
    """Seconds after its start when the inbox's thread wants to look at it."""
    cancelled: ClockEvent = field(init=False)

    # ----
    state: CallState = field(init=False, default=CallState.QUEUED)
    flow: Flow = field(init=False)
    """What it is part of, for whose turn it is; see `turns.py`."""
    added: float = field(init=False, default=0.0)
    """Its place in the order of those who wait."""
    started: float = field(init=False, default=math.nan)
    answer: R | None = field(init=False, default=None)
    error: Exception | None = field(init=False, default=None)
    outcome: str = field(init=False, default="")
    fate: str = field(init=False, default="")
    """Why it was given up."""
    until: Future[None] | None = field(init=False, default=None)
    """Ends when an overdue call does."""

    @property
    def shown(self) -> str:
        """Whom it is about, for people."""
        return self.key or self.about

    @property
    def deadline(self) -> float:
        """By the clock; inf until it runs."""
        return math.inf if self.state is CallState.QUEUED else self.started + self.timeout

    @property
    def look_at(self) -> float:
        """When the inbox's thread wants to look at it, by the clock; inf until it runs."""
        return math.inf if self.state is CallState.QUEUED else self.started + self.patience

    def take_error(self) -> Exception | None:
        """The error, to be taken once: its traceback would keep this call alive."""
        try:
            return self.error
        finally:
            self.error = None
