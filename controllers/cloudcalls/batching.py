"""Which keys are asked about together (stage 5, cloud call). Pure decisions; the fetch carries them
out."""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from cloudprovider import CallCancelled, NotImplementedByProvider, RetryError, Throttled
from controllers.cloudcalls.errors import CallsClosed

_PARTS = 4
_SUSPECTS = 256


def concerns_all(error: Exception) -> bool:
    """Whether an error tells nothing about the keys asked for, so fewer would not help."""
    return isinstance(error, Throttled | RetryError | NotImplementedByProvider | CallCancelled | CallsClosed)


class _Origin:
    """One batch as first formed, and what came of all its parts."""

    __slots__ = ("good", "size", "to_blame")

    def __init__(self, size: int) -> None:
        self.size = size
        self.good = False
        self.to_blame: list[str] = []


class Batch:
    """Keys to be asked about in one call."""

    __slots__ = ("is_part", "names", "origin")

    def __init__(self, names: tuple[str, ...], origin: _Origin, *, is_part: bool = False) -> None:
        self.names = names
        self.origin = origin
        self.is_part = is_part
        """Whether it was cut off a batch that failed."""


class Batcher:
    """Forms the batches of one method, and remembers suspects and failures. Thread-safe.

    A batch that fails does not say who is to blame. It is cut in four parts, asked at once, and
    again until the poison key stands alone: as many calls as halving, in half the time. With k
    poison keys among N, no more than 1 + 4 k ceil(log4 N) calls are made, and fewer than 2 N. A key
    that was found to blame is *suspect*: next time it is asked about alone.

    A cloud that is down fails every batch, and would be asked N times as often. So after as many
    cuts as one batch can need, without a success between, one key of a failed batch, taken at
    random, is asked about alone as a probe, and the others get the batch's error. The first success
    ends this.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._suspects: OrderedDict[str, None] = OrderedDict()
        self._barren = 0  # batches cut since the last success

    def suspects(self) -> tuple[str, ...]:
        """The keys that are asked about alone, the longest known first."""
        with self._lock:
            return tuple(self._suspects)

    def form(self, names: Sequence[str], max_batch: int) -> list[Batch]:
        """The batches to begin with: full ones, then each suspect alone, last."""
        with self._lock:
            alone = [name for name in names if name in self._suspects]
        apart = set(alone)
        together = [name for name in names if name not in apart] if apart else names
        chunks = [tuple(together[i : i + max_batch]) for i in range(0, len(together), max_batch)]
        chunks += [(name,) for name in alone]
        return [Batch(chunk, _Origin(len(chunk))) for chunk in chunks]

    def answered(self, batch: Batch) -> None:
        """The call gave a batch answer, whatever that says about single keys."""
        batch.origin.good = True
        with self._lock:
            self._barren = 0
            if len(batch.names) == 1:
                self._suspects.pop(batch.names[0], None)

    def failed(self, batch: Batch, max_batch: int) -> list[Batch]:
        """The call failed, or is overdue: the parts to ask about. Other keys get the error."""
        if len(batch.names) == 1:
            batch.origin.to_blame.append(batch.names[0])
            return []
        with self._lock:
            outage = self._barren >= max_batch
            if not outage:
                self._barren += 1
        if not outage:
            return [Batch(part, batch.origin, is_part=True) for part in _parts(batch.names)]
        return [] if batch.is_part else [Batch((random.choice(batch.names),), batch.origin, is_part=True)]

    def finished(self, batches: Iterable[Batch]) -> None:
        """The fetch that began with these is over: who was to blame is suspect from now on.

        Only where some keys of the batch were answered and at most half were to blame: otherwise it
        was not they."""
        with self._lock:
            for origin in {batch.origin for batch in batches}:
                if not origin.good or 2 * len(origin.to_blame) > origin.size:
                    continue
                for name in origin.to_blame:
                    self._suspects[name] = None
                    self._suspects.move_to_end(name)
            while len(self._suspects) > _SUSPECTS:
                self._suspects.popitem(last=False)


def _parts(names: Sequence[str]) -> list[tuple[str, ...]]:
    """At most four parts of nearly equal size, none of them empty."""
    count = min(_PARTS, len(names))
    size, larger = divmod(len(names), count)
    parts = []
    start = 0
    for index in range(count):
        end = start + size + (index < larger)
        parts.append(tuple(names[start:end]))
        start = end
    return parts
