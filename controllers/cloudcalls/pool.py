"""Which calls run, and when (stage 5, cloud call).

Calls wait here for their turn (`turns.py`; a free slot; the limits' consent), and run in a crew of
daemon threads. The thread that waits for a call watches the clock: one past its deadline is given
up with :meth:`CallPool.expire`, which frees its slot while its thread stays with the vendor's code
until that returns. So a hung call costs one thread and nothing else, and the number of threads
never exceeds `concurrency + max_abandoned`."""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from cloudprovider import Throttled
from cloudprovider.threads import Crew, NoThreadLeft, start
from controllers.cloudcalls.call import CallState, CloudCall
from controllers.cloudcalls.errors import OVERDUE, CallFailed, CallsClosed
from controllers.cloudcalls.limits import Limits
from controllers.cloudcalls.options import CloudCallOptions
from controllers.cloudcalls.turns import Turns
from controllers.runtime.clock import Clock, wait_for

log = logging.getLogger(__name__)

Called = CloudCall[Any]

IDLE_SECONDS: Final = 30.0
"""A thread that got no call for so long ends, unless it is the last idle one."""


class CallPool:
    """A bounded pool whose threads may be lost. Thread-safe.

    `execute(call)` runs a call in the calling thread, fills its `answer` or `error`, and never
    raises; what it returns says whether the cloud throttled. `on_end(call, seconds)` is called once
    for each call that ran, by the thread that learned its fate: when it ended, or when it was given
    up. When more than `max_abandoned` threads are lost, `fatal` says so for good.
    """

    def __init__(
        self,
        name: str,
        options: CloudCallOptions,
        clock: Clock,
        execute: Callable[[Called], Throttled | None],
        on_end: Callable[[Called, float], None],
    ) -> None:
        self._name = name
        self._concurrency = options.concurrency
        self._max_abandoned = options.max_abandoned
        self._clock = clock
        self._execute = execute
        self._on_end = on_end
        self._limits = Limits(options.qps, options.burst)
        self._turns = Turns(options.concurrency)
        self._crew = Crew(
            f"cloud-{name}", options.concurrency, idle_seconds=IDLE_SECONDS, keep_one=True, clock=clock
        )  # fmt: skip

        self._lock = threading.Lock()
        self._busy = 0  # slots in use: running calls, and overdue ones beyond max_abandoned
        self._handed: deque[Called] = deque()  # running calls that no thread has taken up yet
        self._running: set[Called] = set()
        self._overdue: set[Called] = set()
        self._excess: set[Called] = set()  # overdue calls that keep their slot
        self._parked: dict[str, list[Called]] = {}
        self._fatal = ""
        self._closed = False
        self._changed = threading.Condition(self._lock)  # a call ended; for wait_idle()
        self._resume_at: float | None = None  # when the limiter is to be asked again
        self._pacer: threading.Thread | None = None
        self._pace = threading.Condition(self._lock)

    # ---- by the gateway, and by those who wait

    def submit(self, call: Called) -> None:
        """Queue a call. Its inbox gets it when it begins, and when it ended or will never begin."""
        with self._lock:
            refused = self._closed
            if not refused:
                self._turns.push(call)
                self._dispatch()
        if refused:
            self._refuse(call)

    def expire(self, call: Called, fate: str = OVERDUE) -> bool:
        """Give the call up: it is cancelled, its slot is free, and its key is parked until it ends.
        `fate` says why.

        False when there is nothing to give up: it ended meanwhile, or was given up before. A call
        that still waits for its turn will not run, and its inbox does not get it.
        """
        fatal = ""
        with self._lock:
            if call.state is CallState.QUEUED:
                self._turns.remove(call)
                call.state = CallState.ENDED
                call.error = CallsClosed(f"the provider's {call.method} is no longer needed")
                return False
            if call.state is not CallState.RUNNING:
                return False
            call.state, call.fate = CallState.OVERDUE, fate
            call.until = Future()
            call.until.set_running_or_notify_cancel()  # so that only the pool ends it
            self._running.discard(call)
            self._overdue.add(call)
            if call.key:
                self._parked.setdefault(call.key, []).append(call)
            if len(self._overdue) - len(self._excess) > self._max_abandoned:
                self._excess.add(call)
                if not self._fatal:
                    fatal = self._fatal = (
                        f"{len(self._overdue)} calls to cloud provider {self._name!r} are overdue and hold threads that"
                        f" cannot be taken back (bound: {self._max_abandoned})"
                    )
            else:
                self._crew.lose()
                self._free(call)
                self._dispatch()
            self._changed.notify_all()
        call.cancelled.set()
        self._on_end(call, self._clock.monotonic() - call.started)
        if fatal:
            log.critical("%s", fatal)
        return True

    def parked_until(self, key: str) -> Future[None] | None:
        """The end of the last overdue call for this key, None when there is none."""
        if not self._parked:
            return None
        with self._lock:
            calls = self._parked.get(key)
            return calls[-1].until if calls else None

    def cancel_running(self) -> None:
        """Tell every call under way that its answer is no longer wanted. Vendor code may notice."""
        for call in (*self.running(), *self.overdue()):
            call.cancelled.set()

    def close(self) -> None:
        """Start nothing any more: waiting calls and new ones end with CallsClosed. May be called
        twice."""
        with self._lock:
            self._closed = True
            waiting = self._turns.clear()
            self._crew.close()
            self._pace.notify_all()
        for call in waiting:
            self._refuse(call)

    def wait_idle(self, timeout: float | None) -> bool:
        """Wait until no call is under way, overdue ones not counted; False when time is up."""
        with self._lock:
            return wait_for(self._clock, self._changed, lambda: not self._running, timeout)

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
            return {key: calls[-1] for key, calls in self._parked.items()}

    def waiting(self) -> int:
        """Calls that wait for their turn."""
        with self._lock:
            return len(self._turns.waiting())

    def threads(self) -> int:
        """Threads that exist, idle and lost ones included."""
        return self._crew.threads()

    def has_spare_threads(self) -> bool:
        """Whether so few threads are lost that one more may be risked without need."""
        return 2 * len(self._overdue) <= self._max_abandoned

    def fatal(self) -> str:
        """Why the process should end; "" for as long as it should not."""
        return self._fatal

    def rate(self, kind: str | None = None) -> tuple[float, float]:
        """(calls per second allowed, seconds of pause left) at present, of one kind or of the
        slowest."""
        with self._lock:
            now = self._clock.monotonic()
            return self._limits.rate(now, kind), self._limits.pause(now, kind)

    # ---- inside; the lock is held where a name says nothing else

    def _dispatch(self) -> None:
        """Start whatever may start."""
        while (call := self._take()) is not None:
            try:
                self._crew.run(self._run)
                self._handed.append(call)
            except NoThreadLeft as error:  # the calls that run will be followed by others
                self._free(call)
                self._running.discard(call)
                call.state = CallState.ENDED
                call.error = CallFailed(f"no thread for the provider's {call.method}: {error}")
                call.inbox.put(call)

    def _take(self) -> Called | None:
        """The next call, marked as running, if one may run now."""
        if self._busy >= self._concurrency:
            return None
        now = self._clock.monotonic()
        call, wait = self._turns.next(lambda kind: self._limits.delay(kind, now))
        if call is None:
            if wait != math.inf:
                self._resume(now + wait)
            return None
        if call.counted:
            self._limits.take(call.flow.kind, now)
        self._busy += 1
        self._turns.started(call)
        self._running.add(call)
        call.started = now
        call.state = CallState.RUNNING
        call.inbox.begun(call)
        return call

    def _free(self, call: Called) -> None:
        """The call's slot is free."""
        self._busy -= 1
        self._turns.ended(call)

    def _resume(self, when: float) -> None:
        if self._resume_at is None or when < self._resume_at:
            self._resume_at = when
            self._pace.notify()
        if self._pacer is None:
            try:
                self._pacer = start(self._keep_pace, f"cloud-{self._name}-pacer")
            except NoThreadLeft as error:  # a next call tries again
                log.error("%s: rate-limited calls wait, as their thread could not be started: %s", self._name, error)

    def _keep_pace(self) -> None:
        """The pacer thread: starts calls when the limiter's time has come. Takes the lock."""
        with self._lock:
            while not self._closed:
                left = None if self._resume_at is None else self._resume_at - self._clock.monotonic()
                if left is None or left > 0:
                    self._clock.wait(self._pace, left)
                else:
                    self._resume_at = None
                    self._dispatch()

    def _refuse(self, call: Called) -> None:
        """Without the lock."""
        call.state = CallState.ENDED
        call.error = CallsClosed(f"the program is stopping; the provider's {call.method} was not called")
        call.inbox.put(call)

    # ---- in the threads of the crew; they take the lock

    def _run(self) -> Callable[[], None]:
        """Run the call that was handed over, and those whose turn is next; what is returned tells
        the end of the last one. A thread holds on to no call but the one that it runs."""
        with self._lock:
            call = self._handed.popleft()
        while True:
            tell, following = self._ended(call, self._execute(call))
            if following is None:
                return tell
            tell()
            call = following
            del tell, following

    def _ended(self, call: Called, throttled: Throttled | None) -> tuple[Callable[[], None], Called | None]:
        """The call has returned: how to tell it, and the call that this thread runs next."""
        with self._lock:
            now = self._clock.monotonic()
            if throttled is not None:
                self._limits.throttled(
                    call.flow.kind,
                    now,
                    started=call.started,
                    retry_after=throttled.retry_after,
                    whole_account=throttled.whole_account,
                )
            in_time = call.state is CallState.RUNNING
            if in_time:
                call.state = CallState.ENDED
                self._running.discard(call)
                self._free(call)
            else:
                self._recover(call)
            self._changed.notify_all()
            return partial(self._tell, call, now - call.started, in_time), self._take()

    def _recover(self, call: Called) -> None:
        """An overdue call ended after all. With the lock held."""
        call.state = CallState.LATE
        self._overdue.discard(call)
        if call in self._excess:
            self._excess.discard(call)
            self._free(call)
        else:
            self._crew.find()
        calls = self._parked.get(call.key, [])
        if call in calls:
            calls.remove(call)
            if not calls:
                del self._parked[call.key]

    def _tell(self, call: Called, seconds: float, in_time: bool) -> None:
        try:
            if in_time:
                self._on_end(call, seconds)
        finally:
            call.inbox.put(call)
            if call.until is not None:
                call.until.set_result(None)
