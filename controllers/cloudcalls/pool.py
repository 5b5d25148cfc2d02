"""Which calls run, and until when (stage 5, cloud call). Every call of vendor code passes here.

Calls wait for their turn and run in daemon threads (`call.py`). One more thread, the timer, watches
all deadlines: a call past its own is given up, and its slot is free, while its thread stays with
the vendor's code until that returns. So a hung call costs one thread, and there are never more than
`concurrency + max_abandoned` of them. Whoever submits a call waits for its Future, without a
clock."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

from cloudprovider.threads import NoThreadLeft, ThreadPool, start
from controllers.cloudcalls.answers import CallFailed, CallOverdue, CallsClosed
from controllers.cloudcalls.call import CallQueue, CloudCall, Outcome, run
from controllers.cloudcalls.options import CloudCallOptions
from controllers.runtime.clock import Clock, ClockEvent, bounded, wait_for

log = logging.getLogger(__name__)

R = TypeVar("R")
Called = CloudCall[Any]

_BUILDING: Final = frozenset(
    (
        "initialize",
        "ensure_load_balancer",
        "update_load_balancer",
        "ensure_load_balancer_deleted",
        "delete_owned_load_balancer",
        "delete_owned_resource",
        "add_ssh_key_to_all_instances",
    )
)
"""Calls that may take the longer time."""

IDLE_SECONDS: Final = 30.0
"""A thread that got no call for so long ends, unless it is the last idle one."""


class CallPool:
    """A bounded pool whose threads may be lost. Thread-safe.

    `on_end(call, outcome, seconds)` is called for each call that ran, before its Future ends: with
    None for one that was given up. `guard`: see `CloudCalls`.
    """

    def __init__(
        self,
        provider: str,
        options: CloudCallOptions,
        clock: Clock,
        on_end: Callable[[Called, Outcome[Any] | None, float], object],
        guard: Callable[[str], object] | None = None,
    ) -> None:
        self.provider = provider
        self.options = options
        self.clock = clock
        self._on_end = on_end
        self._run_call = partial(run, clock=clock, guard=guard)
        self._queue = CallQueue(options.concurrency, options.qps, options.burst)
        self._threads = ThreadPool(
            f"cloud-{provider}", options.concurrency, idle_seconds=IDLE_SECONDS, keep_one=True, clock=clock
        )  # fmt: skip

        self._lock = threading.Lock()
        self._running: set[Called] = set()
        self._overdue: set[Called] = set()
        self._excess: set[Called] = set()  # overdue calls that keep their slot
        self._parked: dict[str, tuple[Called, ...]] = {}  # read without the lock: no tuple ever changes
        self._fatal = ""
        self._closed = False
        self._changed = threading.Condition(self._lock)  # a call ended; for wait_idle()
        self._timer: threading.Thread | None = None
        self._time = threading.Condition(self._lock)
        self._resume_at = math.inf  # when the limits are to be asked again
        self._wake_at = -math.inf  # until when the timer sleeps; -inf while it is awake

    # ---- by those who call

    def call(self, call: CloudCall[R]) -> R:
        """Make the call and return its answer. Blocks until then, or until its deadline.

        Raises the errors of `cloudprovider.errors` and of `answers.py`, and what the guard raises.
        """
        future = self.submit(call)
        del call  # an error's traceback holds this frame, and the call's future holds the error
        try:
            with bounded():  # the deadline ends it: no stall of the worker that waits
                return future.result()
        finally:
            del future

    def submit(self, call: CloudCall[R]) -> Future[R]:
        """Queue the call. Its Future ends in any case: with the answer, with an error of ours, at
        its deadline, when its key is parked, when the pool is closed."""
        future = call.future
        assert future is not None
        call.timeout = self.timeout_of(call.method)
        call.cancelled = ClockEvent(self.clock)
        with self._lock:
            refusal = _closed(call) if self._closed else self.parked_error(call.key, call.method)
            if refusal is None:
                self._queue.push(call)
                self._dispatch()
        if refusal is not None:  # without the lock: whoever is told may call again
            call.end(refusal)
        return future

    def parked_error(self, key: str, method: str) -> Exception | None:
        """The refusal of a call whose key is parked; None when it may be made."""
        parked = self._parked.get(key)
        return self._overdue_error(method, key, parked[-1]) if parked else None

    def cancel_running(self) -> None:
        """Tell every call under way that its answer is no longer wanted. Vendor code may notice."""
        for call in (*self.running(), *self.overdue()):
            call.cancelled.set()

    def close(self) -> None:
        """Start nothing any more: waiting calls and new ones end with CallsClosed. May be called
        twice."""
        with self._lock:
            self._closed = True
            waiting = self._queue.clear()
            self._threads.close()
            self._time.notify()
        for call in waiting:
            call.end(_closed(call))

    def wait_idle(self, timeout: float | None) -> bool:
        """Wait until no call is under way, overdue ones not counted; False when time is up."""
        with self._lock:
            return wait_for(self.clock, self._changed, lambda: not self._running, timeout)

    # ---- for health and metrics

    def running(self) -> list[Called]:
        """Calls under way, overdue ones not counted."""
        with self._lock:
            return list(self._running)

    def overdue(self) -> list[Called]:
        """Calls that were given up and still run."""
        with self._lock:
            return list(self._overdue)

    def parked(self) -> dict[str, Called]:
        """The key and the latest call of everything parked."""
        with self._lock:
            return {key: parked[-1] for key, parked in self._parked.items()}

    def waiting(self) -> int:
        """Calls that wait for their turn."""
        with self._lock:
            return len(self._queue.waiting())

    def threads(self) -> int:
        """Threads that exist, idle and lost ones included, the timer not."""
        return self._threads.threads()

    def fatal(self) -> str:
        """Why the process should end; "" for as long as it should not."""
        return self._fatal

    def rate(self, kind: str | None = None) -> tuple[float, float]:
        """(calls per second allowed, seconds of pause left) at present, of one kind or of the
        slowest."""
        with self._lock:
            return self._queue.rate(self.clock.monotonic(), kind)

    def timeout_of(self, method: str) -> float:
        """The seconds that a call of this method may take."""
        timeout = self.options.timeout
        return max(timeout, self.options.build_timeout) if method in _BUILDING else timeout

    def _flag_of(self, method: str) -> str:
        longer = self.timeout_of(method) > self.options.timeout
        return "--cloud-api-build-timeout" if longer else "--cloud-api-timeout"

    # ---- inside; the lock is held where a name says nothing else

    def _dispatch(self) -> None:
        """Start whatever may start."""
        while (call := self._take()) is not None:
            try:
                self._watched(self._look_at(call))  # nothing runs without a timer
                self._threads.run(partial(self._work, call))
            except NoThreadLeft as error:  # the calls that run will be followed by others
                self._running.remove(call)
                self._queue.ended(call)
                call.end(CallFailed(f"no thread for the provider's {call.method}: {error}"))

    def _take(self) -> Called | None:
        """The next call, marked as running, if one may run now."""
        if len(self._running) + len(self._excess) >= self.options.concurrency:
            return None
        now = self.clock.monotonic()
        call, wait = self._queue.next(now)
        if call is None:
            if wait != math.inf:
                self._resume_at = min(self._resume_at, now + wait)
                try:
                    self._watched(self._resume_at)
                except NoThreadLeft as error:  # the next call tries again
                    log.error("%s: rate-limited calls wait, as their timer did not start: %s", self.provider, error)
            return None
        self._running.add(call)
        call.started = now
        return call

    def _overdue_error(self, method: str, key: str, call: Called) -> CallOverdue:
        assert call.until is not None
        return CallOverdue(method, key, self.timeout_of(method), call.until, self._flag_of(method))

    # ---- the timer

    def _watched(self, when: float) -> None:
        """See that the timer looks up at this time. Raises NoThreadLeft."""
        if self._timer is None:
            self._timer = start(self._keep_time, f"cloud-{self.provider}-timer")
        elif when < self._wake_at:
            self._time.notify()

    def _look_at(self, call: Called) -> float:
        """When the timer has something to do about a running call: it is slow, or overdue."""
        return call.started + (call.timeout if call.told_slow else min(call.timeout, self.options.timeout))

    def _keep_time(self) -> None:
        """The timer thread. Takes the lock."""
        while True:
            try:
                if not self._tick():
                    return
            except Exception:  # nothing may end it: all deadlines are in its hands
                log.exception("%s: the timer of provider calls failed, and goes on", self.provider)

    def _tick(self) -> bool:
        """Sleep until something is due, and do it; False when the timer is not needed any more."""
        with self._lock:
            now = self.clock.monotonic()
            due = [call for call in self._running if self._look_at(call) <= now]
            if self._resume_at <= now:
                self._resume_at = math.inf
                self._dispatch()
            elif not due:
                if self._closed and not self._running:
                    self._timer = None
                    return False
                self._wake_at = min([self._resume_at, *map(self._look_at, self._running)])
                self.clock.wait(self._time, None if self._wake_at == math.inf else self._wake_at - now)
                self._wake_at = -math.inf
                return True
        for call in sorted(due, key=lambda call: call.started):
            if now < call.started + call.timeout:
                self._tell_slow(call)
            else:
                self._expire(call)
        return True

    def _tell_slow(self, call: Called) -> None:
        """Without the lock."""
        call.told_slow = True
        text = (
            f"the provider's {call.method} has not answered after {self.options.timeout:g} s (--cloud-api-timeout). "
            f"Such a call may take up to {call.timeout:g} s ({self._flag_of(call.method)})"
        )
        log.warning("%s: %s", call.key, text)
        if call.slow is not None:
            call.slow(call.key, text)

    def _expire(self, call: Called) -> None:
        """Give the call up, unless it has just ended: it is cancelled, its slot is free, and its
        key is parked until it ends. Takes the lock."""
        fatal = ""
        refused: list[Called] = []
        with self._lock:
            if call not in self._running:
                return
            call.until = Future()
            call.until.set_running_or_notify_cancel()  # so that only the pool ends it
            self._running.remove(call)
            self._overdue.add(call)
            if call.key:
                self._parked[call.key] = (*self._parked.get(call.key, ()), call)
                # Calls for it that wait would hang as well, and cost a thread each.
                refused = [one for one in self._queue.waiting() if one.key == call.key]
                for one in refused:
                    self._queue.remove(one)
            if len(self._overdue) - len(self._excess) > self.options.max_abandoned:
                # It keeps its slot: hung calls must not take ever more threads.
                self._excess.add(call)
                if not self._fatal:
                    fatal = self._fatal = (
                        f"{len(self._overdue)} calls to cloud provider {self.provider!r} are overdue and hold threads"
                        f" that cannot be taken back (bound: {self.options.max_abandoned})"
                    )
            else:
                self._threads.lose()  # another one may take its place
                self._queue.ended(call)
                self._dispatch()
            self._changed.notify_all()
        try:
            call.cancelled.set()
            self._on_end(call, None, self.clock.monotonic() - call.started)
            if fatal:
                log.critical("%s", fatal)
        finally:
            for one in (call, *refused):
                one.end(self._overdue_error(one.method, one.shown, call))

    # ---- in the threads of the pool; they take the lock

    def _work(self, call: Called) -> Callable[[], None]:
        """Run the call; what is returned tells its end, once its thread is free."""
        # No local name for the outcome: the traceback of its error leads back to this frame.
        return self._returned(call, self._run_call(call))

    def _returned(self, call: Called, outcome: Outcome[Any]) -> Callable[[], None]:
        """The call has returned: its slot is free, or its key, if it was given up before."""
        with self._lock:
            now = self.clock.monotonic()
            if outcome.throttled is not None:
                self._queue.throttled(call, now, outcome.throttled)
            if call in self._running:
                self._running.remove(call)
                self._queue.ended(call)
                return partial(self._ended, call, outcome, now - call.started)
            # It was given up, and has returned after all.
            self._overdue.remove(call)
            if call in self._excess:
                self._excess.remove(call)
                self._queue.ended(call)
            else:
                self._threads.find()
            if call.key:
                others = tuple(other for other in self._parked[call.key] if other is not call)
                if others:
                    self._parked[call.key] = others
                else:
                    del self._parked[call.key]
            return partial(self._ended, call, None, 0.0)

    def _ended(self, call: Called, outcome: Outcome[Any] | None, seconds: float) -> None:
        """Tell the end of the call, or None of one that was given up before. The thread is free,
        and takes up the next one."""
        with self._lock:
            self._dispatch()
            self._changed.notify_all()
            if self._closed and not self._running:
                self._time.notify()
        if outcome is None:
            assert call.until is not None
            call.until.set_result(None)  # its key may be asked about again
            return
        try:
            self._on_end(call, outcome, seconds)
        except Exception:
            log.exception("%s: the end of %s for %s was not counted", self.provider, call.method, call.shown)
        finally:  # whoever waits is told, whatever happens here
            call.end(outcome.error, outcome.answer)


def _closed(call: Called) -> CallsClosed:
    return CallsClosed(f"the program is stopping; the provider's {call.method} was not called")
