"""Stage 3, the inside of the queue: its state, what can be seen of it, and the moves under its lock.

``workqueue.py`` is the outside: what may be asked of a queue, and what that means.
"""

import math
import random
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from controllers.runtime.clock import Clock
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue.items import Backoff, Item, Lanes, Running, Unfinished
from controllers.runtime.queue.timers import Timers
from controllers.runtime.queue.waiters import Waiters
from controllers.runtime.queue.workqueuemetrics import QueueGauges, QueueStats, WorkQueueCollector

__all__ = ["QueueCore", "ShutDown"]

K = TypeVar("K", bound=Hashable)


class ShutDown(Exception):
    """The queue is shut down and has nothing left to hand out: the worker may end."""


class QueueCore(Generic[K]):
    """The state of one queue. For ``WorkQueue`` alone."""

    def __init__(
        self,
        name: str,
        *,
        clock: Clock,
        metrics: Metrics,
        backoff: Backoff | None = None,
        floor: float = 0.0,
        chance: Callable[[], float] = random.random,
        lanes: Lanes[K] | None = None,
    ) -> None:
        if not (floor >= 0 and math.isfinite(floor)):
            raise ValueError(f"queue {name}: floor must be a number of seconds from 0, got {floor}")
        self.name = name
        self.noun = "key"
        """What the keys are, and whose work they are: said by the worker."""
        self.controller = name
        self._floor = floor
        self._backoff = Backoff() if backoff is None else backoff
        self._chance = chance
        self._clock = clock
        self._now = clock.monotonic
        self._stats = QueueStats()

        self._lock = threading.Lock()
        self._waiters = Waiters(self._lock, clock)
        self._drained = threading.Condition(self._lock)
        self._drainers = 0

        self._items: dict[K, Item[K]] = {}
        self._lanes: Lanes[K] = Lanes() if lanes is None else lanes
        self._running: dict[K, Item[K]] = {}
        self._parked = 0
        self._dirty = 0
        self._timers: Timers[K] = Timers()
        self._closed = False

        WorkQueueCollector.of(metrics).watch(self, self._stats)

    # ---- looking at it ----

    def __len__(self) -> int:
        """Keys that could be handed out at once."""
        with self._lock:
            self._catch_up()
            return self._lanes.size

    def oldest_running(self) -> Running:
        """The key that a worker has been busy with for the longest time. Parked keys are not a worker's."""
        with self._lock:
            busy = [item for item in self._running.values() if not item.parked]
            if not busy:
                return Running(0.0, None)
            oldest = min(busy, key=lambda item: item.started)
            return Running(self._now() - oldest.started, oldest.key)

    def oldest_waiting(self) -> float:
        """Seconds since the oldest of the keys that could be handed out was added or due; 0.0 without such keys."""
        with self._lock:
            now = self._catch_up()
            return now - self._lanes.oldest() if self._lanes.size else 0.0

    def parked(self) -> list[K]:
        """The parked keys."""
        with self._lock:
            return [item.key for item in self._running.values() if item.parked]

    def unfinished(self) -> list[Unfinished]:
        """What is left to do: the keys that wait, are worked on, or run again for another reason than the time."""
        with self._lock:
            now = self._catch_up()
            left = [
                item
                for item in self._items.values()
                if item.dirty or item.running or (item.due is not None and not item.routine)
            ]
            return [Unfinished.of(item, now) for item in left]

    def measure(self) -> tuple[QueueStats, QueueGauges]:
        """A copy of what was counted, and what holds now, for the metrics."""
        with self._lock:
            now = self._catch_up()
            ages = [now - item.started for item in self._running.values()]
            return self._stats.copy(), QueueGauges(self._dirty, sum(ages), max(ages, default=0.0))

    # ---- inside, with the lock held: keys ----

    def _item(self, key: K) -> Item[K]:
        item = self._items.get(key)
        if item is None:
            item = self._items[key] = Item(key)
        return item

    def _mark(self, item: Item[K], priority: int, since: float, now: float) -> None:
        """The key has to run."""
        if item.dirty:
            if priority > item.priority:
                self._lanes.move(item, priority)
            return
        item.dirty = True
        item.priority = priority
        item.added = since
        self._dirty += 1
        self._stats.adds += 1
        if not item.running:
            self._place(item, now)

    def _place(self, item: Item[K], now: float) -> None:
        """A dirty key that nobody works on gets into a lane, or waits for the end of its floor."""
        if item.free_at > now:
            self._timers.freeze(item)
            self._waiters.remind(item.free_at)
        else:
            self._lanes.push(item)
            self._waiters.wake(self._lanes.size)

    def _add_after(
        self, item: Item[K], delay: float, priority: int | None, now: float, *, routine: bool = False
    ) -> None:
        self._stats.retries += 1
        if priority is None:
            priority = item.run_priority if item.running else 0
        if delay <= 0:
            self._mark(item, priority, now, now)
            return
        item.routine = routine and (item.routine or item.due is None)
        if self._timers.delay(item, now + delay, priority):
            self._waiters.remind(now + delay)

    def _catch_up(self) -> float:
        """Move the keys whose delay or floor has ended, each as at its own time, and return the time it is now."""
        now = self._now()
        if self._timers.is_due(now):
            for then, item, cooled in self._timers.collect(now):
                if not cooled:
                    self._mark(item, item.due_priority, then, then)
                elif item.frozen:
                    self._timers.thaw(item)
                    self._lanes.push(item)
                    self._waiters.wake(self._lanes.size)
                else:
                    self._release(item, then)
        return now

    def _take(self, now: float) -> K:
        item = self._lanes.pop()
        self._dirty -= 1
        item.dirty = False
        item.running = True
        item.started = now
        item.run_priority = item.priority
        self._running[item.key] = item
        self._stats.queued.observe(now - item.added)
        return item.key

    def _release(self, item: Item[K], now: float) -> None:
        if item.is_blank(now) and self._items.get(item.key) is item:
            del self._items[item.key]

    # ---- inside, with the lock held: threads ----

    def _await(self, deadline: float | None, batch: bool) -> bool:
        """Wait until the caller may take a key (True) or its time is up (False). Raises ShutDown."""
        while True:
            now = self._catch_up()
            if self._lanes.size and not (batch and self._waiters.gathering and not self._closed):
                return True
            if (
                self._closed
                and not self._lanes.waiting
                and not any(item.dirty and not item.parked for item in self._running.values())
            ):
                raise ShutDown(f"queue {self.name} is shut down")
            if deadline is not None and now >= deadline:
                return False
            self._waiters.wait(now, self._timers.next_due(), deadline)

    def _gather(self, max_batch: int, linger: float) -> None:
        """Wait for a full batch, until the oldest key has waited for `linger`. Nobody else gathers now."""
        end = self._lanes.oldest() + linger
        while self._lanes.size < max_batch and not self._closed:
            left = end - self._now()
            if left <= 0:
                break
            self._waiters.gather(max_batch, left)
            self._catch_up()

    def _pass_on(self) -> None:
        self._waiters.pass_on(self._lanes.size, self._timers.next_due())

    def _work_ended(self) -> None:
        if self._closed:
            self._waiters.wake_all()  # they may wait to see whether this key runs again
        if self._drainers and self._is_drained():
            self._drained.notify_all()

    def _is_drained(self) -> bool:
        return self._lanes.waiting == 0 and len(self._running) == self._parked
