"""Stage 3, its times: keys that wait for a delay, and keys under their floor. Pure, no locks, no clock.

Used only by ``workqueue.py``, which holds its lock around every call and says what time it is.
"""

from collections import deque
from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from controllers.runtime.queue.items import Item

__all__ = ["Timers"]

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """A heap of delayed keys, and the ends of floors in a plain queue (the floor is constant, so they come in order).

    A key may have both: its delay then runs on independently of the run that its floor holds back.
    """

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
        """Set the item's time, unless it has an earlier one; return whether it was set. The higher priority counts."""
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

    def end_delay(self, item: Item[K]) -> bool:
        """Take the item's time away; return whether it had one."""
        if item.due is None:
            return False
        item.due, item.ticket = None, 0
        self.delayed -= 1
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
        """Take out what ended until `now` in the order of time: when, of which item, and whether it was a floor."""
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
        """When a key will next have to run: maybe too early, never too late. None: no key waits for a time."""
        due = self._heap[0][0] if self._heap else None
        if self._frozen and (due is None or self._cooling[0][0] < due):
            due = self._cooling[0][0]
        return due

    def clear(self) -> None:
        """Forget all times. The items' own fields are the caller's to set."""
        self._heap.clear()
        self._cooling.clear()
        self.delayed = self._frozen = 0
