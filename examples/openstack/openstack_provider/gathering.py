"""Many callers, one request: what several threads ask for at the same moment is done at once, and
each gets its own answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from attrs import define

from cloudprovider import CallInterrupted, CloudProviderError, RetryError, current_call

K = TypeVar("K")


@define(eq=False)
class _Wish(Generic[K]):
    item: K
    done: bool = False
    error: Exception | None = None


class Gathering(Generic[K]):
    """Runs `work` with all items that came within `linger` seconds, or while the work before was
    under way. `work` returns what went wrong with single items, and raises what concerns all. For
    any thread."""

    most = 50
    """Items in a batch: it has the time of one call."""

    def __init__(self, work: Callable[[Sequence[K]], Mapping[K, CloudProviderError]], linger: float = 0.05) -> None:
        self._work = work
        self._linger = linger
        self._lock = threading.Lock()  # of `_waiting`
        self._working = threading.Lock()  # one batch at a time
        self._waiting: list[_Wish[K]] = []

    def do(self, item: K) -> None:
        """Return when it is done. Raises what the work raised for it, and `CallInterrupted` when
        the time of this call is over."""
        call, mine = current_call(), _Wish(item)
        with self._lock:
            self._waiting.append(mine)
        try:
            call.pause(self._linger)
            left = call.remaining()
            with_turn = self._working.acquire(timeout=-1 if left is None else left)
            try:
                while not mine.done:  # else who had the turn before has done it, too
                    call.check()
                    self._next_batch()
            finally:
                if with_turn:
                    self._working.release()
        finally:
            with self._lock:
                if mine in self._waiting:  # given up: nobody is to do it
                    self._waiting.remove(mine)
        if mine.error is not None:
            raise mine.error

    def _next_batch(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting[: self.most], self._waiting[self.most :]
        failed: Mapping[K, CloudProviderError] = {}
        error: Exception | None = RetryError("another request for the same was given up", 1.0)
        try:
            failed, error = self._work([one.item for one in batch]), None
        except CallInterrupted:  # of this call, and not of those that wait for it
            raise
        except Exception as broken:  # noqa: BLE001 - raised again in each thread that waits for it
            error = broken
        finally:
            for one in batch:
                one.error, one.done = error or failed.get(one.item), True
