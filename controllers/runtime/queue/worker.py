"""Stage 4: threads that take keys off a queue (3) and run reconciles; ``outcomes.py`` decides on a
key.

:class:`Worker` runs ``reconcile(key)``. :class:`BatchWorker` puts a fetch before it: keys are taken
in batches, the cloud is asked once for each batch (5), and ``reconcile(key, answer)`` runs for each
key as its answer comes."""

import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Generic, TypeVar, cast

from attrs import evolve, field, frozen, validators

from cloudprovider.internal.backoff import Backoff
from cloudprovider.internal.cleaning import text_of
from cloudprovider.threads import NoThreadLeft, ThreadPool
from controllers.runtime.clock import ClockEvent, Progress
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue.outcomes import FailureHandling, Requeuer, Result, aborted
from controllers.runtime.queue.workqueue import ShutDown, WorkQueue

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")
W = TypeVar("W")

IDLE_SECONDS: Final = 15.0
"""A thread that was not needed for so long ends."""
_PAUSES: Final = Backoff(base=0.01, cap=5.0, at_once=1)
_LAST_CHANCES: Final = 3
STALL_AFTER = 180.0
"""Seconds after which a key that is still worked on, or that no thread takes, makes a controller
unhealthy. Waits for the cloud do not count, as their deadlines are the gateway's (`Progress`);
six times the 30 s of an API request do."""


class NotAnswered(Exception):
    """A fetch function returned without having delivered an answer for the key."""


class _Working(Generic[K, W]):
    """What both workers share: threads that each take a piece of work and work on it, and how that
    is seen from outside.

    One thread waits for the next piece, or all are at work (leader and followers): so a piece is
    worked on by the thread that took it, and whoever is to be woken is one thread. What raises, be
    it SystemExit, costs its piece: it is logged and counted."""

    def __init__(
        self,
        queue: WorkQueue[K],
        failures: FailureHandling[K],
        take: Callable[[], W],
        *,
        name: str,
        threads: int,
        metrics: Metrics,
    ) -> None:
        """`take` waits for the next piece of work, and raises ShutDown when none will come."""
        self._take = take
        self._queue = queue
        self._clock = queue.clock
        self._requeuer = Requeuer(queue, failures, metrics=metrics, clock=queue.clock)
        self._progress = Progress(queue.clock)
        self._threads = ThreadPool(name, threads, idle_seconds=IDLE_SECONDS, patient=True, clock=queue.clock)
        self._restarts = metrics.counter(
            "controller_worker_restarts_total",
            "Worker threads whose loop broke off unexpectedly and was entered again.",
            ["name"],
        ).labels(queue.name)
        self._failures = 0  # of threads, in a row
        self._failed_at = 0.0
        self._started = False
        self._stopping = ClockEvent(queue.clock)

    def _work(self, piece: W) -> None:
        """Do it."""
        raise NotImplementedError

    def _end_of_keys(self) -> None:
        """The queue is shut down and drained, or its drain given up."""

    def start(self) -> None:
        """Start the first thread. Raises NoThreadLeft, and RuntimeError when called twice or after
        `stop`."""
        # A queue that is shut down hands out nothing more: a worker begins once.
        if self._started or self._stopping.is_set():
            raise RuntimeError(f"the worker of {self._queue.name} was started or stopped before")
        self._started = True
        # Keys may have waited for the informers until now: that was no stall.
        self._requeuer.last_settled = self._clock.monotonic()
        self._threads.run(self._serve)

    def ask_to_stop(self) -> None:
        """Shut the queue down: keys that wait are worked on, none comes any more. Does not block;
        may be called again."""
        self._stopping.set()
        self._queue.shut_down(drain=self._started)

    def stop(self, timeout: float) -> bool:
        """Ask it to stop, and have waiting keys worked on for `timeout` seconds at most.

        Returns whether all is done; otherwise the rest of the keys is dropped, and the threads end
        when their present call does. Parked keys are not waited for. May be called again, and from
        many threads."""
        deadline = self._clock.monotonic() + timeout
        self.ask_to_stop()
        # A fetch goes on after its last answer, whose key is done: it may still ask the cloud.
        drained = self._queue.wait_drained(timeout) and self._progress.wait_idle(deadline - self._clock.monotonic())
        # Which key holds it up: it is what somebody asks first who sees a slow stop.
        if not drained:
            seconds, what = self._queue.oldest_running()
            if what is None:
                seconds, what = self._progress.longest()
            logger.warning(
                "%s: the work did not end within %.3g s; %s%d keys wait",
                self._queue.name,
                timeout,
                f"{what} is worked on since {seconds:.3g} s, " if what is not None else "",
                len(self._queue),
            )
            self._queue.shut_down(drain=False)
        self._end_of_keys()
        return drained

    def health(self) -> tuple[str, bool, str]:
        """(name of the queue, healthy, detail for people). Not started or stopped: healthy."""
        name = self._queue.name
        if not self._started or self._stopping.is_set():
            return name, True, "stopped" if self._stopping.is_set() else "not started"
        busy, what = self._progress.longest()
        if busy > STALL_AFTER:
            return name, False, f"{what} has been worked on for {busy:.0f} s, waits for the cloud aside"
        waits = self._queue.oldest_waiting()
        idle = self._clock.monotonic() - self._requeuer.last_settled
        # While any thread is at work, were it in a long call of the cloud, keys may have to wait.
        if min(waits, idle) > STALL_AFTER and what is None:
            return name, False, f"{len(self._queue)} keys wait, and none was finished for {idle:.0f} s"
        seconds = self._queue.oldest_running().seconds
        parked = len(self._queue.parked())
        return name, True, f"{len(self._queue)} keys wait, the longest run takes {seconds:.1f} s, {parked} parked"

    def _serve(self) -> None:
        """Wait for a piece of work, leave the next one to another thread, and work."""
        followed = False
        while not followed:
            try:
                piece = self._take()
                try:
                    # Before the work: a key that hangs must not keep the next one from being taken.
                    # Where no further thread can be had, the first that is free takes it.
                    self._threads.run(self._serve)
                    followed = True
                finally:
                    self._work(piece)  # it is taken: whatever happened, it is not lost
            except ShutDown:
                self._threads.close()  # nothing will come any more: idle ones end
                return
            except BaseException as error:  # noqa: BLE001 - a thread's top: what raises is logged and counted
                if self._broke_off(error):
                    self._threads.close()
                    return

    def _broke_off(self, error: BaseException) -> bool:
        """This thread's work raised what is no error of a key: count it, log it, and pause. Returns
        whether another try is not worth it, as all is about to stop."""
        with suppress(Exception):  # no memory for the line, say: there is none then, and the thread goes on
            self._restarts.inc()
            logger.critical("%s: a worker thread failed and was restarted", self._queue.name, exc_info=error)
        # At once after a clean time; what fails again and again must not fill the log.
        now = self._clock.monotonic()
        self._failures = 1 if now - self._failed_at >= _PAUSES.cap else self._failures + 1
        self._failed_at = now
        return self._stopping.wait(_PAUSES.delay(self._failures - 1)) and self._failures > _LAST_CHANCES


