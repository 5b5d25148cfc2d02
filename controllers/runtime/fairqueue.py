"""Whose turn is next among those who wait. Pure, no locks: the owner has one.

A work queue (stage 3) hands out keys by a :class:`FairQueue`; the pool of cloud calls (stage 5) has
one for each kind of call."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

from attrs import define, field

FAIR_SHARE = 8
"""While several priorities wait, every 8th handed out is the one that has waited longest."""


class Waiting(Protocol):
    """What may wait: a queue's item, a cloud call. Compared by identity."""

    priority: int
    added: float
    """When it began to wait, or its place in their order."""

    @property
    def key(self) -> Any:
        """What it is about."""


W = TypeVar("W", bound=Waiting)


@define(eq=False)
class _Group(Generic[W]):
    """What waits of one group: first in, first out, higher priorities first."""

    size: int = 0
    busy: int = 0
    # Ordered: taking the first key out of an ordinary dict takes longer with each one taken.
    by_priority: dict[int, OrderedDict[W, None]] = field(factory=dict)
    bypassed: int = 0  # handed out while several priorities waited, since the last fair one

    def push(self, item: W) -> None:
        lane = self.by_priority.get(item.priority)
        if lane is None:
            lane = self.by_priority[item.priority] = OrderedDict()
        lane[item] = None
        self.size += 1

    def pop(self) -> W:
        lanes = self.by_priority
        priority = max(lanes)
        if len(lanes) > 1:
            self.bypassed += 1
            # A share, and no promotion by age: under a backlog older than any age limit everything
            # would be promoted, and new keys would wait behind all of it.
            if self.bypassed >= FAIR_SHARE:
                self.bypassed = 0
                priority = min(lanes, key=lambda each: next(iter(lanes[each])).added)
        lane = lanes[priority]
        item = lane.popitem(last=False)[0]
        if not lane:
            del lanes[priority]
        self.size -= 1
        return item

    def remove(self, item: W) -> bool:
        lane = self.by_priority.get(item.priority)
        if lane is None or item not in lane:
            return False
        del lane[item]
        if not lane:
            del self.by_priority[item.priority]
        self.size -= 1
        return True


class FairQueue(Generic[W]):
    """Those who wait, in groups that take turns; in a group the higher priority is first, and none
    starves (`FAIR_SHARE`).

    `group_of(key)` says whose an item is; by default all are one group. A group with `most` items
    in work is passed over until one of them has ended. So a thousand slow keys of one namespace
    hold up no other: neither its keys here nor, with fewer `most` than workers, the workers.
    """

    def __init__(self, group_of: Callable[[Any], Hashable] = lambda key: None, most: float = math.inf) -> None:
        if most < 1:
            raise ValueError(f"a group must be allowed 1 key in work at least, got {most}")
        self.ready = 0
        """How many could be handed out one after the other now."""
        self._waiting = 0
        self._group_of = group_of
        self._most = most
        self._groups: dict[Hashable, _Group[W]] = {}  # those with anything waiting or in work
        self._turns: OrderedDict[Hashable, _Group[W]] = OrderedDict()  # those that may be served, the next one first

    def __len__(self) -> int:
        """How many wait, those of groups that have their share in work among them."""
        return self._waiting

    def push(self, item: W) -> None:
        """The item waits from now on, behind those of its group and priority."""
        name = self._group_of(item.key)
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Group()
        group.push(item)
        self._waiting += 1
        # Kept with each change: counting all groups would take seconds with 5,000 of them.
        if group.size + group.busy <= self._most:
            self.ready += 1
            if group.size == 1:
                self._turns[name] = group

    def pop(self) -> W:
        """Take the next item out, to be worked on until `ended`. There must be one."""
        name, group = next(iter(self._turns.items()))
        item = group.pop()
        group.busy += 1
        self.ready -= 1
        self._waiting -= 1
        if group.size and group.busy < self._most:
            self._turns.move_to_end(name)
        else:
            del self._turns[name]
        return item

    def ended(self, key: Any) -> bool:
        """What was handed out is in work no longer; returns whether another one of its group may
        be handed out because of that."""
        name = self._group_of(key)
        group = self._groups[name]
        group.busy -= 1
        if not (group.size or group.busy):
            del self._groups[name]
        if group.size + group.busy < self._most:
            return False
        self.ready += 1
        self._turns.setdefault(name, group)
        return True

    def move(self, item: W, priority: int) -> None:
        """Give the item another priority; if it waits, it goes behind those who have that one."""
        group = self._groups.get(self._group_of(item.key))
        waits = group is not None and group.remove(item)
        item.priority = priority
        if group is not None and waits:
            group.push(item)

    def remove(self, item: W) -> bool:
        """Take the item out, wherever it stands; whether it was here."""
        name = self._group_of(item.key)
        group = self._groups.get(name)
        if group is None or not group.remove(item):
            return False
        self._waiting -= 1
        if group.size + group.busy < self._most:
            self.ready -= 1
        if not group.size:
            self._turns.pop(name, None)
            if not group.busy:
                del self._groups[name]
        return True

    def items(self) -> list[W]:
        """All that wait, each group's highest priority first."""
        return [
            item
            for group in self._groups.values()
            for _, lane in sorted(group.by_priority.items(), reverse=True)
            for item in lane
        ]

    def oldest(self) -> float:
        """When the first began to wait of those that may be handed out. There must be one."""
        return min(next(iter(lane)).added for group in self._turns.values() for lane in group.by_priority.values())

    def clear(self) -> None:
        """Drop all that wait. What is in work still counts."""
        for item in self.items():
            self.remove(item)
