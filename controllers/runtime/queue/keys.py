"""What a work queue is made of (stage 3): what is known of each key, and when it has to run.

Used only by `workqueue.py`, which holds its lock around every call. No key is lost here: each one
waits, runs, or has a time set for it, until nothing is left to do about it."""

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Any, Generic, NamedTuple, TypeVar

from attrs import define

from controllers.runtime.clock import Clock
from controllers.runtime.fairqueue import FairQueue
from controllers.runtime.metrics import exponential_buckets

K = TypeVar("K", bound=Hashable)

BOUNDS = exponential_buckets(10e-9, 10, 10)


class Running(NamedTuple):
    """How long a key has been worked on. (0.0, None) when none is."""

    seconds: float
    key: Hashable


@define(eq=False)
class Item(Generic[K]):
    """What a queue knows of one key. It exists while anything differs from a key never seen."""

    key: K
    dirty: bool = False  # has to run: it waits for a worker, for the end of its own run, or is held
    held: bool = False  # has to run, and its minimum interval is not over
    priority: int = 0  # the highest asked for since it became dirty
    added: float = 0.0  # when it became dirty
    running: bool = False  # handed out and not done
    parked: bool = False
    started: float = 0.0
    run_priority: int = 0  # the priority with which it was last handed out
    due: float | None = None  # when a delay makes it dirty
    due_priority: int = 0
    problem: str = ""  # of the last failure
    routine: bool = False  # only time makes it due
    ticket: int = 0  # the one entry of the heap that counts
    failures: int = 0
    ready_at: float = 0.0  # the end of its minimum interval


class Unfinished(NamedTuple):
    """A key with something left to do."""

    key: Hashable
    failures: int
    """In a row, so far."""
    delay: float
    """Seconds until it runs; 0.0: now, or it runs already."""
    parked: bool
    problem: str
    """What is not known because the last run failed; "" if not, or if it was definite."""

    @classmethod
    def of(cls, item: Item[Any], now: float) -> "Unfinished":
        # A delay that was set before counts no more once the key has to run anyway.
        delay = 0.0 if item.dirty or item.running or item.due is None else item.due - now
        return cls(item.key, item.failures, delay, item.parked, item.problem)


class Durations:
    """A histogram of seconds without a lock of its own."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def merged(self, other: "Durations") -> "Durations":
        both = Durations()
        both.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        both.total = self.total + other.total
        return both


class QueueStats:
    """What a queue counts, always under the queue's lock. It outlives the queue."""

    # Plain numbers, as the children of the metrics library cost ten times as much: each has a lock.

    __slots__ = ("adds", "queued", "retries", "worked")

    def __init__(self) -> None:
        self.adds = 0
        self.retries = 0
        self.queued = Durations()
        self.worked = Durations()

    def copy(self) -> "QueueStats":
        return QueueStats().merged(self)

    def merged(self, other: "QueueStats") -> "QueueStats":
        both = QueueStats()
        both.adds, both.retries = self.adds + other.adds, self.retries + other.retries
        both.queued, both.worked = self.queued.merged(other.queued), self.worked.merged(other.worked)
        return both


class QueueGauges(NamedTuple):
    """What holds at this moment: keys waiting, and the seconds that those in work have run."""

    depth: int
    unfinished: float
    longest: float

    def merged(self, other: "QueueGauges") -> "QueueGauges":
        return QueueGauges(
            self.depth + other.depth, self.unfinished + other.unfinished, max(self.longest, other.longest)
        )