class Worker(_Working[K, K]):
    """Up to `threads` threads that run ``reconcile(key)`` for the keys of a queue; never two at
    once for one key."""

    def __init__(
        self,
        queue: WorkQueue[K],
        reconcile: Callable[[K], Result | None],
        *,
        threads: int,
        failures: FailureHandling[K] | None = None,
        metrics: Metrics,
    ) -> None:
        failures = failures or FailureHandling()
        get = cast(Callable[[], K], queue.get)  # without a timeout it always returns a key
        super().__init__(queue, failures, get, name=queue.name, threads=threads, metrics=metrics)
        self._reconcile = reconcile

    def _work(self, key: K) -> None:
        # Over before the key is settled: parked, it is no thread's work.
        self._requeuer.run(key, self._progress.run, key, self._reconcile, key)


@frozen(kw_only=True)
class Batching:
    """How many keys are asked about at once, and by how many threads."""

    max_batch: int = field(validator=validators.ge(1))
    """Keys of one fetch."""

    linger: float = field(validator=validators.ge(0))
    """Seconds to wait for a batch to fill."""

    fetchers: int
    """Fetches under way at once."""


class Batch(Generic[K, A]):
    """The keys of one fetch, of which each gets one answer, for `found`. Others are logged, for
    `stray`. Fetch functions deliver from any thread at any time, and are not trusted to do it right.

    `stray` gets "twice", "unknown" (a key that is not of this batch) or "late" (after the fetch
    function returned, when the key has been requeued already)."""

    def __init__(
        self, name: str, keys: Sequence[K], found: Callable[[K, A], object], stray: Callable[[str], None]
    ) -> None:
        self._name = name
        self._keys = keys
        self._found = found
        self._stray = stray
        self._lock = threading.Lock()
        self._pending = dict.fromkeys(keys)
        self._closed = False

    def deliver(self, key: K, answer: A) -> None:
        """Hand the answer on. Called once per key, from any thread."""
        with self._lock:
            if self._closed:
                kind = "late"
            elif key in self._pending:
                del self._pending[key]
                kind = ""
            else:
                kind = "twice" if key in self._keys else "unknown"
        if kind:
            self._stray(kind)
            logger.warning("%s: an answer for %s was not expected (%s) and is dropped", self._name, key, kind)
        else:
            self._found(key, answer)

    def close(self) -> list[K]:
        """Accept no further answers; return the keys without one, in the batch's order."""
        with self._lock:
            self._closed = True
            return list(self._pending)


