"""The queue of keys between events and reconciles (stage 3): from triggers to workers.

The semantics are those of client-go's ``util/workqueue``: queue, delaying queue and rate limiting
queue in one. Added to it are a minimum interval between a key's runs, groups that take turns
(`FairQueue`), parked keys, and batches (``get_many``).
"""

import logging
import math
import random
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from cloudprovider.internal.backoff import Backoff
from controllers.runtime.clock import Clock, wait_for
from controllers.runtime.fairqueue import FairQueue
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue.keys import Item, Keys, QueueGauges, QueueStats, Running, Unfinished
from controllers.runtime.queue.metrics import WorkQueueCollector

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

_LONGEST_WAIT = 3600.0


class ShutDown(Exception):
    """The queue is shut down and has nothing left to hand out: the worker may end."""


class WorkQueue(Generic[K]):
    """A queue of hashable keys. Every method may be called from any thread; only ``get*`` and
    ``wait_drained`` wait.

    A key waits at most once, however often it is added, and is worked on by one worker at a time.
    One that is added meanwhile runs once more after ``done``.

    `name` is the ``name`` label of its metrics, `min_interval` is in seconds, and `chance` returns
    numbers from 0 to 1 for the jitter. `waiting` decides whose turn it is; by default all keys are
    one group.
    """

    def __init__(
        self,
        name: str,
        *,
        clock: Clock,
        metrics: Metrics,
        backoff: Backoff | None = None,
        min_interval: float = 0.0,
        chance: Callable[[], float] = random.random,
        waiting: FairQueue[Item[K]] | None = None,
    ) -> None:
        if not (min_interval >= 0 and math.isfinite(min_interval)):
            raise ValueError(f"queue {name}: min_interval must be a number of seconds from 0, got {min_interval}")
        self.name = name
        self.noun = "key"
        """What the keys are, and whose work they are: said by the worker."""
        self.controller = name
        self._min_interval = min_interval
        self._backoff = Backoff() if backoff is None else backoff
        self._chance = chance
        self.clock = clock
        self._now = clock.monotonic
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._drained = threading.Condition(self._lock)
        self._drainers = 0

        self._keys: Keys[K] = Keys(FairQueue() if waiting is None else waiting, self._changed, clock)
        self._parked = 0
        self._closed = False

        WorkQueueCollector.of(metrics).watch(self, self._keys.stats)

    # ---- putting keys in ----

    def add(self, key: K, priority: int = 0) -> None:
        """Have the key run as soon as a worker is free. The highest priority counts."""
        with self._lock:
            if self._closed:
                return
            now = self._keys.catch_up()
            self._keys.mark(self._keys.item(key), priority, now, now)

    def add_after(
        self, key: K, delay: float, priority: int | None = None, *, routine: bool = False, problem: str = ""
    ) -> None:
        """Have the key run in `delay` seconds, or at the time already set for it if earlier.

        Without a priority, a key that is being worked on keeps the one of this run and another one
        gets 0. `routine`: only time asks for it; `problem`: why it did not succeed; both for
        `unfinished`. Raises ValueError for a delay that is no finite number."""
        if not math.isfinite(delay):
            raise ValueError(f"queue {self.name}: the delay of {key!r} is {delay}")
        with self._lock:
            if not self._closed:
                now = self._keys.catch_up()
                item = self._keys.item(key)
                item.problem = problem or item.problem
                self._keys.schedule(item, delay, priority, now, routine=routine)

    def add_rate_limited(self, key: K, priority: int | None = None, *, least: float = 0.0, problem: str = "") -> float:
        """Have the key run after its backoff, `least` seconds at least; count a failure; the delay.

        `problem` says why, for `unfinished`."""
        with self._lock:
            now = self._keys.catch_up()
            item = self._keys.item(key)
            delay = max(least, self._backoff.delay(item.failures, self._chance()))
            if not self._closed:
                item.failures += 1
                item.problem = problem
                self._keys.schedule(item, delay, priority, now)
            return delay

    def forget(self, key: K) -> None:
        """End the key's backoff: its next failure counts as the first. It may run or not."""
        with self._lock:
            item = self._keys.items.get(key)
            if item is not None and (item.failures or item.problem):
                self._keys.forget(item, self._keys.catch_up())

    def next_run(self, key: K) -> float:
        """The seconds until the key can run again: its delay or its interval. inf: it need not."""
        with self._lock:
            now = self._keys.catch_up()
            item = self._keys.items.get(key)
            # It may still be known, for its failures or its interval, without having to run.
            if item is None or not (item.dirty or item.due is not None):
                return math.inf
            due = now if item.dirty or item.due is None else item.due
            return max(due, now + self._min_interval if item.running else item.ready_at) - now

    def resting(self, key: K) -> float:
        """The seconds until the turn of what failed; 0.0 if nothing did, or it is its turn."""
        with self._lock:
            now = self._keys.catch_up()
            item = self._keys.items.get(key)
            # A delay that a success asked for is no reason to keep a key from running now.
            if item is None or item.due is None or not (item.failures or item.problem):
                return 0.0
            return item.due - now

    def num_requeues(self, key: K) -> int:
        """How often the key was added rate limited since it was last forgotten."""
        with self._lock:
            item = self._keys.items.get(key)
            return 0 if item is None else item.failures

    # ---- taking keys out ----

    def get(self, timeout: float | None = None) -> K | None:
        """Hand out the next key; None when none came within `timeout` seconds (None: no end).

        The caller must call ``done`` for it in the end. Raises ShutDown at the end."""
        with self._lock:
            deadline = None if timeout is None else self._now() + timeout
            key = self._keys.take(self._now()) if self._await(deadline, batch=False) else None
            self._changed.notify()  # the caller leaves: another one, if any waits, looks for what is left
            return key

    def get_many(self, max_batch: int, linger: float, timeout: float | None = None) -> list[K]:
        """Hand out 1 to `max_batch` keys; [] when none came within `timeout` seconds (or None).

        Waits for the batch to fill until the key that has waited longest has done so for `linger`
        seconds. One caller does so at a time and the others leave it what comes, so that batches
        are few and full. ``done`` must be called for each key. Raises ShutDown when there is
        nothing more to come, ValueError for a batch below 1."""
        if max_batch < 1:
            raise ValueError(f"queue {self.name}: max_batch must be at least 1, got {max_batch}")
        with self._lock:
            deadline = None if timeout is None else self._now() + timeout
            keys: list[K] = []
            while not keys and self._await(deadline, batch=True):
                if linger > 0:
                    self._fill_batch(max_batch, linger)
                now = self._now()
                # None are left where a plain get took them meanwhile.
                keys = [self._keys.take(now) for _ in range(min(max_batch, self._keys.waiting.ready))]
            self._changed.notify()  # the caller leaves: another one, if any waits, looks for what is left
            return keys

    def done(self, key: K) -> None:
        """End the work on a key that was handed out. Raises ValueError for another."""
        with self._lock:
            item = self._keys.running.pop(key, None)
            if item is None:
                raise ValueError(f"queue {self.name}: done({key!r}), which is not being worked on")
            now = self._keys.catch_up()
            if item.parked:
                item.parked = False
                self._parked -= 1
                # The end does not wait for it: those who would run it once more may have gone.
                if self._closed and item.dirty:
                    item.dirty = False
                    self._keys.dirty -= 1
            elif self._keys.waiting.ended(key):
                self._keys.wake()
            # A queue that drains waits for no interval.
            self._keys.done(item, now, 0.0 if self._closed else self._min_interval)
            self._work_ended()

    def park(self, key: K) -> None:
        """Say that no worker here is busy with a key any more, though it goes on elsewhere.

        It is still handed to no worker before ``done``, but a draining queue, ``wait_drained`` and
        ``oldest_running`` regard it no longer. Parking it again does nothing. Raises ValueError for
        a key that is not being worked on."""
        with self._lock:
            item = self._keys.running.get(key)
            if item is None:
                raise ValueError(f"queue {self.name}: park({key!r}), which is not being worked on")
            # The call may be given up twice, by its deadline and by a shutdown.
            if not item.parked:
                item.parked = True
                self._parked += 1
                # It is no worker's: its group may have another one in work.
                if self._keys.waiting.ended(key):
                    self._keys.wake()
                self._work_ended()

    # ---- the end ----

    def shut_down(self, drain: bool = True) -> None:
        """Take nothing in any more and drop delayed keys.

        With `drain` the keys that wait are handed out first, held ones too, and a key added during
        its work runs again; otherwise they are dropped too. May be called again, also to stop
        draining.
        """
        with self._lock:
            self._keys.catch_up()
            self._closed = True
            dropped = self._keys.close(drain)
            if dropped:
                logger.info("queue %s: shut down; keys that were to run later: %d", self.name, dropped)
            self._changed.notify_all()
            self._drained.notify_all()

    @property
    def shutting_down(self) -> bool:
        return self._closed

    def wait_drained(self, timeout: float | None = None) -> bool:
        """Wait until no key waits for a worker or is being worked on, parked ones aside; False if
        late.

        Keys delayed or held don't count, so before ``shut_down`` it only says that
        nothing is to do now."""
        with self._lock:
            self._drainers += 1
            try:
                return wait_for(self.clock, self._drained, self._is_drained, timeout)
            finally:
                self._drainers -= 1

    # ---- looking at it ----

    def __len__(self) -> int:
        """Keys that could be handed out at once."""
        with self._lock:
            self._keys.catch_up()
            return self._keys.waiting.ready

    def oldest_running(self) -> Running:
        """The key that a worker is busy with for longest. Parked keys are not a worker's."""
        with self._lock:
            # A parked one has no thread here: its call is the gateway's to tell of.
            busy = [item for item in self._keys.running.values() if not item.parked]
            if not busy:
                return Running(0.0, None)
            oldest = min(busy, key=lambda item: item.started)
            return Running(self._now() - oldest.started, oldest.key)

    def oldest_waiting(self) -> float:
        """Seconds since the oldest of the keys that could be handed out was added or due; 0.0
        without such keys."""
        with self._lock:
            now = self._keys.catch_up()
            return now - self._keys.waiting.oldest() if self._keys.waiting.ready else 0.0

    def parked(self) -> list[K]:
        """The parked keys."""
        with self._lock:
            return [item.key for item in self._keys.running.values() if item.parked]

    def unfinished(self) -> list[Unfinished]:
        """What is left to do: the keys that wait, are worked on, failed without a definite answer,
        or run again for another reason than the time."""
        with self._lock:
            now = self._keys.catch_up()
            left = [
                item
                for item in self._keys.items.values()
                if item.dirty
                or item.running
                or (item.due is not None and (item.problem or item.failures or not item.routine))
            ]
            return [Unfinished.of(item, now) for item in left]

    def measure(self) -> tuple[QueueStats, QueueGauges]:
        """A copy of what was counted, and what holds now, for the metrics."""
        with self._lock:
            now = self._keys.catch_up()
            ages = [now - item.started for item in self._keys.running.values()]
            return self._keys.stats.copy(), QueueGauges(self._keys.dirty, sum(ages), max(ages, default=0.0))

    # ---- inside, with the lock held: threads ----

    def _await(self, deadline: float | None, batch: bool) -> bool:
        """Wait until the caller may take a key (True) or time is up (False). Raises ShutDown."""
        while True:
            now = self._keys.catch_up()
            ready = self._keys.waiting.ready
            # What comes while another thread fills a batch is left to that.
            if ready and (not batch or self._closed or ready >= self._keys.wanted):
                return True
            if (
                self._closed
                and not len(self._keys.waiting)
                and not any(item.dirty and not item.parked for item in self._keys.running.values())
            ):
                raise ShutDown(f"queue {self.name} is shut down")
            if deadline is not None and now >= deadline:
                return False
            ends = [at for at in (self._keys.next_due(), deadline) if at is not None]
            # A Condition takes no end of seconds.
            self.clock.wait(self._changed, min(min(ends) - now, _LONGEST_WAIT) if ends else None)

    def _fill_batch(self, max_batch: int, linger: float) -> None:
        """Wait for a full batch, until the oldest key has waited for `linger`. No other thread
        does so now."""
        end = self._keys.waiting.oldest() + linger
        self._keys.wanted = max_batch  # or each key that comes would wake this thread
        try:
            while self._keys.waiting.ready < max_batch and not self._closed and (left := end - self._now()) > 0:
                self.clock.wait(self._changed, left)
                self._keys.catch_up()
        finally:
            self._keys.wanted = 1

    def _work_ended(self) -> None:
        if self._closed:
            self._changed.notify_all()  # they may wait to see whether this key runs again
        # With each key that ends: only where somebody waits for it is it worth the look.
        if self._drainers and self._is_drained():
            self._drained.notify_all()

    def _is_drained(self) -> bool:
        return not len(self._keys.waiting) and len(self._keys.running) == self._parked