class Keys(Generic[K]):
    """What is to be done with each key, and when. Not thread-safe: all with the lock of `changed`
    held, on which the thread that is to take the next key waits.

    Delayed keys are in a heap, the ends of minimum intervals in a plain queue: the interval is
    constant, so they come in order. A key may have both: its delay then runs on besides the run
    that is held."""

    def __init__(self, waiting: FairQueue[Item[K]], changed: threading.Condition, clock: Clock) -> None:
        self.items: dict[K, Item[K]] = {}
        self.waiting = waiting
        """Those that have to run and may: for a worker."""
        self.running: dict[K, Item[K]] = {}
        self.dirty = 0
        """Keys that have to run: they wait, are held, or run once more after this run."""
        self.wanted = 1
        """How many must be ready before a thread is woken: more while one fills a batch."""
        self.stats = QueueStats()
        self._changed = changed
        self._now = clock.monotonic
        self._delayed = 0
        self._heap: list[tuple[float, int, Item[K]]] = []  # an entry counts while its ticket is the item's
        self._tickets = 0
        self._held = 0
        self._intervals: deque[tuple[float, Item[K]]] = deque()

    def item(self, key: K) -> Item[K]:
        """What is known of the key, from now on if it was nothing."""
        item = self.items.get(key)
        if item is None:
            item = self.items[key] = Item(key)
        return item

    def mark(self, item: Item[K], priority: int, since: float, now: float) -> None:
        """The key has to run."""
        if item.dirty:
            # Never lowered: whoever asked for the higher one still waits for it.
            if priority > item.priority:
                self.waiting.move(item, priority)
            return
        item.dirty = True
        item.priority = priority
        item.added = since
        self.dirty += 1
        self.stats.adds += 1
        if not item.running:
            self._place(item, now)

    def schedule(self, item: Item[K], delay: float, priority: int | None, now: float, *, routine: bool = False) -> None:
        """The key has to run in `delay` seconds, or at the time already set for it if earlier, with
        the higher of both priorities; without one see `WorkQueue.add_after`."""
        self.stats.retries += 1
        if priority is None:
            priority = item.run_priority if item.running else 0
        if delay <= 0:
            self.mark(item, priority, now, now)
            return
        due = now + delay
        item.routine = routine and (item.routine or item.due is None)
        if item.due is None:
            self._delayed += 1
            item.due_priority = priority
        else:
            item.due_priority = max(item.due_priority, priority)
            if item.due <= due:
                return
        self._tickets += 1
        item.due, item.ticket = due, self._tickets
        heappush(self._heap, (due, item.ticket, item))
        # An earlier time leaves the later entry behind: keys set again and again must not fill it.
        if len(self._heap) > 64 + 2 * self._delayed:
            self._heap = [entry for entry in self._heap if entry[1] == entry[2].ticket]
            heapify(self._heap)
        if self._heap[0][2] is item:
            self._changed.notify()  # whoever waits would sleep past it

    def catch_up(self) -> float:
        """Move the keys whose delay or interval has ended, each as at its own time, and return the
        time it is now."""
        now = self._now()
        heap, intervals = self._heap, self._intervals
        while True:
            # In the order of time: what came due while nobody looked runs as if somebody had.
            if heap and heap[0][0] <= now and not (intervals and intervals[0][0] < heap[0][0]):
                due, ticket, item = heappop(heap)
                # Else an earlier time was set after this one, and has had its turn.
                if item.ticket == ticket:
                    item.due, item.ticket = None, 0
                    self._delayed -= 1
                    self.mark(item, item.due_priority, due, due)
            elif intervals and intervals[0][0] <= now:
                end, item = intervals.popleft()
                if item.held:
                    item.held = False
                    self._held -= 1
                    self._place(item, end)
                else:
                    self._release(item, end)
            else:
                return now

    def next_due(self) -> float | None:
        """When a key will next have to run: maybe too early, never too late. None: no key waits."""
        due = self._heap[0][0] if self._heap else None
        # The end of an interval for which no key is held is worth no thread's waking up.
        if self._held and (due is None or self._intervals[0][0] < due):
            # Perhaps of a key that is not held: to look once too often is cheaper than to search.
            due = self._intervals[0][0]
        return due

    def wake(self) -> None:
        """Have a thread come for what is ready, unless it waits for more."""
        if self.waiting.ready >= self.wanted:
            self._changed.notify()

    def take(self, now: float) -> K:
        """Hand out the key whose turn it is."""
        item = self.waiting.pop()
        self.dirty -= 1
        item.dirty = False
        item.running = True
        item.started = now
        item.run_priority = item.priority
        self.running[item.key] = item
        self.stats.queued.observe(now - item.added)
        return item.key

    def done(self, item: Item[K], now: float, min_interval: float) -> None:
        """The run of a key is over; the next one may begin after so many seconds."""
        item.running = False
        self.stats.worked.observe(now - item.started)
        # Backoff alone does not stop a stream of updates from hammering a failing key
        # (kubernetes#75285).
        if min_interval:
            item.ready_at = now + min_interval
            self._intervals.append((item.ready_at, item))
        if item.dirty:
            self._place(item, now)
        else:
            self._release(item, now)

    def forget(self, item: Item[K], now: float) -> None:
        """The key's failures no longer count."""
        item.failures, item.problem = 0, ""
        self._release(item, now)

    def close(self, drain: bool) -> int:
        """Drop the delayed keys, and without `drain` those that wait; returns how many."""
        dropped = self._delayed
        self._heap.clear()
        self._intervals.clear()
        self._delayed = self._held = 0
        if not drain:
            dropped += self.dirty
            self.dirty = 0
            self.waiting.clear()
        for item in self.items.values():
            item.due, item.ticket = None, 0
            if not drain:
                item.dirty = False
            # A queue that drains runs what is left now: nobody will be there when the interval
            # ends.
            elif item.held:
                self.waiting.push(item)
            item.held = False
        return dropped

    def _place(self, item: Item[K], now: float) -> None:
        """A dirty key that is not worked on waits for a worker, or is held."""
        if item.ready_at > now:
            item.held = True
            self._held += 1
            if self._held == 1:
                self._changed.notify()  # those held already are due before it, so somebody wakes in time
        else:
            self.waiting.push(item)
            self.wake()

    def _release(self, item: Item[K], now: float) -> None:
        """Forget the key, unless there is something to remember."""
        if not (item.dirty or item.running or item.due is not None or item.failures or item.ready_at > now):
            self.items.pop(item.key, None)
