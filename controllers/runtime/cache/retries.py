"""How a list-watch loop is set, how long it waits after a failure, and what it logs (stage 1).

Delays start at 0.8 s, double up to 30 s, and vary between half and full. A server that gives no
answer of its own (refused, reset, timed out; 502, 503 or 504) is asked again after 4 s at most, and
the first answer to any request of the process ends the wait of all. When the server answers again,
but with another error, as one that has just started does, the delays start over."""

from __future__ import annotations

import logging
import random
import threading
from typing import Final

from attrs import field, frozen, validators

from cloudprovider.internal.backoff import Backoff
from controllers.runtime.api import NO_ANSWERS, CredentialsUnavailable, Gone, Recovery, ServerError, Unreachable
from controllers.runtime.cache.listing import is_too_large
from controllers.runtime.clock import Clock, ClockEvent, wait_for

log = logging.getLogger(__name__)

_MOMENT: Final = 0.8


@frozen
class WatchOptions:
    """How to list and watch; all times in seconds. Tests shorten the defaults."""

    page_size: int = field(default=500, validator=validators.gt(0))
    watch_timeout: tuple[float, float] = (300.0, 600.0)
    """The server ends a watch after a time drawn from this range, to spread them over replicas."""
    silence: float = field(default=90.0, validator=validators.gt(0))
    """No byte for so long: the watch counts as half-open. Bookmarks come each minute."""
    list_timeout: float = field(default=60.0, validator=validators.gt(0))
    """For one page of a list, from the request to its last byte."""
    first_delay: float = field(default=0.8, validator=validators.gt(0))
    longest_delay: float = field(default=30.0, validator=validators.gt(0))
    longest_unanswered: float = field(default=4.0, validator=validators.gt(0))
    """The longest delay while the server gives no answer at all, so that its return is noticed."""
    longest_retry_after: float = 300.0
    """A Retry-After beyond this is cut to it."""
    believe_after: float = 10.0
    """Seconds between the two quorum lists that prove that history went back."""
    stable_after: float = 10.0
    """A watch that stood for so long was a success, even if it brought nothing."""


class Retries:
    """The failures of one loop in a row. One thread uses it; `wake` and `error` are for all."""

    def __init__(self, what: str, options: WatchOptions, clock: Clock, rng: random.Random, stop: ClockEvent) -> None:
        self.failures = 0
        self.error = ""
        self._what = what
        self._options = options
        self._clock = clock
        self._rng = rng
        self._stop = stop
        self._condition = threading.Condition(threading.Lock())
        self._lost = False
        self._away = False

    @property
    def was_away(self) -> bool:
        """Whether the server gave no answer and the next try failed too: not just a cut connection.

        Holds until something works, as a server that has just started refuses some tries with an
        answer (403, say)."""
        return self._away

    def start_over(self) -> None:
        """Something worked: the next failure is the first."""
        self.failures = 0
        self._lost = self._away = False

    def delay(self, error: Exception | None = None) -> float:
        """Count a failure and return the seconds to wait after it."""
        options = self._options
        lost = error is not None and _is_lost(error)
        self._away = self._away or self._lost
        # A server that has just started refuses a few requests with an answer: delays start over.
        if self._lost and not lost:
            self.failures = 0
        self._lost = lost
        backoff = Backoff(options.first_delay, options.longest_unanswered if lost else options.longest_delay)
        delay = backoff.delay(self.failures, self._rng.random())
        self.failures += 1
        retry_after: float | None = getattr(error, "retry_after", None)
        return delay if retry_after is None else max(delay, min(retry_after, options.longest_retry_after))

    def complain(self, phase: str, error: Exception, *, waits: bool = True, warn: bool = True) -> float:
        """Count it, log it ever more seldom, and return the delay (0.0 unless it `waits`)."""
        delay = self.delay(error)
        if not waits:
            delay = 0.0
        self.error = f"{phase}: {error}"
        n = self.failures
        expected = isinstance(error, Gone) and n == 1
        # At attempts 1, 2, 4, 8 ...: an outage of an hour takes ten lines.
        level = logging.DEBUG if n & (n - 1) or not warn else logging.INFO if expected else logging.WARNING
        log.log(level, "%s: %s failed (attempt %d), retrying in %.1f s: %s", self._what, phase, n, delay, error)
        return delay

    def pause(self, seconds: float, error: Exception | None = None) -> None:
        """Wait, until stopped, or until the server answers again where the error says that it did
        not."""
        recovery: Recovery | None = getattr(error, "recovery", None)
        # A server that names a time is there: nothing has to come back first.
        if recovery is None or getattr(error, "retry_after", None) is not None:
            self._stop.wait(seconds)
            return
        recovery.then(self.wake)
        end = self._clock.monotonic() + seconds
        with self._condition:
            wait_for(self._clock, self._condition, lambda: self._stop.is_set() or recovery.done(), seconds)
        if recovery.done():  # at a random moment, so that not all ask together
            moment = _MOMENT * self._rng.random()
            self._stop.wait(min(max(0.0, end - self._clock.monotonic()), moment))

    def wake(self) -> None:
        """Look again whether to wait. From any thread."""
        with self._condition:
            self._condition.notify_all()


def _is_lost(error: Exception) -> bool:
    """Whether the server itself gave no answer."""
    # 429 and 503 with Retry-After are answers: the server is busy, not gone.
    if isinstance(error, ServerError):
        return error.status in NO_ANSWERS and error.retry_after is None and not is_too_large(error)
    return isinstance(error, Unreachable) and not isinstance(error, CredentialsUnavailable)
