"""Stage 3, its data: what a queue knows of one key, its backoff, and the lanes in which keys wait. Pure, no locks.

Used only by ``workqueue.py``, which holds its lock around every call.
"""

from bisect import insort
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Generic, NamedTuple, TypeVar

from attrs import field, frozen, validators

__all__ = ["FAIR_SHARE", "Backoff", "Item", "Lanes", "Running", "Unfinished"]

K = TypeVar("K", bound=Hashable)

FAIR_SHARE = 8
"""While keys of several priorities wait, every so many-th key handed out is the one that has waited longest of all."""


@frozen
class Backoff:
    """Exponential delays: ``base * 2**failures`` seconds, never more than `cap`, less a random part.

    `jitter` is the share of the delay that is left to chance: 0.5 spreads a delay of 60 s over 30 to 60 s, so that
    keys that failed together do not return together.
    """

    base: float = field(default=0.005, validator=validators.gt(0))
    cap: float = field(default=60.0, validator=validators.gt(0))
    jitter: float = field(default=0.5, validator=[validators.ge(0), validators.le(1)])

    def delay(self, failures: int, chance: float) -> float:
        """Seconds to wait after `failures` earlier failures; `chance` (0 to 1) takes none to all of the jitter off."""
        full = min(self.cap, self.base * 2.0 ** min(failures, 64))
        return full * (1.0 - self.jitter * chance)


class Running(NamedTuple):
    """How long a key has been worked on. (0.0, None) when none is."""

    seconds: float
    key: Hashable


class Item(Generic[K]):
    """What a queue knows of one key. It exists while anything here differs from a key never seen."""

    __slots__ = (
        "added",
        "dirty",
        "due",
        "due_priority",
        "failures",
        "free_at",
        "frozen",
        "key",
        "parked",
        "priority",
        "problem",
        "routine",
        "run_priority",
        "running",
        "started",
        "ticket",
    )

    def __init__(self, key: K) -> None:
        self.key = key
        self.dirty = False  # has to run: it waits in a lane, behind its own run, or for the floor (frozen)
        self.frozen = False
        self.priority = 0  # the highest asked for since it became dirty
        self.added = 0.0  # when it became dirty
        self.running = False  # handed out and not done
        self.parked = False
        self.started = 0.0
        self.run_priority = 0  # the priority with which it was last handed out
        self.due: float | None = None  # when a delay makes it dirty
        self.due_priority = 0
        self.problem = ""  # of the last failure
        self.routine = False  # only time makes it due
        self.ticket = 0  # the one entry of the heap that counts
        self.failures = 0
        self.free_at = 0.0  # the end of the floor

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
    """What is not known because the last run failed; "" where it did not, or the answer was definite."""

    @classmethod
    def of(cls, item: Item[Any], now: float) -> "Unfinished":
        delay = 0.0 if item.dirty or item.running or item.due is None else item.due - now
        return cls(item.key, item.failures, delay, item.parked, item.problem)


class Lanes(Generic[K]):
    """The keys that may be handed out: first in, first out in each priority, higher priorities first.

    Low priorities never starve: see :data:`FAIR_SHARE`. A share and not promotion by age, because under a backlog older
    than any age limit everything would be promoted, and new keys would wait behind all of it.
    """

    __slots__ = ("_bypassed", "_lanes", "_levels", "size")

    def __init__(self) -> None:
        self.size = 0
        self._lanes: dict[int, OrderedDict[K, Item[K]]] = {}
        self._levels: list[int] = []  # the priorities whose lanes hold keys, ascending
        self._bypassed = 0  # keys handed out while several priorities waited, since the last fair one

    @property
    def waiting(self) -> int:
        """The keys here."""
        return self.size

    def ended(self, key: K) -> bool:
        """A key that was handed out is in work no longer; returns whether others may be handed out for that."""
        return False

    def push(self, item: Item[K]) -> None:
        """Append the item to the lane of its priority."""
        lane = self._lanes.get(item.priority)
        if lane is None:
            lane = self._lanes[item.priority] = OrderedDict()
        if not lane:
            insort(self._levels, item.priority)
        lane[item.key] = item
        self.size += 1

    def pop(self) -> Item[K]:
        """Take the next item out. There must be one."""
        levels = self._levels
        level = levels[-1]
        if len(levels) > 1:
            self._bypassed += 1
            if self._bypassed >= FAIR_SHARE:
                self._bypassed = 0
                level = min(levels, key=lambda each: self._head(each).added)
        lane = self._lanes[level]
        item = lane.popitem(last=False)[1]
        if not lane:
            levels.remove(level)
        self.size -= 1
        return item

    def move(self, item: Item[K], priority: int) -> None:
        """Give the item another priority; if it is in a lane it moves to the end of the new one."""
        lane = self._lanes.get(item.priority)
        here = lane is not None and lane.pop(item.key, None) is not None
        if here and not lane:
            self._levels.remove(item.priority)
        item.priority = priority
        if here:
            self.size -= 1
            self.push(item)

    def oldest(self) -> float:
        """When the first of the keys at the heads of the lanes became dirty. There must be one."""
        return min(self._head(level).added for level in self._levels)

    def clear(self) -> None:
        self._lanes.clear()
        self._levels.clear()
        self.size = 0

    def _head(self, level: int) -> Item[K]:
        return next(iter(self._lanes[level].values()))
