"""Fairness: whose turn is next among those who wait. Pure, no locks: the owner has one.

The work queue (stage 3) hands out keys by :class:`Lanes`, and by :class:`TurnLanes` where groups of
keys (namespaces, say) take turns. The pool of cloud calls (stage 5) has a `Lanes` for each
namespace."""

from __future__ import annotations

from bisect import insort
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

FAIR_SHARE = 8
"""While several priorities wait, every 8th handed out is the one that has waited longest."""


class Waiting(Protocol):
    """What may wait in a lane; compared by identity."""

    priority: int
    added: float
    """When it began to wait, or its place in their order."""

    @property
    def key(self) -> Any:
        """What it is about."""


W = TypeVar("W", bound=Waiting)


class Lanes(Generic[W]):
    """The keys that may be handed out: first in, first out, higher priorities first.

    Low priorities never starve: see :data:`FAIR_SHARE`. A share and not promotion by age, because
    under a backlog older than any age limit everything would be promoted, and new keys would wait
    behind all of it."""

    __slots__ = ("_bypassed", "_lanes", "_levels", "size")

    def __init__(self) -> None:
        self.size = 0
        self._lanes: dict[int, OrderedDict[W, None]] = {}
        self._levels: list[int] = []  # the priorities whose lanes hold keys, ascending
        self._bypassed = 0  # keys handed out while several priorities waited, since the last fair one

    @property
    def waiting(self) -> int:
        """The keys here."""
        return self.size

    def ended(self, key: Any) -> bool:
        """A key that was handed out is in work no longer; returns whether others may be."""
        return False

    def push(self, item: W) -> None:
        """Append the item to the lane of its priority."""
        lane = self._lanes.get(item.priority)
        if lane is None:
            lane = self._lanes[item.priority] = OrderedDict()
        if not lane:
            insort(self._levels, item.priority)
        lane[item] = None
        self.size += 1

    def pop(self) -> W:
        """Take the next item out. There must be one."""
        levels = self._levels
        level = levels[-1]
        if len(levels) > 1:
            self._bypassed += 1
            if self._bypassed >= FAIR_SHARE:
                self._bypassed = 0
                level = min(levels, key=lambda each: self._head(each).added)
        lane = self._lanes[level]
        item = lane.popitem(last=False)[0]
        if not lane:
            levels.remove(level)
        self.size -= 1
        return item

    def move(self, item: W, priority: int) -> None:
        """Give the item another priority; if it is in a lane it moves to the end of the new one."""
        here = self.remove(item)
        item.priority = priority
        if here:
            self.push(item)

    def remove(self, item: W) -> bool:
        """Take the item out, wherever it stands; whether it was here."""
        lane = self._lanes.get(item.priority)
        if lane is None or item not in lane:
            return False
        del lane[item]
        if not lane:
            self._levels.remove(item.priority)
        self.size -= 1
        return True

    def items(self) -> list[W]:
        """All that wait, the highest priority first."""
        return [item for level in reversed(self._levels) for item in self._lanes[level]]

    def oldest(self) -> float:
        """When the first of the keys at the heads of the lanes became dirty. There must be one."""
        return min(self._head(level).added for level in self._levels)

    def clear(self) -> None:
        self._lanes.clear()
        self._levels.clear()
        self.size = 0

    def _head(self, level: int) -> W:
        return next(iter(self._lanes[level]))


class TurnLanes(Lanes[W]):
    """Lanes of lanes: `group` says whose a key is.

    Groups with keys are served in a circle, and one that has `most` keys in work is passed over
    until one of them is done. So a thousand slow keys of one group hold up no other group: neither
    its keys in the queue nor, with fewer `most` than workers, the workers themselves.
    """

    __slots__ = ("_busy", "_circle", "_closed", "_group", "_most")

    def __init__(self, group: Callable[[Any], Hashable], most: int) -> None:
        super().__init__()
        if most < 1:
            raise ValueError(f"a group must be allowed 1 key in work at least, got {most}")
        self._group = group
        self._most = most
        self._busy: Counter[Hashable] = Counter()
        self._circle: OrderedDict[Hashable, Lanes[W]] = OrderedDict()  # groups that may be served, in their order
        self._closed: dict[Hashable, Lanes[W]] = {}  # those that have their share in work

    @property
    def waiting(self) -> int:
        """The keys here, those that may not be handed out yet among them."""
        return sum(lanes.size for groups in (self._circle, self._closed) for lanes in groups.values())

    def push(self, item: W) -> None:
        group = self._group(item.key)
        before = self._share(group)
        lanes = self._find(group)
        if lanes is None:
            lanes = (self._circle if self._busy[group] < self._most else self._closed)[group] = Lanes()
        lanes.push(item)
        self.size += self._share(group) - before

    def pop(self) -> W:
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

    def ended(self, key: Any) -> bool:
        """A key that was handed out is in work no longer; returns whether others may be."""
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

    def move(self, item: W, priority: int) -> None:
        lanes = self._find(self._group(item.key))
        if lanes is None:
            item.priority = priority
        else:
            lanes.move(item, priority)

    def remove(self, item: W) -> bool:
        group = self._group(item.key)
        lanes = self._find(group)
        before = self._share(group)
        if lanes is None or not lanes.remove(item):
            return False
        if not lanes.size:
            self._circle.pop(group, None)
            self._closed.pop(group, None)
        self.size += self._share(group) - before
        return True

    def items(self) -> list[W]:
        return [item for groups in (self._circle, self._closed) for lanes in groups.values() for item in lanes.items()]

    def oldest(self) -> float:
        return min(lanes.oldest() for lanes in self._circle.values())

    def clear(self) -> None:
        self._circle.clear()
        self._closed.clear()
        self.size = 0

    def _find(self, group: Hashable) -> Lanes[W] | None:
        return self._circle.get(group) or self._closed.get(group)

    def _share(self, group: Hashable) -> int:
        """How many keys of the group could be handed out one after the other now."""
        lanes = self._circle.get(group)
        return 0 if lanes is None else min(lanes.size, self._most - self._busy[group])
