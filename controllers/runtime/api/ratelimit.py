"""What a request waits for before it is sent (stages 1 and 6): the operator's rate limit, and a
retry that the server asked for. Off by default: the server's own priority and fairness limits
better than a client that does not know the load."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from controllers.runtime.clock import SYSTEM_CLOCK, Clock, wait_for


class Sleeper:
    """Where requests of one client wait, so that closing the client wakes them all; any thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self._condition = threading.Condition(threading.Lock())
        self._retrying = True
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until the predicate holds (`wake` has it looked at again); False after the timeout
        or when closed."""
        with self._condition:
            wait_for(self.clock, self._condition, lambda: self._closed or predicate(), timeout)
            return not self._closed and predicate()

    def sleep(self, seconds: float, cancelled: Callable[[], bool] | None = None, *, for_retry: bool = True) -> bool:
        """Let time pass; True when it has. Ends early, with False, when closed, when `cancelled`
        (after a `wake`), and, `for_retry`, after `stop_retrying`."""
        with self._condition:
            return not wait_for(
                self.clock,
                self._condition,
                lambda: self._closed or (for_retry and not self._retrying) or (cancelled is not None and cancelled()),
                seconds,
            )

    def wake(self) -> None:
        """Have every waiter look at its predicate again."""
        with self._condition:
            self._condition.notify_all()

    def stop_retrying(self) -> None:
        """End sleeps before a retry, now and later: the program stops. May be called twice."""
        with self._condition:
            self._retrying = False
            self._condition.notify_all()

    def close(self) -> None:
        """End every wait, now and later. May be called twice."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()


class TokenBucket:
    """At most `burst` requests at once and `qps` a second after that, in turn; thread-safe.

    A caller takes its place immediately and then waits for it; one that gives up leaves a gap."""

    def __init__(self, qps: float, burst: int, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """`burst` of 0 means as many as a second allows. Raises ValueError unless qps > 0."""
        if not qps > 0 or math.isinf(qps):
            raise ValueError(f"qps must be positive and finite, not {qps}")
        self.qps = qps
        self.burst = burst if burst > 0 else max(1, math.ceil(qps))
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens = float(self.burst)
        self._filled_at = clock.monotonic()

    def reserve(self) -> float:
        """Take a place and return the seconds to wait for it; 0.0 when there is a token."""
        with self._lock:
            now = self._clock.monotonic()
            self._tokens = min(float(self.burst), self._tokens + (now - self._filled_at) * self.qps)
            self._filled_at = now
            # Below zero: the debt is the queue. Each caller waits for its own place, and none is
            # overtaken.
            self._tokens -= 1
            return max(0.0, -self._tokens / self.qps)
