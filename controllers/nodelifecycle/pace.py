"""How often the same wish is written on the same node (before stage 6). No I/O; in memory alone.

The first write comes at once. When somebody undoes it, it is written again only after a pause that doubles each time,
so that two writers who disagree do not fight. Another wish (the cloud's answer has changed) is written at once.
"""

from __future__ import annotations

import threading
from typing import Final

from attrs import frozen

_FIRST: Final = 60.0
_LONGEST: Final = 3600.0


@frozen
class _Written:
    uid: str
    wish: str
    at: float
    pause: float


class Pace:
    """The last write on each node. Times are of one monotonic clock. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._written: dict[str, _Written] = {}

    def allows(self, name: str, uid: str, wish: str, now: float) -> bool:
        """Whether this may be written now."""
        last = self._written.get(name)
        return last is None or (last.uid, last.wish) != (uid, wish) or now - last.at >= last.pause

    def wrote(self, name: str, uid: str, wish: str, now: float) -> None:
        """It was written. A write that has held for twice its pause is forgotten."""
        with self._lock:
            for other in [key for key, one in self._written.items() if now - one.at >= 2 * one.pause]:
                del self._written[other]
            last = self._written.get(name)
            again = last is not None and (last.uid, last.wish) == (uid, wish)
            pause = min(_LONGEST, 2 * last.pause) if again and last is not None else _FIRST
            self._written[name] = _Written(uid, wish, now, pause)
