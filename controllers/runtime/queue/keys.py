"""What a work queue is made of (stage 3): keys, their timers, and the threads that wait for a key.

Used only by `workqueue.py`, which holds its lock around every call. No key is lost here: each one
waits, runs, or has a time set for it, until nothing is left to do about it."""

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, NamedTuple, TypeVar

from attrs import define

from controllers.runtime.clock import Clock
from controllers.runtime.fairqueue import FairQueue
from controllers.runtime.metrics import exponential_buckets

K = TypeVar("K", bound=Hashable)

BOUNDS = exponential_buckets(10e-9, 10, 10)
_LONGEST_WAIT = 3600.0  # seconds, as a Condition takes no end of them


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


class Timers(Generic[K]):
    """A heap of delayed keys, and the ends of minimum intervals in a plain queue (the interval is
    constant, so they come in order).

    A key may have both: its delay then runs on besides the run that is held."""

    __slots__ = ("_heap", "_intervals", "_tickets", "delayed", "held")

    def __init__(self) -> None:
        self.delayed = 0
        self.held = 0
        self._heap: list[tuple[float, int, Item[K]]] = []  # an entry counts while its ticket is the item's
        self._tickets = 0
        self._intervals: deque[tuple[float, Item[K]]] = deque()

    def is_due(self, now: float) -> bool:
        """Whether `collect` has something to do."""
        heap, intervals = self._heap, self._intervals
        return bool((heap and heap[0][0] <= now) or (intervals and intervals[0][0] <= now))

    def delay(self, item: Item[K], due: float, priority: int) -> bool:
        """Set the item's time, unless it has an earlier one; return whether it was set. The higher
        priority counts."""
        if item.due is None:
            self.delayed += 1
            item.due_priority = priority
        else:
            item.due_priority = max(item.due_priority, priority)
            if item.due <= due:
                return False
        self._tickets += 1
        item.due, item.ticket = due, self._tickets
        heappush(self._heap, (due, item.ticket, item))
        # An earlier time leaves the later entry behind: keys set again and again must not fill it.
        if len(self._heap) > 64 + 2 * self.delayed:
            self._heap = [entry for entry in self._heap if entry[1] == entry[2].ticket]
            heapify(self._heap)
        return True

    def start_interval(self, item: Item[K], end: float) -> None:
        """The item's minimum interval ends then, which is never before that of an earlier call."""
        item.ready_at = end
        self._intervals.append((end, item))

    def collect(self, now: float) -> Iterator[tuple[float, Item[K], bool]]:
        """Take out what ended until `now` in the order of time: time, item, is it an interval."""
        heap, intervals = self._heap, self._intervals
        while True:
            if heap and heap[0][0] <= now and not (intervals and intervals[0][0] < heap[0][0]):
                due, ticket, item = heappop(heap)
                if item.ticket == ticket:
                    item.due, item.ticket = None, 0
                    self.delayed -= 1
                    yield due, item, False
            elif intervals and intervals[0][0] <= now:
                end, item = intervals.popleft()
                yield end, item, True
            else:
                return

    def next_due(self) -> float | None:
        """When a key will next have to run: maybe too early, never too late. None: no key waits."""
        due = self._heap[0][0] if self._heap else None
        # The end of an interval for which no key is held is worth no thread's waking up.
        if self.held and (due is None or self._intervals[0][0] < due):
            due = self._intervals[0][0]
        return due

    def clear(self) -> None:
        """Forget all times. The items' own fields are the caller's to set."""
        self._heap.clear()
        self._intervals.clear()
        self.delayed = self.held = 0


