"""Whether the cloud answers at all (stage 5, cloud call), and which keys come back when it does.

An outage is a run of failed calls without one answer between; throttling, "not found" and one
Service that the cloud refuses are none. While it lasts, one key at a time comes back soon as a
scout, and of the others only a few try again each second. The first answer brings the waiting keys
back, a few at first and two more for every further answer. Without this, keys would wait for up to
a minute after the cloud's return."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

from attrs import frozen

from cloudprovider import CloudProviderError
from controllers.cloudcalls.errors import OVERDUE, CloudCallError, outcome_of
from controllers.runtime.clock import Clock
from controllers.runtime.queue import Parked

STRANGER: Final = "admission/"
"""Begins the key of a call about an object that a webhook was asked about. It is in no cluster, and
a client of the webhook port may invent as many as it likes: such a call proves nothing, whatever
its outcome."""

FAILED: Final = frozenset(("error", "aborted", OVERDUE))
"""Outcomes after which it is open whether the cloud answers at all."""

_RUN = 3  # failed calls in a row that make an outage
_SCOUT = 5.0  # seconds between two scouts, at first
_SCOUT_SHARE = 1 / 12  # later so much of the outage's age
_SCOUT_LONGEST = 60.0
_TRIES = 10.0  # keys per second that try again during an outage, all together
_LONGEST = 60.0  # seconds that one of them waits for that at most
_FIRST = 8  # keys that the first answer brings back
_EACH = 2  # and each further one
_AFTER = 30.0  # seconds after an outage in which a failure may still be one of it
_AGAIN = (1.0, 2.0, 4.0)  # seconds after which a key that fails then comes back


@frozen
class Trouble:
    """A run of failed calls that still goes on."""

    since: float
    """By the clock's `monotonic`."""
    calls: int
    last: str
    """How the last one failed."""


class Outage:
    """See the module. Thread-safe. Workers that ask the cloud have it as `OutageListener`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._calls = 0  # failed ones in a row
        self._since = 0.0
        self._last = ""
        self._about: set[str] = set()
        self._scout_due = 0.0
        self._waiting: OrderedDict[Hashable, Callable[[], object]] = OrderedDict()
        self._returning: OrderedDict[Hashable, Callable[[], object]] = OrderedDict()
        self._back: set[Hashable] = set()  # brought back, and not reported since
        self._ended = -math.inf  # the last outage
        self._late: dict[Hashable, int] = {}  # how often a key failed after it

    # ---- by the gateway

    def call_answered(self, items: int = 1) -> None:
        """The cloud answered a call, with an answer about so many keys."""
        if not self._calls and not self._returning:
            return
        now = self._clock.monotonic()
        with self._lock:
            number = _EACH * items
            if self._is_on():
                number = max(number, _FIRST)
                self._returning.update(self._waiting)
                self._back.clear()
                if now >= self._ended + _AFTER:
                    self._late.clear()
                self._ended = now
            # Without an outage they have their own back-off; those that are forgotten meanwhile
            # must not pile up here.
            self._waiting.clear()
            self._calls = 0
            self._about.clear()
            back = self._next(number)
        for bring_back in back:
            bring_back()

    def call_failed(self, key: str, text: str) -> None:
        """A call for this key ("" for many) failed in a way that says nothing about the key."""
        now = self._clock.monotonic()
        with self._lock:
            if not self._calls:
                self._since = now
            self._calls += 1
            self._last = text
            if len(self._about) < _RUN:
                self._about.add(key)

    def trouble(self) -> Trouble | None:
        """The outage, while there is one."""
        with self._lock:
            return Trouble(self._since, self._calls, self._last) if self._is_on() else None

    # ---- by the requeuers

    def least_wait(self, error: Exception) -> float:
        """Seconds that the work which failed with this waits at least: longer, the more waits."""
        if not self._calls or not _is_unanswered(error):
            return 0.0
        with self._lock:
            return min(len(self._waiting) / _TRIES, _LONGEST) if self._is_on() else 0.0

    def failed(self, token: Hashable, error: Exception, bring_back: Callable[[], object]) -> float | None:
        """The work known as `token` failed; returns the seconds until it is a scout."""
        unanswered = _is_unanswered(error)
        now = self._clock.monotonic()
        pause: float | None = None
        back: list[Callable[[], object]] = []
        with self._lock:
            self._returning.pop(token, None)
            self._waiting.pop(token, None)
            if unanswered:
                self._waiting[token] = bring_back
            is_on = self._is_on()
            if not is_on:
                back = self._reported(token)
            if unanswered and is_on:
                if now >= self._scout_due:
                    pause = min(max(_SCOUT, (now - self._since) * _SCOUT_SHARE), _SCOUT_LONGEST)
                    self._scout_due = now + pause
            # A failure soon after an outage may still be one of it: the process was busy and its
            # last failed calls are settled late, the cloud stumbles as it returns, or a cache is
            # behind. The back-off that grew meanwhile would make such a key wait up to a minute.
            elif now < self._ended + _AFTER and (times := self._late.get(token, 0)) < len(_AGAIN):
                self._late[token] = times + 1
                pause = _AGAIN[times]
        for other in back:
            other()
        return pause

    def settled(self, token: Hashable) -> None:
        """The work waits no longer for the cloud."""
        if not any(token in known for known in (self._waiting, self._returning, self._back, self._late)):
            return
        with self._lock:
            self._waiting.pop(token, None)
            self._returning.pop(token, None)
            self._late.pop(token, None)
            back = self._reported(token)
        for other in back:
            other()

    # ---- inside, with the lock held

    def _is_on(self) -> bool:
        if self._calls < _RUN:
            return False
        # One Service that the cloud refuses, where nothing else happens, proves nothing.
        return len(self._about) > 1 or not any(key.startswith("service/") for key in self._about)

    def _next(self, number: int) -> list[Callable[[], object]]:
        """Those that come back now."""
        back: list[Callable[[], object]] = []
        while self._returning and len(back) < number:
            token, bring_back = self._returning.popitem(last=False)
            self._back.add(token)
            back.append(bring_back)
        return back

    def _reported(self, token: Hashable) -> list[Callable[[], object]]:
        """One that was brought back has run: the next one takes its place, even if it had nothing
        to ask the cloud."""
        if token not in self._back:
            return []
        self._back.discard(token)
        return self._next(1)


def _is_unanswered(error: Exception) -> bool:
    return isinstance(error, CloudProviderError | CloudCallError | Parked) and outcome_of(error) in FAILED
