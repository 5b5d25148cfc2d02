"""Beside stage 4: which cluster this is. Without a definite answer no load balancer is built or changed.

The identity is part of what is remembered on every Service. A guess that turns out wrong would have every load balancer
ensured anew, now and once more at the next start. So whatever is no answer is asked again, with back-off: by one
reconcile at a time, while the others wait: a moment for its answer, then without a worker.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from controllers.runtime.api import ApiError
from controllers.runtime.clock import wait_for
from controllers.service.cloudside import TooEarly
from controllers.service.pacing import doubled

if TYPE_CHECKING:
    from controllers.runtime.clock import Clock

log = logging.getLogger(__name__)

_FIRST: Final = 1.0
_LONGEST: Final = 30.0
_MOMENT: Final = 0.25  # an answer takes milliseconds; at a start all workers come at once


class ClusterIdentity:
    """The cluster's identity, once it is known for certain. Thread-safe.

    `ask` returns it, or None where it may not be read, and raises ApiError when there is no definite answer.
    """

    def __init__(self, ask: Callable[[], str | None], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = threading.Lock()
        self._asked = threading.Condition(self._lock)
        self._known: str | None = None
        self._asking = False
        self._failures = 0
        self._next = 0.0
        self._error = ""

    def get(self) -> str:
        """The identity; "" where it may not be read. Raises TooEarly while the answer is awaited."""
        with self._lock:
            if self._asking:
                wait_for(self._clock, self._asked, lambda: not self._asking, _MOMENT)
            if self._known is not None:
                return self._known
            left = self._next - self._clock.monotonic()
            if self._asking or left > 0:
                raise TooEarly(max(left, _FIRST))
            self._asking = True
        try:
            known = self._ask() or ""
            with self._lock:
                self._known, self._error = known, ""
        except ApiError as error:
            raise TooEarly(self._failed(error)) from error
        finally:
            with self._lock:
                self._asking = False
                self._asked.notify_all()
        if self._failures:
            log.info("the namespace kube-system was read; load balancers are now built and changed")
        return known

    def missing(self) -> str:
        """What keeps it unknown; empty when it is known, or was not asked for yet."""
        with self._lock:
            return self._error

    def _failed(self, error: ApiError) -> float:
        with self._lock:
            wait = doubled(_FIRST, self._failures, _LONGEST)
            self._failures += 1
            self._next = self._clock.monotonic() + wait
            self._error = f"namespace kube-system could not be read (attempt {self._failures}): {error}"
            log.warning(
                "no load balancer is built or changed until the cluster's identity is known: %s; retrying in %.3g s",
                self._error,
                wait,
            )
            return wait
