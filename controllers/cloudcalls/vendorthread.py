"""A thread that runs vendor code (stage 5, cloud call), and how the pool hands it one job after the other.

Made by `pool.py`, which decides what a thread does next and may give it up for lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from controllers.cloudcalls.jobs import Job

__all__ = ["VendorThread"]


class VendorThread(threading.Thread):
    """Runs jobs one after the other. A daemon: code that never returns must not keep the process alive."""

    def __init__(
        self,
        run_job: Callable[[VendorThread, Job], Job | None],
        await_job: Callable[[VendorThread], Job | None],
        lock: threading.Lock,
        job: Job,
        name: str,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.turn = threading.Condition(lock)  # something was handed over; the lock is the pool's
        self._run_job = run_job
        self._await_job = await_job
        self._job: Job | None = job
        self._leaving = False

    def hand(self, job: Job) -> None:
        """Give the idle thread its next job. As the next three with the pool's lock."""
        self._job = job
        self.turn.notify()

    def leave(self) -> None:
        """End, after the present job if there is one."""
        self._leaving = True
        self.turn.notify()

    def called(self) -> bool:
        """Whether it is to do something else than to wait."""
        return self._leaving or self._job is not None

    def take(self) -> Job | None:
        """What was handed over; None when it is to end."""
        job, self._job = self._job, None
        return job

    def run(self) -> None:
        job = self._job
        self._job = None
        while job is not None:
            following = self._run_job(self, job)
            del job  # an idle thread holds on to nothing of its last call
            job = self._await_job(self) if following is None else following
            del following
