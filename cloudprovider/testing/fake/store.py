"""Where the fake cloud's state lives: the interface of a store, and the one in memory (stage 5's far end).

The capabilities, the console, the faults and the call log read and write through `View` and `Transaction` only. The
other implementation, an SQLite file shared by processes, is in store_sqlite.py; one set of tests runs over both.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from cloudprovider.testing.fake.errors import FakeCloudClosed
from cloudprovider.testing.fake.records import Kind

__all__ = ["MemoryStore", "Store", "Transaction", "View"]

T = TypeVar("T")


class View(ABC):
    """A consistent reading of the whole store, valid inside its with statement.

    Opened with `as_of`, records of kinds with a history that changed after that time show the version before their
    last change (absent, where that change created them).
    """

    @abstractmethod
    def get_many(self, kind: Kind[T], keys: Iterable[str]) -> dict[str, T]:
        """The records under these keys; absent keys are left out."""

    @abstractmethod
    def find_many(self, kind: Kind[T], values: Iterable[str]) -> dict[str, T]:
        """By index value, a record that has it (the first by key); values without one are left out."""

    @abstractmethod
    def scan(self, kind: Kind[T]) -> list[T]:
        """All records of a kind, sorted by key."""

    @abstractmethod
    def counter(self, name: str) -> int:
        """A counter's value, 0 when it was never added to."""

    @abstractmethod
    def counters(self, prefix: str = "") -> dict[str, int]:
        """The counters whose names begin with `prefix`, sorted by name, by the rest of their names."""

    def get(self, kind: Kind[T], key: str) -> T | None:
        """The record under this key, or None."""
        return self.get_many(kind, (key,)).get(key)

    def find(self, kind: Kind[T], value: str) -> T | None:
        """A record whose index value is `value`, or None."""
        return self.find_many(kind, (value,)).get(value)


class Transaction(View):
    """A View that also changes things: all of it happens, or, when the with statement ends by an exception, none."""

    @abstractmethod
    def put(self, kind: Kind[T], key: str, value: T) -> None:
        """Create or replace the record under this key."""

    @abstractmethod
    def delete(self, kind: Kind[Any], key: str) -> bool:
        """Delete the record under this key; whether there was one."""

    @abstractmethod
    def add(self, counter: str, amount: int = 1) -> int:
        """Add to a counter; returns its new value."""

    @abstractmethod
    def clear(self, kind: Kind[Any]) -> None:
        """Delete all records of a kind, with their history."""


class Store(ABC):
    """A set of records and counters. Safe to use from many threads at once; transactions don't nest."""

    shared: bool
    """Whether other processes may change it."""

    @abstractmethod
    def read(self, as_of: float | None = None) -> AbstractContextManager[View]:
        """A consistent view. `as_of` is in Unix seconds, -inf for the oldest version known."""

    @abstractmethod
    def write(self, *, settled: bool = False) -> AbstractContextManager[Transaction]:
        """An exclusive transaction. `settled`: what is put has always been so, and has no earlier version."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything. Later use raises `FakeCloudClosed`; closing again does nothing."""


class _Row:
    __slots__ = ("changed", "key", "previous", "value")

    def __init__(self, key: str, value: Any, previous: Any, changed: float) -> None:
        self.key = key
        self.value = value  # None: deleted, kept for its history
        self.previous = previous
        self.changed = changed


class _Table:
    __slots__ = ("by_index", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, _Row] = {}
        self.by_index: dict[str, set[str]] = {}  # index value, present or previous -> keys


class MemoryStore(Store):
    """A store in this process alone. Records are kept as they are: they are frozen."""

    shared = False

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.RLock()
        self._busy = False
        self._closed = False
        self._tables: dict[str, _Table] = {}
        self._counters: dict[str, int] = {}

    @contextmanager
    def read(self, as_of: float | None = None) -> Iterator[View]:
        with self._exclusive():
            yield _MemoryTransaction(self._tables, self._counters, as_of, 0.0)

    @contextmanager
    def write(self, *, settled: bool = False) -> Iterator[Transaction]:
        with self._exclusive():
            transaction = _MemoryTransaction(self._tables, self._counters, None, -math.inf if settled else self._now())
            try:
                yield transaction
            except BaseException:
                transaction.undo()
                raise

    def close(self) -> None:
        with self._lock:
            self._closed = True

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise FakeCloudClosed("the fake cloud was closed")
            if self._busy:
                raise RuntimeError("transactions don't nest")
            self._busy = True
            try:
                yield
            finally:
                self._busy = False


