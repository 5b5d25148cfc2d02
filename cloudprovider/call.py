"""current_call(): deadline and cancellation of the provider call under way (stage 5, cloud call).

The gateway wraps each vendor call in `call_scope`; vendor code asks `current_call()` in the same
thread and passes the rest of the time on to its HTTP client, or gives up between two steps::

    call = current_call()
    session.get(url, timeout=call.remaining() or 30)
    call.check()

It is a context variable: threads that the provider starts itself see "no deadline" unless they run
in a copied context.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from attrs import field, frozen

from cloudprovider.errors import CallCancelled, CallDeadlineExceeded
from cloudprovider.internal.fields import documented

if TYPE_CHECKING:
    from kubernetes.client.models.v1_service import V1Service

    from cloudprovider.host import StopSignal

__all__ = ["Call", "call_scope", "current_call"]


class _Never:
    """A stop signal that never comes."""

    def is_set(self) -> bool:
        return False

    def wait(self, timeout: float | None = None) -> bool:
        return threading.Event().wait(timeout)


@documented
@frozen
class Call:
    """How long the host still waits for the call under way. Immutable; may be read from any
    thread."""

    deadline: float | None = None
    """In seconds of time.monotonic; None for no deadline."""

    cancelled: StopSignal = field(factory=_Never, repr=False)
    """Set when the host no longer wants the answer: it stops, or lost the lease."""

    monotonic: Callable[[], float] = field(default=time.monotonic, repr=False, eq=False)
    """The clock that `deadline` is measured by."""

    former: V1Service | None = field(default=None, repr=False, kw_only=True)
    """In `ensure_load_balancer`, `check_service` before it, and `ensure_load_balancer_deleted`: the
    Service as its load balancer was last built, to clean up what a change leaves behind. Its spec
    and annotations are those of then, its labels and status those of now. Read-only. None where
    this process does not know: the first time, in a new process whose Service has changed since,
    and in every other call."""

    def remaining(self) -> float | None:
        """Seconds until the deadline, 0.0 when it has passed, None without one."""
        if self.deadline is None:
            return None
        # Never negative: sockets take a negative time limit for an error, or for none.
        return max(0.0, self.deadline - self.monotonic())

    def is_cancelled(self) -> bool:
        """Whether the host cancelled the call. A passed deadline is not a cancellation; see
        `check`."""
        return self.cancelled.is_set()

    def check(self) -> None:
        """Return while the answer is still wanted.

        Raises `CallCancelled` or `CallDeadlineExceeded` otherwise. To be called between steps,
        above all before a step that changes something.
        """
        # Told first: a host that has lost its lease must not be told to try again with more time.
        if self.cancelled.is_set():
            raise CallCancelled("the host cancelled this call")
        if self.remaining() == 0.0:
            raise CallDeadlineExceeded("the deadline of this call has passed")

    def pause(self, seconds: float) -> None:
        """Sleep that ends early: for polling the cloud inside a call.

        Raises as `check` does, as soon as the call is cancelled or its deadline passes, which may
        be before `seconds`.
        """
        remaining = self.remaining()
        # Wakes at once when the host gives up, which `time.sleep` would not.
        self.cancelled.wait(seconds if remaining is None else min(seconds, remaining))
        self.check()


_UNLIMITED = Call()
_current: ContextVar[Call] = ContextVar("cloudprovider_call", default=_UNLIMITED)


def current_call() -> Call:
    """The provider call that this thread is serving; outside of one, a call without deadline or
    cancellation."""
    return _current.get()


@contextmanager
def call_scope(call: Call) -> Iterator[Call]:
    """Make `call` the current one for the body of a with statement, in this thread only. For hosts
    and tests.

    Scopes nest: the outer one is back after the inner one ends, also by an exception.
    """
    token = _current.set(call)
    try:
        yield call
    finally:
        _current.reset(token)
