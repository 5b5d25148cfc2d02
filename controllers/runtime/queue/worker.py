"""Stage 4: threads that take keys off a queue (3) and run reconciles; ``outcomes.py`` decides on a
key.

:class:`Worker` runs ``reconcile(key)``. :class:`BatchWorker` puts a fetch before it: keys are taken
in batches, the cloud is asked once for each batch (5), and ``reconcile(key, answer)`` runs for each
key as its answer comes."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from attrs import evolve, field, frozen, validators
from prometheus_client import Counter

from cloudprovider.internal.cleaning import text_of
from controllers.runtime.clock import SYSTEM_CLOCK, Clock, wait_for
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue.outcomes import FailureHandling, Requeuer
from controllers.runtime.queue.results import Result, aborted
from controllers.runtime.queue.threads import LoopThreads, Progress
from controllers.runtime.queue.workqueue import ShutDown, WorkQueue

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")

STALL_AFTER = 180.0
"""Seconds after which a key that is still worked on, or that no thread takes, makes a controller
unhealthy. Waits for the cloud do not count, as their deadlines are the gateway's (`Progress`);
six times the 30 s of an API request do."""


class NotAnswered(Exception):
    """A fetch function returned without having delivered an answer for the key."""


class _Working(Generic[K]):
    """What both workers share: their threads' life and how it is seen from outside."""

    def __init__(self, queue: WorkQueue[K], requeuer: Requeuer[K]) -> None:
        self._queue = queue
        self._requeuer = requeuer
        self._progress = Progress(queue.clock)
        self._clock = queue.clock
        self._pools: list[LoopThreads[Any]] = []
        self._started = False
        self._stopped = False

    def start(self) -> None:
        """Start the threads. Raises RuntimeError when called twice or after `stop`."""
        if self._started or self._stopped:
            raise RuntimeError(f"the worker of {self._queue.name} was started or stopped before")
        self._started = True
        self._requeuer.last_settled = self._clock.monotonic()
        for pool in self._pools:
            pool.start()

    def ask_to_stop(self) -> None:
        """Shut the queue down: keys that wait are worked on, none comes any more. Does not block;
        may be called again."""
        self._stopped = True
        self._queue.shut_down(drain=self._started)
        for pool in self._pools:
            pool.stopping()

    def stop(self, timeout: float) -> bool:
        """Ask it to stop, and have waiting keys worked on for `timeout` seconds at most.

        Returns whether all is done and every thread ended; otherwise the rest of the keys is
        dropped and the threads end when their present call does. Parked keys are not waited for.
        May be called again, and from many threads."""
        deadline = self._clock.monotonic() + timeout
        self.ask_to_stop()
        drained = self._queue.wait_drained(timeout)
        if not drained:
            seconds, key = self._queue.oldest_running()
            logger.warning(
                "%s: the work did not end within %.3g s; %s%d keys wait",
                self._queue.name,
                timeout,
                f"{key} is worked on since {seconds:.3g} s, " if key is not None else "",
                len(self._queue),
            )
            self._queue.shut_down(drain=False)
        self._end_of_keys()
        # Drained, they end of themselves; all the same they get a moment in which to do so.
        left = max(deadline - self._clock.monotonic(), 1.0 if drained else 0.0)
        ended = [pool.wait_ended(left) for pool in self._pools if self._started]
        return drained and all(ended)

    def health(self) -> tuple[str, bool, str]:
        """(name of the queue, healthy, detail for people). Not started or stopped: healthy."""
        name = self._queue.name
        if not self._started or self._stopped:
            return name, True, "stopped" if self._stopped else "not started"
        missing = sum(pool.missing() for pool in self._pools)
        if missing:
            return name, False, f"{missing} of {sum(pool.count for pool in self._pools)} threads are gone"
        busy, what = self._progress.longest()
        if busy > STALL_AFTER:
            return name, False, f"{what} has been worked on for {busy:.0f} s, waits for the cloud aside"
        waits = self._queue.oldest_waiting()
        idle = self._clock.monotonic() - self._requeuer.last_settled
        if min(waits, idle) > STALL_AFTER and not self._progress.active():
            return name, False, f"{len(self._queue)} keys wait, and none was finished for {idle:.0f} s"
        seconds = self._queue.oldest_running().seconds
        parked = len(self._queue.parked())
        return name, True, f"{len(self._queue)} keys wait, the longest run takes {seconds:.1f} s, {parked} parked"

    def _end_of_keys(self) -> None:
        """The queue is shut down and drained, or its drain given up."""


class Worker(_Working[K]):
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
        clock = queue.clock
        super().__init__(queue, Requeuer(queue, failures or FailureHandling(), metrics=metrics, clock=clock))
        self._reconcile = reconcile
        restarts = _restarts(metrics).labels(queue.name)
        self._pools = [LoopThreads(queue.name, threads, queue.get, self._work, clock=clock, restarts=restarts)]

    def _work(self, key: K) -> None:
        self._requeuer.run(key, self._run, key)

    def _run(self, key: K) -> Result | None:
        with self._progress.work(key):  # over before the key is settled: parked, it is no thread's work
            return self._reconcile(key)


@frozen(kw_only=True)
class Batching:
    """How many keys are asked about at once, and by how many threads."""

    max_batch: int = field(validator=validators.ge(1))
    """Keys of one fetch."""

    linger: float = field(validator=validators.ge(0))
    """Seconds to wait for a batch to fill."""

    fetchers: int
    """Fetches under way at once."""


