"""What seldom changes of an instance, kept so that it is not asked at every refresh (stage 5, cloud call).

The older `Instances` and `Zones` take a call each for addresses, type and zone. `instances.py` asks for addresses at
every refresh of a node, and for type and zone once in `PACE` refreshes: the rest of the time they come from here. Nodes
that join never read this memory. An entry belongs to one node (UID) and one provider ID; it goes with the node, and
beyond a limit the one that was used least recently goes.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from attrs import define

from controllers.runtime.cache import key_of, uid_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider import Zone

__all__ = ["PACE", "Facts"]

PACE: Final = 10
"""Of so many refreshes of a node, one asks for type and zone."""

_LIMIT: Final = 20_000


@define(eq=False)
class _Kept:
    uid: str
    provider_id: str
    value: tuple[str, Zone]
    left: int


class Facts:
    """Type and zone of instances by node name. Thread-safe."""

    def __init__(self, *, limit: int = _LIMIT) -> None:
        self._limit = limit
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
        """The cloud's answer. The first one of a node serves a shorter time, by its name, so that nodes which joined
        together are not asked about together."""
        name = key_of(node)
        with self._lock:
            before = self._kept.pop(name, None)
            first = before is None or before.uid != uid_of(node)
            left = zlib.crc32(name.encode()) % PACE if first else PACE - 1
            self._kept[name] = _Kept(uid_of(node), provider_id, value, left)
            while len(self._kept) > self._limit:
                self._kept.popitem(last=False)

    def forget(self, name: str) -> None:
        """The node is gone."""
        with self._lock:
            self._kept.pop(name, None)