class _MemoryTransaction(Transaction):
    def __init__(
        self, tables: dict[str, _Table], counters: dict[str, int], as_of: float | None, changed: float
    ) -> None:
        self._tables = tables
        self._counters = counters
        self._as_of = as_of
        self._changed = changed
        self._undo: list[Callable[[], object]] = []

    def _table(self, kind: Kind[Any]) -> _Table:
        table = self._tables.get(kind.name)
        if table is None:
            table = self._tables[kind.name] = _Table()
        return table

    def _seen(self, row: _Row) -> Any:
        return row.previous if self._as_of is not None and row.changed > self._as_of else row.value

    def get_many(self, kind: Kind[T], keys: Iterable[str]) -> dict[str, T]:
        rows = self._table(kind).rows
        found: dict[str, T] = {}
        for key in keys:
            row = rows.get(key)
            if row is not None and (value := self._seen(row)) is not None:
                found[key] = value
        return found

    def find_many(self, kind: Kind[T], values: Iterable[str]) -> dict[str, T]:
        assert kind.index is not None, f"{kind.name} has no index"
        table = self._table(kind)
        found: dict[str, T] = {}
        for wanted in values:
            for key in sorted(table.by_index.get(wanted, ())):
                value = self._seen(table.rows[key])
                if value is not None and kind.index(value) == wanted:
                    found[wanted] = value
                    break
        return found

    def scan(self, kind: Kind[T]) -> list[T]:
        rows = self._table(kind).rows
        return [value for key in sorted(rows) if (value := self._seen(rows[key])) is not None]

    def counter(self, name: str) -> int:
        return self._counters.get(name, 0)

    def counters(self, prefix: str = "") -> dict[str, int]:
        return {name[len(prefix) :]: self._counters[name] for name in sorted(self._counters) if name.startswith(prefix)}

    def put(self, kind: Kind[T], key: str, value: T) -> None:
        old = self._table(kind).rows.get(key)
        before = old.value if old is not None and kind.history else None
        self._set(kind, key, _Row(key, value, before, self._changed))

    def delete(self, kind: Kind[Any], key: str) -> bool:
        old = self._table(kind).rows.get(key)
        if old is None or old.value is None:
            return False
        self._set(kind, key, _Row(key, None, old.value, self._changed) if kind.history else None)
        return True

    def add(self, counter: str, amount: int = 1) -> int:
        old = self._counters.get(counter)
        value = self._counters[counter] = (old or 0) + amount
        if old is None:
            self._undo.append(lambda: self._counters.pop(counter, None))
        else:
            self._undo.append(lambda: self._counters.__setitem__(counter, old))
        return value

    def clear(self, kind: Kind[Any]) -> None:
        old = self._table(kind)
        self._tables[kind.name] = _Table()
        self._undo.append(lambda: self._tables.__setitem__(kind.name, old))

    def undo(self) -> None:
        for step in reversed(self._undo):
            step()
        self._undo.clear()

    def _set(self, kind: Kind[Any], key: str, row: _Row | None) -> None:
        old = self._replace(kind, key, row)
        self._undo.append(lambda: self._replace(kind, key, old))

    def _replace(self, kind: Kind[Any], key: str, row: _Row | None) -> _Row | None:
        table = self._table(kind)
        old = table.rows.pop(key, None)
        if kind.index is not None:
            if old is not None:
                for value in _index_values(kind.index, old):
                    keys = table.by_index[value]
                    keys.discard(key)
                    if not keys:
                        del table.by_index[value]
            if row is not None:
                for value in _index_values(kind.index, row):
                    table.by_index.setdefault(value, set()).add(key)
        if row is not None:
            table.rows[key] = row
        return old


def _index_values(index: Callable[[Any], str], row: _Row) -> set[str]:
    return {index(version) for version in (row.value, row.previous) if version is not None}
