"""Stage 3, its fairness: lanes in which groups of keys (namespaces, say) take turns. Pure, no locks.

Used only by ``workqueue.py``, which holds its lock around every call. A group's keys wait in lanes of their own, by
priority; groups with keys are served in a circle, and one that has `most` keys in work is passed over until one of them
is done. So a thousand slow keys of one group hold up no other group: neither its keys in the queue nor, with fewer
`most` than workers, the workers themselves.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

from controllers.runtime.queue.items import Item, Lanes

__all__ = ["TurnLanes"]

K = TypeVar("K", bound=Hashable)


class TurnLanes(Lanes[K]):
    """Lanes of lanes: `group` says whose a key is."""

    __slots__ = ("_busy", "_circle", "_closed", "_group", "_most")

    def __init__(self, group: Callable[[K], Hashable], most: int) -> None:
        super().__init__()
        if most < 1:
            raise ValueError(f"a group must be allowed 1 key in work at least, got {most}")
        self._group = group
        self._most = most
        self._busy: Counter[Hashable] = Counter()
        self._circle: OrderedDict[Hashable, Lanes[K]] = OrderedDict()  # groups that may be served, in their order
        self._closed: dict[Hashable, Lanes[K]] = {}  # those that have their share in work

    @property
    def waiting(self) -> int:
        """The keys here, those that may not be handed out yet among them."""
        return sum(lanes.size for groups in (self._circle, self._closed) for lanes in groups.values())

    def push(self, item: Item[K]) -> None:
        group = self._group(item.key)
        before = self._share(group)
        lanes = self._find(group)
        if lanes is None:
            lanes = (self._circle if self._busy[group] < self._most else self._closed)[group] = Lanes()
        lanes.push(item)
        self.size += self._share(group) - before

    def pop(self) -> Item[K]:
        group, lanes = next(iter(self._circle.items()))
        before = self._share(group)
        item = lanes.pop()
        self._busy[group] += 1
        self._circle.move_to_end(group)
        if not lanes.size:
            del self._circle[group]
        elif self._busy[group] >= self._most:
            self._closed[group] = self._circle.pop(group)
        self.size += self._share(group) - before
        return item

    def ended(self, key: K) -> bool:
        """A key that was handed out is in work no longer; returns whether others may be handed out for that."""
        group = self._group(key)
        before = self._share(group)
        self._busy[group] -= 1
        if not self._busy[group]:
            del self._busy[group]
        if group in self._closed:
            self._circle[group] = self._closed.pop(group)
        more = self._share(group) - before
        self.size += more
        return more > 0

    def move(self, item: Item[K], priority: int) -> None:
        lanes = self._find(self._group(item.key))
        if lanes is None:
            item.priority = priority
        else:
            lanes.move(item, priority)

    def oldest(self) -> float:
        return min(lanes.oldest() for lanes in self._circle.values())

    def clear(self) -> None:
        self._circle.clear()
        self._closed.clear()
        self.size = 0

    def _find(self, group: Hashable) -> Lanes[K] | None:
        return self._circle.get(group) or self._closed.get(group)

    def _share(self, group: Hashable) -> int:
        """How many keys of the group could be handed out one after the other now."""
        lanes = self._circle.get(group)
        return 0 if lanes is None else min(lanes.size, self._most - self._busy[group])
