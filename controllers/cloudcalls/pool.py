"""The threads that run vendor code (stage 5, cloud call).

Jobs come from the gateway, wait here for their turn (`turns.py`; a free slot; the limits' consent), and run in daemon
threads of this pool. Their ends go to the inbox of whoever waits for them. That waiter also watches the clock: a job
past its deadline is given up with :meth:`VendorPool.expire`, which frees its slot for the next job while its thread
stays with the vendor's code until that returns. So a hung call costs one thread and nothing else, and the number of
threads never exceeds `concurrency + max_abandoned`. Threads start when there is work for them, and all but one end when
they were not needed for `IDLE_SECONDS`.

Nothing in here knows what a job does: `execute` runs it and never raises.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from cloudprovider import Throttled
from controllers.cloudcalls.errors import OVERDUE, CallFailed, CallsClosed
from controllers.cloudcalls.jobs import Job, JobState
from controllers.cloudcalls.limits import Limits
from controllers.cloudcalls.turns import Turns
from controllers.cloudcalls.vendorthread import VendorThread
from controllers.runtime.clock import Clock
from controllers.runtime.queue import retry_after_of

__all__ = ["IDLE_SECONDS", "VendorPool"]

log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 30.0
"""A thread that got no call for so long ends, unless it is the last idle one."""


class VendorPool:
    """A bounded pool whose threads may be lost. Thread-safe.

    `execute(job)` runs a job in the calling thread, fills its `answer` or `error`, and never raises; what it returns
    says whether the cloud throttled. `on_end(job, seconds)` is called once for each job that ran, by the thread that
    learned its fate: when it ended, or when it was given up. `on_fatal(message)` is called once, when more than
    `max_abandoned` threads are lost.
    """

    def __init__(
        self,
        execute: Callable[[Job], Throttled | None],
        limits: Limits,
        *,
        name: str,
        concurrency: int,
        max_abandoned: int,
        clock: Clock,
        on_end: Callable[[Job, float], None],
        on_fatal: Callable[[str], None],
    ) -> None:
        self._execute = execute
        self._limits = limits
        self._name = name
        self._concurrency = concurrency
        self._max_abandoned = max_abandoned
        self._clock = clock
        self._on_end = on_end
        self._on_fatal = on_fatal

        self._lock = threading.Lock()
        self._turns = Turns(concurrency)
        self._order = itertools.count()
        self._busy = 0  # slots in use: running jobs, and overdue ones beyond max_abandoned
        self._running: set[Job] = set()
        self._overdue: set[Job] = set()
        self._excess: set[Job] = set()  # overdue jobs that keep their slot
        self._parked: dict[str, list[Job]] = {}
        self._idle: list[VendorThread] = []  # the last to come is the first to go, so that those below may end
        self._threads = 0
        self._fatal = ""
        self._closed = False
        self._changed = threading.Condition(self._lock)  # a job ended; for stop()
        self._resume_at: float | None = None  # when the limiter is to be asked again
        self._pacer: threading.Thread | None = None
        self._pace = threading.Condition(self._lock)

    # ---- by the gateway

    def submit(self, job: Job) -> None:
        """Queue a job. Its inbox is told when it begins, and when it ended or never will begin."""
        with self._lock:
            refused = self._closed
            if not refused:
                self._turns.push(job)
                self._dispatch()
        if refused:
            self._refuse(job)

    def expire(self, job: Job, fate: str = OVERDUE) -> bool:
        """Give the job up: it is cancelled, its slot is free, and its key is parked until it ends. `fate` says why.

        False when there is nothing to give up: it ended meanwhile, or was given up before. A job that still waits for
        its turn will not run, and its inbox is not told.
        """
        fatal = ""
        with self._lock:
            if job.state is JobState.QUEUED:
                job.state = JobState.ENDED  # skipped when its turn comes
                job.error = CallsClosed(f"the provider's {job.method} is no longer needed")
                return False
            if job.state is not JobState.RUNNING:
                return False
            job.state, job.fate = JobState.OVERDUE, fate
            job.until = Future()
            job.until.set_running_or_notify_cancel()  # nobody else can end it
            self._running.discard(job)
            self._overdue.add(job)
            if job.key:
                self._parked.setdefault(job.key, []).append(job)
            if len(self._overdue) - len(self._excess) > self._max_abandoned:
                self._excess.add(job)
                if not self._fatal:
                    fatal = self._fatal = (
                        f"{len(self._overdue)} calls to cloud provider {self._name!r} are overdue and hold threads that"
                        f" cannot be taken back (bound: {self._max_abandoned})"
                    )
            else:
                self._free(job)
                self._dispatch()
            self._changed.notify_all()
        job.cancelled.set()
        self._on_end(job, self._clock.monotonic() - job.started)
        if fatal:
            log.critical("%s", fatal)
            self._on_fatal(fatal)
        return True

    def parked_until(self, key: str) -> Future[None] | None:
        """The end of the last overdue call for this key, None when there is none."""
        if not self._parked:
            return None
        with self._lock:
            jobs = self._parked.get(key)
            return jobs[-1].until if jobs else None

    def cancel_running(self) -> None:
        """Tell every call under way that its answer is no longer wanted. It stays for the vendor's code to notice."""
        with self._lock:
            jobs = [*self._running, *self._overdue]
        for job in jobs:
            job.cancelled.set()

    def close(self) -> None:
        """Start nothing any more: waiting jobs and new ones end with CallsClosed. May be called twice."""
        with self._lock:
            self._closed = True
            waiting = self._turns.clear()
            idle, self._idle = self._idle, []
            self._threads -= len(idle)
            for thread in idle:
                thread.leave()
            self._pace.notify_all()
        for job in waiting:
            self._refuse(job)

    def wait_idle(self, timeout: float | None) -> bool:
        """Wait until no call is under way, overdue ones not counted; False when the time was up first."""
        until = None if timeout is None else self._clock.monotonic() + timeout
        with self._lock:
            while self._running:
                left = None if until is None else until - self._clock.monotonic()
                if left is not None and left <= 0:
                    return False
                self._clock.wait(self._changed, left)
            return True

    # ---- for health and metrics

    def running(self) -> list[Job]:
        with self._lock:
            return list(self._running)

    def overdue(self) -> list[Job]:
        with self._lock:
            return list(self._overdue)

    def parked(self) -> dict[str, Job]:
        """The key and the latest job of everything parked."""
        with self._lock:
            return {key: jobs[-1] for key, jobs in self._parked.items()}

    def waiting(self) -> int:
        with self._lock:
            return len(self._turns.waiting())

    def threads(self) -> int:
        """Threads that exist, idle and lost ones included."""
        return self._threads

    def fatal(self) -> str:
        """Why the process should end; "" for as long as it should not."""
        return self._fatal

    def rate(self, kind: str | None = None) -> tuple[float, float]:
        """(calls per second allowed, seconds of pause left) at present, of one kind or of the slowest."""
        with self._lock:
            now = self._clock.monotonic()
            return self._limits.rate(now, kind), self._limits.pause(now, kind)

    # ---- inside; the lock is held where a name says nothing else

    def _dispatch(self) -> None:
        """Start whatever may start."""
        while (job := self._take()) is not None:
            if self._idle:
                self._idle.pop().hand(job)
                continue
            name = f"cloud-{self._name}-{next(self._order)}"
            try:
                VendorThread(self.run, self.await_job, self._lock, job, name).start()
                self._threads += 1
            except RuntimeError as error:  # the system has no thread left; the jobs that run will be followed by others
                self._free(job)
                self._running.discard(job)
                job.state = JobState.ENDED
                job.error = CallFailed(f"no thread for the provider's {job.method}: {error}")
                job.inbox.put(job)

    def _take(self) -> Job | None:
        """The next job, marked as running, if one may run now."""
        if self._busy >= self._concurrency:
            return None
        now = self._clock.monotonic()
        job, wait = self._turns.next(lambda kind: self._limits.delay(kind, now))
        if job is None:
            if wait != math.inf:
                self._resume(now + wait)
            return None
        if job.limited:
            self._limits.take(job.flow.kind, now)
        self._busy += 1
        self._turns.started(job)
        self._running.add(job)
        job.state = JobState.RUNNING
        job.started = now
        job.deadline = now + job.timeout
        inbox = job.inbox
        with inbox.condition:
            inbox.started.append(job)
            if now + job.patience < inbox.wake_at:
                inbox.condition.notify()
        return job

    def _free(self, job: Job) -> None:
        """The job's slot is free."""
        self._busy -= 1
        self._turns.ended(job)

    def _resume(self, when: float) -> None:
        if self._resume_at is None or when < self._resume_at:
            self._resume_at = when
            self._pace.notify()
        if self._pacer is None:
            pacer = threading.Thread(target=self._keep_pace, name=f"cloud-{self._name}-pacer", daemon=True)
            try:
                pacer.start()
            except RuntimeError as error:  # no thread is left in the system; a next call tries again
                log.error("%s: rate-limited calls wait, as their thread could not be started: %s", self._name, error)
                return
            self._pacer = pacer

    def _keep_pace(self) -> None:
        """The pacer thread: starts jobs when the limiter's time has come. Takes the lock."""
        with self._lock:
            while not self._closed:
                if self._resume_at is None:
                    self._clock.wait(self._pace, None)
                    continue
                left = self._resume_at - self._clock.monotonic()
                if left > 0:
                    self._clock.wait(self._pace, left)
                else:
                    self._resume_at = None
                    self._dispatch()

    def _refuse(self, job: Job) -> None:
        """Without the lock."""
        job.state = JobState.ENDED
        job.error = CallsClosed(f"the program is stopping; the provider's {job.method} was not called")
        job.inbox.put(job)

    def run(self, thread: VendorThread, job: Job) -> Job | None:
        """In a vendor thread: run the job, and return the next one; None when the thread is to wait or to end.

        Without the lock.
        """
        throttled = self._execute(job)
        with self._lock:
            now = self._clock.monotonic()
            if throttled is not None:
                self._limits.throttled(
                    job.flow.kind,
                    now,
                    started=job.started,
                    retry_after=retry_after_of(throttled),
                    whole_account=getattr(throttled, "whole_account", False) is True,
                )
                throttled = None  # its traceback leads to this frame
            in_time = job.state is JobState.RUNNING
            until = None
            if in_time:
                job.state = JobState.ENDED
                self._running.discard(job)
                self._free(job)
            else:
                until = self._recover(job)
            self._changed.notify_all()
            following = self._take()
            if following is None:
                self._rest(thread)
        if in_time:
            self._on_end(job, now - job.started)
        job.inbox.put(job)
        if until is not None:
            until.set_result(None)
        return following

    def await_job(self, thread: VendorThread) -> Job | None:
        """In an idle vendor thread: wait for the next job; None when the thread is to end. Without the lock."""
        with self._lock:
            until = self._clock.monotonic() + IDLE_SECONDS
            while not thread.called():
                last = self._idle[0] is thread
                left = until - self._clock.monotonic()
                if left <= 0 and not last:
                    self._idle.remove(thread)
                    self._threads -= 1
                    return None
                self._clock.wait(thread.turn, None if last else left)
            return thread.take()

    def _recover(self, job: Job) -> Future[None] | None:
        """An overdue job ended after all."""
        job.state = JobState.LATE
        self._overdue.discard(job)
        if job in self._excess:
            self._excess.discard(job)
            self._free(job)
        jobs = self._parked.get(job.key, [])
        if job in jobs:
            jobs.remove(job)
            if not jobs:
                del self._parked[job.key]
        return job.until

    def _rest(self, thread: VendorThread) -> None:
        """Nothing to do: keep the thread for the next job, unless there are enough (its place was filled while it was
        lost) or the pool is closed."""
        if self._closed or self._busy + len(self._idle) >= self._concurrency:
            self._threads -= 1
            thread.leave()
        else:
            self._idle.append(thread)
