"""What the fake cloud was asked: counts of every call, and a log of those that change something.

Begin and end of a logged call take numbers from one counter: by these numbers, not by clocks,
`overlaps` proves that two operations never ran together, whichever processes asked for them.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from attrs import evolve, frozen

from cloudprovider.testing.fake.methods import METHODS, matches


@frozen
class Caller:
    """Who called: a process, and a name if the program gave itself one."""

    process: int
    name: str = ""


@frozen
class CallRecord:
    """One logged call, or one change made at the console (`method` then begins with "console.")."""

    sequence: int
    """The number that it took when it began."""
    method: str
    keys: tuple[str, ...]
    """What it was about, as faults match it: for load balancers the name and the Service's
    "namespace/name"."""
    caller: Caller
    cluster: str
    time: float
    """When it began, in Unix seconds."""
    started: float
    """The same on the monotonic clock, which all processes of a machine share."""
    ended: float | None = None
    finished: int | None = None
    """The number that it took when it ended; None while it runs."""
    effect: str = ""
    """What it changed: created, updated, unchanged, deleted, absent; empty where it failed
    before."""
    error: str = ""
    """The name of the exception that it raised."""

    @property
    def key(self) -> str:
        """The first of `keys`; empty when there is none."""
        return self.keys[0] if self.keys else ""


class CallBook:
    """Counts and log of one cloud. Thread-safe; counts are those of this moment."""

    def __init__(self, name: str = "") -> None:
        self._lock = threading.Lock()
        self._records: dict[int, CallRecord] = {}
        self._sequence = 0
        self._counts: Counter[str] = Counter()
        self._here = Caller(os.getpid(), name)
        self._effect: ContextVar[list[str]] = ContextVar("fake_cloud_effect")
        self._caller: ContextVar[Caller] = ContextVar("fake_cloud_caller", default=self._here)

    def counts(self) -> Mapping[str, int]:
        """By method, how often it was called, failures and calls under way included."""
        with self._lock:
            return Counter(self._counts)

    def count(self, *methods: str) -> int:
        """How often methods whose names match any of these patterns were called; without patterns,
        all calls."""
        return sum(n for method, n in self.counts().items() if matches(methods or "*", (method,)))

    def log(self, *methods: str, key: str = "*", changes_only: bool = False) -> Sequence[CallRecord]:
        """Logged calls in the order they began, of matching methods about matching keys.

        `changes_only`: those that really changed the cloud.
        """
        with self._lock:
            # A copy: patterns are matched without the lock, which every call of the cloud needs.
            records = list(self._records.values())
        return tuple(
            record
            for record in records
            if matches(methods or "*", (record.method,))
            and (key == "*" or matches(key, record.keys))
            and not (changes_only and record.effect not in ("created", "updated", "deleted"))
        )

    def running(self) -> Sequence[CallRecord]:
        """Logged calls that have not ended."""
        return tuple(record for record in self.log() if record.finished is None)

    def overlaps(self, *, unfinished: bool = True) -> Sequence[tuple[CallRecord, CallRecord]]:
        """Pairs of changing calls about one key that ran at the same time; empty is what a host
        should reach.

        A call that never ended overlaps all later ones of its key, unless `unfinished` is False:
        for after a kill.
        """
        by_key: dict[str, list[CallRecord]] = {}
        for record in self.log():
            method = METHODS.get(record.method)
            # Reads may run beside anything: only two changes can spoil each other.
            if method is not None and method.changes:  # nothing that was done at the console
                by_key.setdefault(record.key, []).append(record)
        return tuple(
            (earlier, later)
            for records in by_key.values()
            for position, later in enumerate(records)
            for earlier in records[:position]
            if (unfinished if earlier.finished is None else earlier.finished > later.sequence)
        )

    def clear(self) -> None:
        """Forget counts and log, as if nothing had been asked yet."""
        with self._lock:
            self._records.clear()
            self._counts.clear()

    # For the gate, the server and the console.

    @property
    def caller(self) -> Caller:
        """Who is calling in this thread."""
        return self._caller.get()

    @contextmanager
    def calling_for(self, caller: Caller) -> Iterator[None]:
        """Calls of this thread are another process's."""
        token = self._caller.set(caller)
        try:
            yield
        finally:
            self._caller.reset(token)

    def count_call(self, method: str) -> None:
        """Count a call as it begins."""
        with self._lock:
            # As it begins: a call that hangs for ever has been made too.
            self._counts[method] += 1

    def effect(self, word: str) -> None:
        """Say what the logged call of this thread changed."""
        # One more word: a fault may carry a call out twice, and the last time counts.
        self._effect.get().append(word)

    @contextmanager
    def logged(self, method: str, keys: Sequence[str], cluster: str = "") -> Iterator[None]:
        """Log a call from its beginning to its end."""
        effect = [""]
        # Of this call alone: many run at once, also for one key.
        token = self._effect.set(effect)
        with self._lock:
            self._sequence += 1
            number = self._sequence
            begun = CallRecord(
                sequence=number,
                method=method,
                keys=tuple(keys),
                caller=self.caller,
                cluster=cluster,
                time=time.time(),
                started=time.monotonic(),
            )
            self._records[number] = begun
        error = ""
        try:
            yield
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            self._effect.reset(token)
            with self._lock:
                self._sequence += 1
                if number in self._records:  # not cleared meanwhile
                    self._records[number] = evolve(
                        begun, ended=time.monotonic(), finished=self._sequence, effect=effect[-1], error=error
                    )
