"""Answers about nodes that are not asked for again (stage 5, cloud call).

:class:`AnswerCache`: an answer some seconds old, where that will do. Fresh questions, on which a
deletion may rest, read nothing here, and the state of an instance is never kept.

:class:`Facts`: type and zone of an instance, for which the older `Instances` and `Zones` take a
call each. They are asked for once in `PACE` refreshes of a node, and never taken from here for
nodes that join. An entry belongs to one node (UID) and one provider ID."""

from __future__ import annotations

import math
import threading
import zlib
from collections import OrderedDict
from typing import Final, Generic, TypeVar

from attrs import define
from kubernetes.client.models.v1_node import V1Node

from cloudprovider import Zone
from cloudprovider.helpers import provider_id_of
from controllers.runtime.cache import key_of, uid_of, version_of

A = TypeVar("A")

PACE: Final = 10
"""Of so many refreshes of a node, one asks for type and zone."""

_LIMIT: Final = 20_000


class AnswerCache(Generic[A]):
    """Thread-safe. `ttl` in seconds, from the question on: 0 keeps none."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._lock = threading.Lock()
        self._kept: OrderedDict[object, tuple[float, A]] = OrderedDict()  # by the time of the question

    def __len__(self) -> int:
        return len(self._kept)

    def recall(self, node: V1Node, now: float) -> A | None:
        """The answer kept, if it is young enough."""
        with self._lock:
            asked_at, answer = self._kept.get(_identity(node), (-math.inf, None))
        return answer if now - asked_at < self._ttl else None

    def keep(self, node: V1Node, answer: A, asked_at: float, now: float) -> None:
        """Keep the answer to a question of time `asked_at`, unless a newer one is here."""
        what = _identity(node)
        with self._lock:
            if what not in self._kept or self._kept[what][0] <= asked_at:
                self._kept[what] = (asked_at, answer)
                self._kept.move_to_end(what)
            self._expire(now)

    def _expire(self, now: float) -> None:
        while self._kept:
            asked_at, _ = next(iter(self._kept.values()))
            if now - asked_at < self._ttl and len(self._kept) <= _LIMIT:
                return
            self._kept.popitem(last=False)


def _identity(node: V1Node) -> tuple[str | None, ...]:
    """What must be equal for two questions to be the same: the instance. Without a provider ID a
    vendor may look at anything of the node, so then it is the revision."""
    provider_id = provider_id_of(node)
    if provider_id:
        return (key_of(node), uid_of(node), provider_id)
    return (key_of(node), uid_of(node), None, version_of(node))


@define(eq=False)
class _Kept:
    uid: str
    provider_id: str
    value: tuple[str, Zone]
    left: int


class Facts:
    """Type and zone of instances by node name. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def recall(self, node: V1Node, provider_id: str) -> tuple[str, Zone] | None:
        """What is kept, `PACE` - 1 times in a row; then None, once."""
        with self._lock:
            kept = self._kept.get(key_of(node))
            if kept is None or (kept.uid, kept.provider_id) != (uid_of(node), provider_id) or kept.left <= 0:
                return None
            kept.left -= 1
            self._kept.move_to_end(key_of(node))
            return kept.value

    def keep(self, node: V1Node, provider_id: str, value: tuple[str, Zone]) -> None:
        """The cloud's answer. The first one of a node serves a shorter time, by its name, so that
        nodes which joined together are not asked about together."""
        name = key_of(node)
        with self._lock:
            before = self._kept.pop(name, None)
            first = before is None or before.uid != uid_of(node)
            left = zlib.crc32(name.encode()) % PACE if first else PACE - 1
            self._kept[name] = _Kept(uid_of(node), provider_id, value, left)
            while len(self._kept) > _LIMIT:
                self._kept.popitem(last=False)

    def forget(self, name: str) -> None:
        """The node is gone."""
        with self._lock:
            self._kept.pop(name, None)
