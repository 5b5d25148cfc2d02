"""What the fake cloud was asked: counts of every call, and a log of those that change something (stage 5).

Kept in the store, so that with an SQLite file counts and log cover all processes. Begin and end of a logged call take
numbers from one counter of the store, inside its transactions: by these numbers, not by clocks, `overlaps` proves that
two operations never ran together, whichever processes ran them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence

from attrs import evolve, field, frozen

from cloudprovider.testing.fake.methods import METHODS, matches
from cloudprovider.testing.fake.records import record_kind
from cloudprovider.testing.fake.store import Store, Transaction
from cloudprovider.testing.fake.timing import Clock

__all__ = ["CallBook", "CallRecord", "Caller"]


@frozen
class Caller:
    """Who called: a process, for a cluster, and a name if the program gave itself one."""

    process: int
    cluster: str = ""
    name: str = ""


def _caller(value: Caller | Mapping[str, object]) -> Caller:
    return value if isinstance(value, Caller) else Caller(**value)  # type: ignore[arg-type]  # written by us, from a Caller


def _strings(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(value)


@frozen
class CallRecord:
    """One logged call, or one change made at the console (`method` then begins with "console.")."""

    sequence: int
    """The number that it took when it began. Numbers grow over all processes that share the cloud."""
    method: str
    keys: tuple[str, ...] = field(converter=_strings)
    """What it was about, as faults match it: for load balancers the name and the Service's "namespace/name"."""
    caller: Caller = field(converter=_caller)
    thread: int
    time: float
    """When it began, in Unix seconds."""
    started: float
    """The same on the monotonic clock, which all processes of a machine share."""
    ended: float | None = None
    finished: int | None = None
    """The number that it took when it ended; None while it runs, or when its process died in it."""
    effect: str = ""
    """What it changed: created, updated, unchanged, deleted, absent; empty where it failed before."""
    error: str = ""
    """The name of the exception that it raised."""

    @property
    def key(self) -> str:
        """The first of `keys`; empty when there is none."""
        return self.keys[0] if self.keys else ""


_CALLS = record_kind("call", CallRecord)


def _log_key(sequence: int) -> str:
    return f"{sequence:016d}"


class CallBook:
    """Counts and log of one cloud. Thread-safe; counts are those of this moment."""

    def __init__(self, store: Store, clock: Clock, caller: str) -> None:
        self._store = store
        self._clock = clock
        self._name = caller

    def counts(self) -> Mapping[str, int]:
        """By method, how often it was called, failures and calls under way included."""
        with self._store.read() as view:
            return {method: number for method, number in view.counters("calls/").items() if number}

    def count(self, *methods: str) -> int:
        """How often methods whose names match any of these patterns were called; without patterns, all calls."""
        return sum(n for method, n in self.counts().items() if matches(methods or ("*",), (method,)))

    def keys_asked(self, method: str) -> int:
        """How many names all calls of a batch method asked for together."""
        with self._store.read() as view:
            return view.counter(f"keys/{method}")

    def errors(self) -> Mapping[str, Mapping[str, int]]:
        """By method, by name of the exception, how often it failed so."""
        with self._store.read() as view:
            flat = view.counters("errors/")
        nested: dict[str, dict[str, int]] = {}
        for name, number in flat.items():
            method, _, error = name.partition("/")
            if number:
                nested.setdefault(method, {})[error] = number
        return nested

    def log(self, *methods: str, key: str = "*", changes_only: bool = False) -> Sequence[CallRecord]:
        """Logged calls in the order they began, of matching methods about matching keys.

        `changes_only`: those that really changed the cloud.
        """
        with self._store.read() as view:
            records = view.scan(_CALLS)
        return tuple(
            record
            for record in records
            if matches(methods or ("*",), (record.method,))
            and (key == "*" or matches((key,), record.keys))
            and not (changes_only and record.effect not in ("created", "updated", "deleted"))
        )

    def running(self) -> Sequence[CallRecord]:
        """Logged calls that have not ended; also those whose process was killed in the middle."""
        return tuple(record for record in self.log() if record.finished is None)

    def overlaps(
        self, capability: str = "load_balancer", *, unfinished: bool = True
    ) -> Sequence[tuple[CallRecord, CallRecord]]:
        """Pairs of changing calls about one key that ran at the same time; empty is what a host should reach.

        A call that never ended overlaps all later ones of its key, unless `unfinished` is False: for after a kill.
        """
        by_key: dict[str, list[CallRecord]] = {}
        for record in self.log():
            method = METHODS.get(record.method)
            if method is not None and method.mutating and method.capability == capability:
                by_key.setdefault(record.key, []).append(record)
        found: list[tuple[CallRecord, CallRecord]] = []
        for records in by_key.values():
            for position, later in enumerate(records):
                found += [
                    (earlier, later)
                    for earlier in records[:position]
                    if (unfinished if earlier.finished is None else earlier.finished > later.sequence)
                ]
        return tuple(found)

    def clear(self) -> None:
        """Forget counts and log, as if nothing had been asked yet."""
        with self._store.write() as tx:
            tx.clear(_CALLS)
            for prefix in ("calls/", "keys/", "errors/"):
                for name, value in tx.counters(prefix).items():
                    tx.add(prefix + name, -value)

    # For the gate and the console.

    def caller(self, cluster: str = "") -> Caller:
        """This process, calling for a cluster."""
        return Caller(os.getpid(), cluster, self._name)

    def count_call(self, tx: Transaction, method: str, keys: int | None = None) -> None:
        """Count a call as it begins; `keys` is given for batches."""
        tx.add(f"calls/{method}")
        if keys is not None:
            tx.add(f"keys/{method}", keys)

    def count_error(self, tx: Transaction, method: str, error: BaseException) -> None:
        """Count a call that failed."""
        tx.add(f"errors/{method}/{type(error).__name__}")

    def begin(self, tx: Transaction, method: str, keys: Sequence[str], caller: Caller) -> CallRecord:
        """Log a call as it begins."""
        record = CallRecord(
            sequence=tx.add("sequence"),
            method=method,
            keys=keys,
            caller=caller,
            thread=threading.get_ident(),
            time=self._clock.time(),
            started=self._clock.monotonic(),
        )
        tx.put(_CALLS, _log_key(record.sequence), record)
        return record

    def end(self, tx: Transaction, record: CallRecord, effect: str, error: BaseException | None = None) -> None:
        """Complete the log of a call."""
        ended = evolve(
            record,
            ended=self._clock.monotonic(),
            finished=tx.add("sequence"),
            effect=effect,
            error="" if error is None else type(error).__name__,
        )
        tx.put(_CALLS, _log_key(record.sequence), ended)
