"""The keys of one queue: which of them wait, are worked on, or have a delay or a floor.

`workqueue.py` calls it, with its lock held, and decides which thread waits for what. No key is lost
here: each one is in a lane, running, or has a time set for it, until nothing is left."""

from collections.abc import Hashable
from typing import Generic, TypeVar

from controllers.runtime.clock import Clock
from controllers.runtime.fairness import Lanes
from controllers.runtime.queue.lanes import Item, Timers, Waiters
from controllers.runtime.queue.metrics import QueueStats

K = TypeVar("K", bound=Hashable)


class Keys(Generic[K]):
    """What is to be done with each key. Not thread-safe: all with the lock of `waiters` held."""

    def __init__(self, lanes: Lanes[Item[K]], waiters: Waiters, clock: Clock) -> None:
        self.items: dict[K, Item[K]] = {}
        self.lanes = lanes
        self.running: dict[K, Item[K]] = {}
        self.dirty = 0
        """Keys that have to run: in a lane, under their floor, or once more after this run."""
        self.timers: Timers[K] = Timers()
        self.stats = QueueStats()
        self._waiters = waiters
        self._now = clock.monotonic

    def item(self, key: K) -> Item[K]:
        """What is known of the key, from now on if it was nothing."""
        item = self.items.get(key)
        if item is None:
            item = self.items[key] = Item(key)
        return item

    def mark(self, item: Item[K], priority: int, since: float, now: float) -> None:
        """The key has to run."""
        if item.dirty:
            if priority > item.priority:
                self.lanes.move(item, priority)
            return
        item.dirty = True
        item.priority = priority
        item.added = since
        self.dirty += 1
        self.stats.adds += 1
        if not item.running:
            self._place(item, now)

    def _place(self, item: Item[K], now: float) -> None:
        """A dirty key that is not worked on gets into a lane, or waits for the end of its floor."""
        if item.free_at > now:
            self.timers.freeze(item)
            self._waiters.remind(item.free_at)
        else:
            self.lanes.push(item)
            self._waiters.wake(self.lanes.size)

    def schedule(self, item: Item[K], delay: float, priority: int | None, now: float, *, routine: bool = False) -> None:
        """The key has to run in `delay` seconds; without a priority see `WorkQueue.add_after`."""
        self.stats.retries += 1
        if priority is None:
            priority = item.run_priority if item.running else 0
        if delay <= 0:
            self.mark(item, priority, now, now)
            return
        item.routine = routine and (item.routine or item.due is None)
        if self.timers.delay(item, now + delay, priority):
            self._waiters.remind(now + delay)

    def catch_up(self) -> float:
        """Move the keys whose delay or floor has ended, each as at its own time, and return the
        time it is now."""
        now = self._now()
        if self.timers.is_due(now):
            for then, item, cooled in self.timers.collect(now):
                if not cooled:
                    self.mark(item, item.due_priority, then, then)
                elif item.frozen:
                    self.timers.thaw(item)
                    self.lanes.push(item)
                    self._waiters.wake(self.lanes.size)
                else:
                    self.release(item, then)
        return now

    def take(self, now: float) -> K:
        """Hand out the key whose turn it is."""
        item = self.lanes.pop()
        self.dirty -= 1
        item.dirty = False
        item.running = True
        item.started = now
        item.run_priority = item.priority
        self.running[item.key] = item
        self.stats.queued.observe(now - item.added)
        return item.key

    def settle(self, item: Item[K], now: float) -> None:
        """The key's work has ended."""
        if item.dirty:
            self._place(item, now)
        else:
            self.release(item, now)

    def release(self, item: Item[K], now: float) -> None:
        """Forget the key, unless there is something to remember."""
        if item.is_blank(now) and self.items.get(item.key) is item:
            del self.items[item.key]

    def close(self, drain: bool) -> int:
        """Drop the delayed keys, and without `drain` those that wait; returns how many."""
        dropped = self.timers.delayed
        self.timers.clear()
        if not drain:
            dropped += self.dirty
            self.dirty = 0
            self.lanes.clear()
        for item in self.items.values():
            item.due, item.ticket = None, 0
            if not drain:
                item.dirty = False
            elif item.frozen:
                self.lanes.push(item)
            item.frozen = False
        return dropped