class FetchBuffer(Generic[K, A]):
    """Between stages 5 and 4: the cloud's answers as (key, answer) pairs, in order. Thread-safe.

    Fetch functions deliver from any thread at any time, and are not trusted to do it right. At most
    `limit` pairs and one batch of each fetcher are here."""

    def __init__(self, limit: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._limit = limit
        self._clock = clock
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._pairs: deque[tuple[K, A]] = deque()
        self._closed = False

    def __len__(self) -> int:
        return len(self._pairs)

    def put(self, key: K, answer: A) -> bool:
        """Append a pair; False when closed, and the pair is dropped."""
        with self._lock:
            if self._closed:
                return False
            self._pairs.append((key, answer))
            self._filled.notify()
            return True

    def take(self, timeout: float | None = None) -> tuple[K, A] | None:
        """Wait for the next pair; None after `timeout` seconds. Raises ShutDown once closed."""
        with self._lock:
            if not wait_for(self._clock, self._filled, lambda: bool(self._pairs or self._closed), timeout):
                return None
            if not self._pairs:
                raise ShutDown("no answers come any more")
            pair = self._pairs.popleft()
            if len(self._pairs) < self._limit:
                self._room.notify_all()  # each that waited for room is one of few who look for work
            return pair

    def wait_room(self) -> None:
        """Wait until fewer pairs than the limit are here, or it is closed."""
        # Those who ask keep the bound: to block a delivery would hold up a thread of the vendor pool.
        with self._lock:
            while len(self._pairs) >= self._limit and not self._closed:
                self._room.wait()

    def close(self) -> None:
        """Drop what is here and take nothing more in. May be called again."""
        with self._lock:
            self._closed = True
            self._pairs.clear()
            self._filled.notify_all()
            self._room.notify_all()


class Batch(Generic[K, A]):
    """The keys of one fetch, of which each gets one answer. Others are logged, for `stray`.

    `stray` gets "twice", "unknown" (a key that is not of this batch) or "late" (after the fetch
    function returned, when the key has been requeued already)."""

    def __init__(self, name: str, keys: Sequence[K], answers: FetchBuffer[K, A], stray: Callable[[str], None]) -> None:
        self._name = name
        self._keys = keys
        self._answers = answers
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
        elif not self._answers.put(key, answer):
            logger.debug("%s: the answer for %s came after the end", self._name, key)

    def close(self) -> list[K]:
        """Accept no further answers; return the keys without one, in the batch's order."""
        with self._lock:
            self._closed = True
            return list(self._pending)


class BatchWorker(_Working[K], Generic[K, A]):
    """Fetchers that ask for batches of keys, and threads that run ``reconcile(key, answer)`` each.

    Threads of both kinds start with the work and end without it (`threads.py`). A fetcher takes
    keys and calls ``fetch(keys, deliver)``. Fetch calls ``deliver(key, answer)`` once for each key,
    as the answers come, from any thread; an exception is an answer too. Keys that have none when
    fetch returns or raises are settled as failed. Each answer goes to one of `threads` threads."""

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
        failures = evolve(failures, expected=(NotAnswered, *failures.expected))
        clock = queue.clock
        super().__init__(queue, Requeuer(queue, failures, metrics=metrics, clock=clock))
        self._fetch = fetch
        self._reconcile = reconcile
        self._batching = batching
        limit = 2 * max(batching.max_batch, threads)
        self._answers: FetchBuffer[K, A | Exception] = FetchBuffer(limit, clock)
        name = queue.name
        self._strays = metrics.counter(
            "controller_stray_answers_total",
            "Answers of a fetch that were dropped: delivered twice, late, or for a key not asked for.",
            ["name", "kind"],
        )
        metrics.gauge(
            "controller_answers_waiting", "Answers of the cloud that wait for a reconcile thread.", ["name"]
        ).labels(name).set_function(self._answers.__len__)
        restarts = _restarts(metrics).labels(name)
        self._pools = [
            LoopThreads(f"{name}-fetch", batching.fetchers, self._batch, self._ask_for, clock=clock, restarts=restarts),
            LoopThreads(name, threads, self._answers.take, self._work, clock=clock, restarts=restarts),
        ]

    def _batch(self, timeout: float | None) -> list[K] | None:
        self._answers.wait_room()
        return self._queue.get_many(self._batching.max_batch, self._batching.linger, timeout) or None

    def _ask_for(self, keys: Sequence[K]) -> None:
        name = self._queue.name
        batch = Batch(name, keys, self._answers, lambda kind: self._strays.labels(name, kind).inc())
        without: Exception = NotAnswered("the fetch returned without an answer for it")
        try:
            with self._progress.work(f"a batch of {len(keys)} keys ({keys[0]}, ...)"):
                self._fetch(tuple(keys), batch.deliver)
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

    def _work(self, pair: tuple[K, A | Exception]) -> None:
        key, answer = pair
        self._requeuer.run(key, self._run, key, answer)

    def _run(self, key: K, answer: A | Exception) -> Result | None:
        with self._progress.work(key):
            return self._reconcile(key, answer)

    def _end_of_keys(self) -> None:
        self._answers.close()


def _restarts(metrics: Metrics) -> Counter:
    return metrics.counter(
        "controller_worker_restarts_total",
        "Worker threads whose loop broke off unexpectedly and was entered again.",
        ["name"],
    )
