"""Many callers, one request: what several threads ask for at the same moment is done at once, and
each gets its own answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from cloudprovider import CallInterrupted, CloudProviderError, RetryError, current_call

K = TypeVar("K")


class _Batch(Generic[K]):
    def __init__(self) -> None:
        self.items: list[K] = []
        self.failed: Mapping[K, CloudProviderError] = {}
        self.error: BaseException | None = None
        self.done = threading.Event()


class Gathering(Generic[K]):
    """Runs `work` with all items that came within `linger` seconds, or while the work before was
    under way. `work` returns what went wrong with single items, and raises what concerns all. For
    any thread."""

    most = 50
    """Items in a batch: it has the time of one call."""

    def __init__(self, work: Callable[[Sequence[K]], Mapping[K, CloudProviderError]], linger: float = 0.05) -> None:
        self._work = work
        self._linger = linger
        self._lock = threading.Lock()  # of `_open`
        self._working = threading.Lock()  # one batch at a time
        self._open: _Batch[K] | None = None

    def do(self, item: K) -> None:
        """Return when it is done. Raises what the work raised for it, and `CallInterrupted` when
        the time of this call is over."""
        with self._lock:
            first = self._open is None
            batch = self._open or _Batch()
            batch.items.append(item)
            self._open = batch if len(batch.items) < self.most else None
        if first:
            self._lead(batch)
        elif not batch.done.wait(current_call().remaining()):
            current_call().check()
        if isinstance(batch.error, CallInterrupted):  # of the call that led: this one may have time left
            current_call().check()
            raise RetryError("another request for the same was given up", 1.0) from batch.error
        for error in (batch.error, batch.failed.get(item)):
            if error is not None:
                raise error

    def _lead(self, batch: _Batch[K]) -> None:
        """Do the work for all who have joined by then."""
        call = current_call()
        held = False
        try:
            call.pause(self._linger)
            left = call.remaining()
            held = self._working.acquire(timeout=-1 if left is None else left)
            call.check()
        except BaseException as error:  # noqa: BLE001 - raised again in each thread that waits for it
            batch.error = error
        finally:
            with self._lock:
                if self._open is batch:
                    self._open = None  # who comes now is of the next one
        try:
            if batch.error is None:
                batch.failed = self._work(batch.items)
        except BaseException as error:  # noqa: BLE001 - as above
            batch.error = error
        finally:
            if held:
                self._working.release()
            batch.done.set()