class Waiters:
    """The threads in ``get`` and ``get_many`` of one queue: which one is woken, and for what.

    Of the threads that wait, one, the *timer*, wakes when the first delayed key is due; one, the
    *batcher*, is filling a batch; the others are *idle* and watch no time but their own timeout.
    One event wakes one thread. A thread that leaves passes on what it would have seen to
    (`pass_on`). All conditions share the queue's lock.
    """

    __slots__ = ("_batcher", "_clock", "_idle", "_idlers", "_timer", "_timer_wakes", "batch_size")

    def __init__(self, lock: threading.Lock, clock: Clock) -> None:
        self._clock = clock
        self._idlers = threading.Condition(lock)
        self._timer = threading.Condition(lock)
        self._batcher = threading.Condition(lock)
        self._idle = 0  # threads in _idlers, those notified and not yet running among them
        self._timer_wakes: float | None = None  # when the timer wakes; None without one
        self.batch_size = 0  # of the batch that is being filled; 0 without one

    def wait(self, now: float, due: float | None, deadline: float | None) -> None:
        """Wait once, as timer if none is and a key is due, and until `deadline` at most."""
        if due is not None and self._timer_wakes is None:
            self._timer_wakes = due = min(due, now + _LONGEST_WAIT)
            try:
                self._clock.wait(self._timer, (due if deadline is None else min(due, deadline)) - now)
            finally:
                self._timer_wakes = None
        else:
            self._idle += 1
            try:
                self._clock.wait(self._idlers, None if deadline is None else deadline - now)
            finally:
                self._idle -= 1

    def fill_batch(self, size: int, seconds: float) -> None:
        """Wait once, as the one thread that fills a batch of `size`, at most so many seconds."""
        self.batch_size = size
        try:
            self._clock.wait(self._batcher, seconds)
        finally:
            self.batch_size = 0

    def remind(self, due: float) -> None:
        """Some key is due at this time: see that a thread, if any waits, wakes for it."""
        if self._timer_wakes is not None:
            if due < self._timer_wakes:
                self._timer.notify()
        elif self._idle:
            self._idlers.notify()

    def wake(self, ready: int) -> None:
        """A key became ready, one of `ready`: see that one thread, if any waits, comes for it."""
        if self.batch_size:
            # Others leave what comes to the batch, which is not full yet.
            if ready >= self.batch_size:
                self._batcher.notify()
        elif self._idle:
            self._idlers.notify()
        elif self._timer_wakes is not None:
            self._timer.notify()

    def pass_on(self, ready: int, due: float | None) -> None:
        """The calling thread leaves: have another one come for what is left."""
        if ready:
            self.wake(ready)
        elif due is not None:
            self.remind(due)

    def wake_all(self) -> None:
        """The queue shuts down, or came closer to its end: let everyone look."""
        for condition in (self._idlers, self._timer, self._batcher):
            condition.notify_all()


class Keys(Generic[K]):
    """What is to be done with each key. Not thread-safe: all with the lock of `waiters` held."""

    def __init__(self, waiting: FairQueue[Item[K]], waiters: Waiters, clock: Clock) -> None:
        self.items: dict[K, Item[K]] = {}
        self.waiting = waiting
        """Those that have to run and may: for a worker."""
        self.running: dict[K, Item[K]] = {}
        self.dirty = 0
        """Keys that have to run: they wait, are held, or run once more after this run."""
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
                self.waiting.move(item, priority)
            return
        item.dirty = True
        item.priority = priority
        item.added = since
        self.dirty += 1
        self.stats.adds += 1
        if not item.running:
            self.place(item, now)

    def place(self, item: Item[K], now: float) -> None:
        """A dirty key that is not worked on waits for a worker, or is held."""
        if item.ready_at > now:
            item.held = True
            self.timers.held += 1
            self._waiters.remind(item.ready_at)
        else:
            self.waiting.push(item)
            self._waiters.wake(self.waiting.ready)

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
        """Move the keys whose delay or interval has ended, each as at its own time, and return the
        time it is now."""
        now = self._now()
        if self.timers.is_due(now):
            for then, item, interval in self.timers.collect(now):
                if not interval:
                    self.mark(item, item.due_priority, then, then)
                elif item.held:
                    item.held = False
                    self.timers.held -= 1
                    self.waiting.push(item)
                    self._waiters.wake(self.waiting.ready)
                else:
                    self.release(item, then)
        return now

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

    def release(self, item: Item[K], now: float) -> None:
        """Forget the key, unless there is something to remember."""
        if not (item.dirty or item.running or item.due is not None or item.failures or item.ready_at > now):
            self.items.pop(item.key, None)

    def close(self, drain: bool) -> int:
        """Drop the delayed keys, and without `drain` those that wait; returns how many."""
        dropped = self.timers.delayed
        self.timers.clear()
        if not drain:
            dropped += self.dirty
            self.dirty = 0
            self.waiting.clear()
        for item in self.items.values():
            item.due, item.ticket = None, 0
            if not drain:
                item.dirty = False
            elif item.held:
                self.waiting.push(item)
            item.held = False
        return dropped
