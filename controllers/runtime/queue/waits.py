"""Stage 4: the keys that wait for the cloud, as a RetryError asked for: since when, when each is
asked about again, and when its words are told. Nothing failed.

`outcomes.py` calls it. A build of an hour costs few questions, few lines and few Events, and one
that never ends shows."""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeAlias, TypeVar

from attrs import define

from cloudprovider.errors import RetryError
from controllers.runtime.clock import Clock
from controllers.runtime.queue.failurelog import WAITING, FailureLog

K = TypeVar("K", bound=Hashable)

LONG: Final = 900.0
"""Seconds after which a wait is a warning, each time that so many have passed."""
_SHARE: Final = 10
_LONGEST_PAUSE: Final = 60.0
_NUMBER: Final = re.compile(r"[\w.:-]*\d[\w.:-]*")

OnWait: TypeAlias = Callable[[K, RetryError, bool], None]
"""Tells the owner of a key what the cloud says; True: it has waited for long."""


def pending(what: str, error: RetryError, long: bool) -> tuple[str, str]:
    """Type and message of the Event about it; `what` is what the cloud is at work on."""
    since = f", for more than {LONG / 60:.0f} minutes" if long else ""
    return "Warning" if long else "Normal", f"The cloud is at work on {what}{since}: {error}"


@define
class _Wait:
    since: float
    words: str = ""
    told: float = -math.inf


class Waits(Generic[K]):
    """Keys of one queue. Thread-safe, as long as each key is one thread's at a time."""

    def __init__(self, name: str, logger: logging.Logger, *, clock: Clock, noun: str, tell: OnWait[K] | None) -> None:
        self._log: FailureLog[K] = FailureLog(name, logger, clock=clock, noun=noun, words=WAITING)
        self._clock = clock
        self._tell = tell
        self._lock = threading.Lock()
        self._waits: dict[K, _Wait] = {}

    def pause(self, key: K) -> float:
        """The seconds until the key is asked about again, at least: a tenth of those that it has
        waited."""
        with self._lock:
            wait = self._waits.setdefault(key, _Wait(self._clock.monotonic()))
            return min((self._clock.monotonic() - wait.since) / _SHARE, _LONGEST_PAUSE)

    def told(self, key: K, next_step: str, error: RetryError, text: str) -> None:
        """Log it, and tell the owner where the words changed, or after long. Once for each
        `pause`."""
        now = self._clock.monotonic()
        words = _NUMBER.sub("#", text)  # a percentage, a time, a request's ID: only the words count
        with self._lock:
            wait = self._waits[key]
            long = now - wait.since >= LONG
            due = wait.words != words or now - wait.told >= LONG
            if due:
                wait.words, wait.told = words, now
        self._log.failed(key, next_step, error, text, level=logging.WARNING if long else logging.INFO)
        if due and self._tell is not None:
            self._tell(key, error, long)

    def over(self, key: K, *, done: bool) -> None:
        """The key no longer waits: it succeeded, or failed. Cheap for one that did not wait."""
        if key in self._waits:
            with self._lock:
                self._waits.pop(key, None)
            self._log.succeeded(key, tell=done)
