"""Stage 3: what a work queue is made of. Its items, the timers of delayed keys, and the threads
that wait for a key.

Used only by ``workqueue.py``, which holds its lock around every call. No locks and no clock here,
but for the waits of :class:`Waiters` on that lock.
"""

import threading
from collections import deque
from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, NamedTuple, TypeVar

from attrs import define

from controllers.runtime.clock import Clock

K = TypeVar("K", bound=Hashable)

_LONGEST_WAIT = 3600.0  # seconds; the keeper looks again after that


class Running(NamedTuple):
    """How long a key has been worked on. (0.0, None) when none is."""

    seconds: float
    key: Hashable


@define(eq=False)
class Item(Generic[K]):
    """What a queue knows of one key. It exists while anything differs from a key never seen."""

    key: K
    dirty: bool = False  # has to run: it waits in a lane, behind its own run, or for the floor (frozen)
    frozen: bool = False
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
    free_at: float = 0.0  # the end of the floor

    def is_blank(self, now: float) -> bool:
        """Whether it is like a key never seen."""
        return not (self.dirty or self.running or self.due is not None or self.failures or self.free_at > now)


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


class Timers(Generic[K]):
    """A heap of delayed keys, and the ends of floors in a plain queue (the floor is constant, so
    they come in order).

    A key may have both: its delay then runs on besides the run that its floor holds back."""

    __slots__ = ("_cooling", "_frozen", "_heap", "_tickets", "delayed")

    def __init__(self) -> None:
        self.delayed = 0
        self._heap: list[tuple[float, int, Item[K]]] = []  # an entry counts while its ticket is the item's
        self._tickets = 0
        self._cooling: deque[tuple[float, Item[K]]] = deque()
        self._frozen = 0

    def is_due(self, now: float) -> bool:
        """Whether `collect` has something to do."""
        heap, cooling = self._heap, self._cooling
        return bool((heap and heap[0][0] <= now) or (cooling and cooling[0][0] <= now))

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
        if len(self._heap) > 64 + 2 * self.delayed:
            self._heap = [entry for entry in self._heap if entry[1] == entry[2].ticket]
            heapify(self._heap)
        return True

    def cool(self, item: Item[K], until: float) -> None:
        """The item's floor ends at this time, which is never before that of an earlier call."""
        item.free_at = until
        self._cooling.append((until, item))

    def freeze(self, item: Item[K]) -> None:
        """The item has to run, and waits for the end of its floor."""
        item.frozen = True
        self._frozen += 1

    def thaw(self, item: Item[K]) -> None:
        """The item no longer waits for its floor."""
        item.frozen = False
        self._frozen -= 1

    def collect(self, now: float) -> Iterator[tuple[float, Item[K], bool]]:
        """Take out what ended until `now` in the order of time: time, item, is it a floor."""
        heap, cooling = self._heap, self._cooling
        while True:
            if heap and heap[0][0] <= now and not (cooling and cooling[0][0] < heap[0][0]):
                due, ticket, item = heappop(heap)
                if item.ticket == ticket:
                    item.due, item.ticket = None, 0
                    self.delayed -= 1
                    yield due, item, False
            elif cooling and cooling[0][0] <= now:
                end, item = cooling.popleft()
                yield end, item, True
            else:
                return

    def next_due(self) -> float | None:
        """When a key will next have to run: maybe too early, never too late. None: no key waits."""
        due = self._heap[0][0] if self._heap else None
        if self._frozen and (due is None or self._cooling[0][0] < due):
            due = self._cooling[0][0]
        return due

    def clear(self) -> None:
        """Forget all times. The items' own fields are the caller's to set."""
        self._heap.clear()
        self._cooling.clear()
        self.delayed = self._frozen = 0


class Waiters:
    """The threads in ``get`` and ``get_many`` of one queue: which one is woken, and for what.

    Of the threads that wait, one, the *keeper*, wakes when the first delayed key is due; one, the
    *gatherer*, is filling a batch; the others are *idle* and watch no time but their own timeout.
    One event wakes one thread. A thread that leaves passes on what it would have seen to
    (`pass_on`). All conditions share the queue's lock.
    """

    __slots__ = ("_clock", "_gatherer", "_idle", "_keeper", "_keeping", "_waiting", "gathering")

    def __init__(self, lock: threading.Lock, clock: Clock) -> None:
        self._clock = clock
        self._waiting = threading.Condition(lock)
        self._keeper = threading.Condition(lock)
        self._gatherer = threading.Condition(lock)
        self._idle = 0  # threads in _waiting, those notified and not yet running among them
        self._keeping: float | None = None  # the time for which the keeper wakes; None without a keeper
        self.gathering = 0  # the size of the batch that the gatherer fills; 0 without one

    def wait(self, now: float, due: float | None, deadline: float | None) -> None:
        """Wait once, as keeper if none is and a key is due, and until `deadline` at most."""
        if due is not None and self._keeping is None:
            self._keeping = due = min(due, now + _LONGEST_WAIT)
            try:
                self._clock.wait(self._keeper, (due if deadline is None else min(due, deadline)) - now)
            finally:
                self._keeping = None
        else:
            self._idle += 1
            try:
                self._clock.wait(self._waiting, None if deadline is None else deadline - now)
            finally:
                self._idle -= 1

    def gather(self, size: int, seconds: float) -> None:
        """Wait once, as the one thread that fills a batch of `size`, at most so many seconds."""
        self.gathering = size
        try:
            self._clock.wait(self._gatherer, seconds)
        finally:
            self.gathering = 0

    def remind(self, due: float) -> None:
        """Some key is due at this time: see that a thread, if any waits, wakes for it."""
        if self._keeping is not None:
            if due < self._keeping:
                self._keeper.notify()
        elif self._idle:
            self._waiting.notify()

    def wake(self, ready: int) -> None:
        """A key became ready, one of `ready`: see that one thread, if any waits, comes for it."""
        if self.gathering:
            if ready >= self.gathering:
                self._gatherer.notify()
        elif self._idle:
            self._waiting.notify()
        elif self._keeping is not None:
            self._keeper.notify()

    def pass_on(self, ready: int, due: float | None) -> None:
        """The calling thread leaves: have another one come for what is left."""
        if ready:
            self.wake(ready)
        elif due is not None:
            self.remind(due)

    def wake_all(self) -> None:
        """The queue shuts down, or came closer to its end: let everyone look."""
        for condition in (self._waiting, self._keeper, self._gatherer):
            condition.notify_all()
