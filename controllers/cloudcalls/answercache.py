"""Answers that are shared (stage 5, cloud call): two fetches that ask the same at once, and a memory of one poll.

Only for questions where an answer some seconds old will do. Fresh questions, on which a deletion may rest, neither read
nor join anything here, and the state of an instance is never kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from kubernetes.client.models.v1_node import V1Node

from cloudprovider.helpers import provider_id_of
from controllers.runtime.cache import key_of, uid_of, version_of

__all__ = ["AnswerCache", "identity"]

A = TypeVar("A")
_LIMIT = 20_000


def identity(node: V1Node) -> tuple[str | None, ...]:
    """What must be equal for two questions to be the same: the instance. Without a provider ID a vendor may look at
    anything of the node, so then it is the revision."""
    provider_id = provider_id_of(node)
    if provider_id:
        return (key_of(node), uid_of(node), provider_id)
    return (key_of(node), uid_of(node), None, version_of(node))


class _Asked(Generic[A]):
    __slots__ = ("by", "priority", "tell")

    def __init__(self, by: object, priority: int) -> None:
        self.by = by
        self.priority = priority
        self.tell: list[Callable[[A | Exception], None]] = []


class AnswerCache(Generic[A]):
    """Thread-safe. `ttl` in seconds, counted from the question: 0 keeps nothing. Errors are never kept."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._lock = threading.Lock()
        self._asked: dict[object, _Asked[A]] = {}
        self._kept: OrderedDict[object, tuple[float, A]] = OrderedDict()  # by the time of the question

    def __len__(self) -> int:
        return len(self._kept)

    def recall(self, what: object, now: float) -> A | None:
        """The answer kept, if it is young enough."""
        if not self._kept:
            return None
        with self._lock:
            kept = self._kept.get(what)
            if kept is None or now - kept[0] >= self._ttl:
                return None
            return kept[1]

    def join(self, what: object, by: object, priority: int, tell: Callable[[A | Exception], None]) -> bool:
        """Wait for another fetch's answer: True when one is asking this, and `tell` will be called with its answer.

        False when `by` has to ask; unless another one is asking with a lower priority, `by` is now the one to join.
        """
        with self._lock:
            asked = self._asked.get(what)
            if asked is None:
                self._asked[what] = _Asked(by, priority)
                return False
            if asked.by is by or asked.priority < priority:
                return False
            asked.tell.append(tell)
            return True

    def settle(self, what: object, by: object, answer: A | Exception, asked_at: float, now: float) -> None:
        """`by` got its answer to a question of time `asked_at`: keep it, and tell those who joined."""
        tell: list[Callable[[A | Exception], None]] = []
        with self._lock:
            asked = self._asked.get(what)
            if asked is not None and asked.by is by:
                del self._asked[what]
                tell = asked.tell
            if self._ttl > 0 and not isinstance(answer, Exception):
                kept = self._kept.get(what)
                if kept is None or kept[0] <= asked_at:
                    self._kept[what] = (asked_at, answer)
                    self._kept.move_to_end(what)
                self._expire(now)
        for listener in tell:
            listener(answer)

    def _expire(self, now: float) -> None:
        while self._kept:
            asked_at, _ = next(iter(self._kept.values()))
            if now - asked_at < self._ttl and len(self._kept) <= _LIMIT:
                return
            self._kept.popitem(last=False)
