"""Between stages 5 and 4: the buffer for the cloud's answers, from a batch's fetch to each key's reconcile.

Used by ``worker.BatchWorker``. Fetch functions deliver from any thread at any time, and are not trusted to do it right.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from controllers.runtime.clock import SYSTEM_CLOCK, Clock, wait_for
from controllers.runtime.queue.workqueue import ShutDown

__all__ = ["Batch", "FetchBuffer"]

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")


class FetchBuffer(Generic[K, A]):
    """A queue of (key, answer) pairs, first in first out, that says when it holds enough. Thread-safe.

    It never refuses or blocks a delivery, as that would hold up a thread of the vendor pool. The bound is kept by those
    who ask for answers: they wait for room before they take the next batch, so at most `limit` pairs and one batch
    of each fetcher are here.
    """

    def __init__(self, limit: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._limit = limit
        self._clock = clock
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._pairs: deque[tuple[K, A]] = deque()
        self._closed = False

    def __len__(self) -> int:
        return len(self._pairs)

    def put(self, key: K, answer: A) -> bool:
        """Append a pair; False when closed, and the pair is dropped."""
        with self._lock:
            if self._closed:
                return False
            self._pairs.append((key, answer))
            self._filled.notify()
            return True

    def take(self, timeout: float | None = None) -> tuple[K, A] | None:
        """Wait for the next pair; None when none came within `timeout` seconds. Raises ShutDown once closed."""
        with self._lock:
            if not wait_for(self._clock, self._filled, lambda: bool(self._pairs or self._closed), timeout):
                return None
            if not self._pairs:
                raise ShutDown("no answers come any more")
            pair = self._pairs.popleft()
            if len(self._pairs) < self._limit:
                self._room.notify_all()  # each that waited for room is one of few who look for work
            return pair

    def wait_room(self) -> None:
        """Wait until fewer pairs than the limit are here, or it is closed."""
        with self._lock:
            while len(self._pairs) >= self._limit and not self._closed:
                self._room.wait()

    def close(self) -> None:
        """Drop what is here and take nothing more in. May be called again."""
        with self._lock:
            self._closed = True
            self._pairs.clear()
            self._filled.notify_all()
            self._room.notify_all()


class Batch(Generic[K, A]):
    """The keys of one fetch, of which each gets one answer. Anything else is logged and told to `stray`.

    `stray` gets "twice", "unknown" (a key that is not of this batch) or "late" (after the fetch function returned,
    when the key has been requeued already).
    """

    def __init__(self, name: str, keys: Sequence[K], answers: FetchBuffer[K, A], stray: Callable[[str], None]) -> None:
        self._name = name
        self._keys = keys
        self._answers = answers
        self._stray = stray
        self._lock = threading.Lock()
        self._pending = dict.fromkeys(keys)
        self._closed = False

    def deliver(self, key: K, answer: A) -> None:
        """Hand the answer on. Called once per key, from any thread."""
        with self._lock:
            if self._closed:
                kind = "late"
            elif key in self._pending:
                del self._pending[key]
                kind = ""
            else:
                kind = "twice" if key in self._keys else "unknown"
        if kind:
            self._stray(kind)
            logger.warning("%s: an answer for %s was not expected (%s) and is dropped", self._name, key, kind)
        elif not self._answers.put(key, answer):
            logger.debug("%s: the answer for %s came after the end", self._name, key)

    def close(self) -> list[K]:
        """Accept no more answers; return the keys without one, in the batch's order."""
        with self._lock:
            self._closed = True
            return list(self._pending)