class BatchWorker(_Working[K, list[K]], Generic[K, A]):
    """Fetchers that ask for batches of keys, and threads that run ``reconcile(key, answer)`` each.

    Threads of both kinds start with the work and end without it. A fetcher takes keys and calls
    ``fetch(keys, deliver)``. Fetch calls ``deliver(key, answer)`` once for each key, as the answers
    come, from any thread; an exception is an answer too. Keys that have none when fetch returns or
    raises are settled as failed. Each answer goes to one of `threads` threads."""

    def __init__(
        self,
        queue: WorkQueue[K],
        fetch: Callable[[Sequence[K], Callable[[K, A | Exception], None]], None],
        reconcile: Callable[[K, A | Exception], Result | None],
        *,
        batching: Batching,
        threads: int,
        failures: FailureHandling[K] | None = None,
        metrics: Metrics,
    ) -> None:
        failures = failures or FailureHandling()
        # Neither is a fault in our code: no stack is logged.
        failures = evolve(failures, expected=(NotAnswered, NoThreadLeft, *failures.expected))
        fetchers = batching.fetchers
        super().__init__(queue, failures, self._batch, name=f"{queue.name}-fetch", threads=fetchers, metrics=metrics)
        self._fetch = fetch
        self._reconcile = reconcile
        self._batching = batching
        self._limit = 2 * max(batching.max_batch, threads)
        self._room = threading.Condition(threading.Lock())
        self._waiting = 0  # answers that no thread has taken up yet
        self._dropping = False
        name = queue.name
        self._answers = ThreadPool(name, threads, idle_seconds=IDLE_SECONDS, patient=True, clock=queue.clock)
        self._strays = metrics.counter(
            "controller_stray_answers_total",
            "Answers of a fetch that were dropped: delivered twice, late, or for a key not asked for.",
            ["name", "kind"],
        )
        metrics.gauge(
            "controller_answers_waiting", "Answers of the cloud that wait for a reconcile thread.", ["name"]
        ).labels(name).set_function(lambda: self._waiting)

    def _batch(self) -> list[K]:
        """Wait for the next keys to ask about."""
        # Here, and not where answers are delivered: that would hold up a thread of the vendor pool.
        with self._room:
            while self._waiting >= self._limit and not self._dropping:
                self._room.wait()
        return self._queue.get_many(self._batching.max_batch, self._batching.linger)

    def _work(self, keys: list[K]) -> None:
        name = self._queue.name
        batch = Batch(name, keys, self._found, lambda kind: self._strays.labels(name, kind).inc())
        without: Exception = NotAnswered("the fetch returned without an answer for it")
        try:
            what = f"a batch of {len(keys)} keys ({keys[0]}, ...)"
            self._progress.run(what, self._fetch, tuple(keys), batch.deliver)
        except Exception as error:
            without = error
            logger.warning(
                "%s: the fetch of %d keys broke off before %d of them were answered: %s: %s",
                name,
                len(keys),
                len(batch.close()),
                type(error).__name__,
                text_of(error),
                exc_info=not isinstance(error, self._requeuer.expected),
            )
        except BaseException as error:
            without = aborted(error)
            raise
        finally:  # no key is lost, whatever the fetch did: one without an answer backs off
            for key in batch.close():
                self._requeuer.settle(key, without, stack=False)
            del without  # an error's traceback holds this frame

    def _found(self, key: K, answer: A | Exception) -> None:
        """Have a thread reconcile it, as soon as one is free."""
        with self._room:
            # Its key is dropped with the queue: nothing is begun, or told, that nobody waits for.
            if self._dropping:
                return
            self._waiting += 1
        try:
            self._answers.run(partial(self._answered, key, answer))
        except (NoThreadLeft, MemoryError) as error:
            with self._room:
                self._waiting -= 1
                self._room.notify()
            # The answer is lost, the key is not: it backs off and is asked about again.
            self._requeuer.settle(key, error)

    def _answered(self, key: K, answer: A | Exception) -> None:
        with self._room:
            self._waiting -= 1
            if self._waiting < self._limit:
                self._room.notify()
            if self._dropping:
                return
        try:
            self._requeuer.run(key, self._progress.run, key, self._reconcile, key, answer)
        except BaseException as error:  # noqa: BLE001 - a thread's top, as in `_serve`
            self._broke_off(error)

    def _end_of_keys(self) -> None:
        with self._room:
            self._dropping = True
            self._room.notify()
        self._answers.close()
