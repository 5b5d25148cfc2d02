"""Where the fake cloud's state lives when several processes share it: an SQLite file (stage 5's far end).

One connection for each process, guarded by a lock, in WAL mode: readers never wait for writers, and writers queue by
the busy timeout. Every transaction that writes takes the write lock at its beginning, so none fails half-way because
another process was faster. A process killed in the middle of one leaves no trace of it. After a fork the child opens a
connection of its own.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from cloudprovider.testing.fake.errors import FakeCloudClosed, FakeStateError
from cloudprovider.testing.fake.records import Kind
from cloudprovider.testing.fake.store import Store, Transaction, View

__all__ = ["SCHEMA_VERSION", "SQLiteStore"]

T = TypeVar("T")
SCHEMA_VERSION = 1
_CHUNK = 500  # values in one IN list; SQLite's smallest limit for variables is 999
_WAL_RETRY = 0.01  # seconds

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    kind TEXT NOT NULL, key TEXT NOT NULL, idx TEXT, value TEXT,
    previous_idx TEXT, previous TEXT, changed REAL,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS records_idx ON records (kind, idx) WHERE idx IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_previous_idx ON records (kind, previous_idx) WHERE previous_idx IS NOT NULL;
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""
# A row changed after the time asked for shows its previous version; NULL, for rows that never changed, is no time.
_SEEN = "CASE WHEN changed > :as_of THEN previous ELSE value END"
_SEEN_IDX = "CASE WHEN changed > :as_of THEN previous_idx ELSE idx END"


class SQLiteStore(Store):
    """A store in a file, made when absent. See the module's docstring for what happens between processes.

    `busy_timeout` is in seconds: how long to wait for another process before `FakeStateError` is raised.
    """

    shared = True

    def __init__(self, path: str | os.PathLike[str], now: Callable[[], float], *, busy_timeout: float = 10.0) -> None:
        self.path = Path(path)
        self._now = now
        self._busy_timeout = busy_timeout
        self._closed = False
        self._left_to_parent: list[_Session] = []  # a child must not close what its parent opened
        self._session = _Session(self.path, busy_timeout)

    @contextmanager
    def read(self, as_of: float | None = None) -> Iterator[View]:
        with self._transaction("BEGIN") as db:
            yield _SQLiteTransaction(db, as_of, None)

    @contextmanager
    def write(self, *, settled: bool = False) -> Iterator[Transaction]:
        with self._transaction("BEGIN IMMEDIATE") as db:
            yield _SQLiteTransaction(db, None, None if settled else self._now())

    def close(self) -> None:
        self._closed = True
        if self._session.pid == os.getpid():
            with self._session.lock:
                self._session.db.close()

    @staticmethod
    def _roll_back(db: sqlite3.Connection) -> None:
        if db.in_transaction:
            db.execute("ROLLBACK")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        session = self._session
        if session.pid != os.getpid():
            self._left_to_parent.append(session)
            session = self._session = _Session(self.path, self._busy_timeout)
        with session.lock:
            if self._closed:
                raise FakeCloudClosed("the fake cloud was closed")
            db = session.db
            if db.in_transaction:
                raise RuntimeError("transactions don't nest")
            try:
                db.execute(begin)
                yield db
                db.execute("COMMIT")
            except sqlite3.Error as error:
                raise FakeStateError(f"the file {self.path} of the fake cloud: {error}") from error
            finally:
                self._roll_back(db)


class _Session:
    """One process's connection to the file, and the lock that its threads share it by."""

    def __init__(self, path: Path, busy_timeout: float) -> None:
        self.pid = os.getpid()
        self.lock = threading.RLock()
        try:
            self.db = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None, check_same_thread=False)
            try:
                self._prepare(path, busy_timeout)
            except BaseException:
                self.db.close()
                raise
        except sqlite3.Error as error:
            raise FakeStateError(f"the file {path} cannot hold a fake cloud: {error}") from error

    def _prepare(self, path: Path, busy_timeout: float) -> None:
        # SQLite answers "locked" at once, without the busy timeout, when two processes turn WAL on together.
        deadline = time.monotonic() + busy_timeout
        while True:
            try:
                self.db.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() >= deadline:
                    raise
                time.sleep(_WAL_RETRY)
        # Without syncs a power cut may cost the last transactions; the death of a process, which tests cause, none.
        self.db.execute("PRAGMA synchronous = OFF")
        self.db.execute("BEGIN IMMEDIATE")
        try:
            version = int(self.db.execute("PRAGMA user_version").fetchone()[0])
            if version not in (0, SCHEMA_VERSION):
                raise FakeStateError(
                    f"the file {path} holds a fake cloud of format {version}, and this release reads format"
                    f" {SCHEMA_VERSION}: delete the file, or name another"
                )
            if version == 0:
                for statement in _SCHEMA.split(";"):
                    self.db.execute(statement)
                self.db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            self.db.execute("COMMIT")
        finally:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")


class _SQLiteTransaction(Transaction):
    def __init__(self, db: sqlite3.Connection, as_of: float | None, changed: float | None) -> None:
        self._db = db
        self._as_of = as_of
        self._changed = changed

    def get_many(self, kind: Kind[T], keys: Iterable[str]) -> dict[str, T]:
        if self._as_of is None:
            rows = self._select("key, value", kind, "key", keys)
        else:
            rows = self._select(f"key, {_SEEN}", kind, "key", keys)
        return {key: kind.decode(text) for key, text in rows if text is not None}

    def find_many(self, kind: Kind[T], values: Iterable[str]) -> dict[str, T]:
        assert kind.index is not None, f"{kind.name} has no index"
        wanted = list(values)
        if self._as_of is None:
            rows = self._select("idx, value", kind, "idx", wanted)
        else:
            # Two indexed searches, as the value may stand in the present or in the previous version.
            both = [
                *self._select(f"{_SEEN_IDX}, {_SEEN}, key", kind, "idx", wanted),
                *self._select(f"{_SEEN_IDX}, {_SEEN}, key", kind, "previous_idx", wanted),
            ]
            rows = [(idx, text) for idx, text, _ in sorted(both, key=lambda row: str(row[2]))]
        asked = set(wanted)
        found: dict[str, T] = {}
        for idx, text in rows:
            if text is not None and idx in asked and idx not in found:
                found[idx] = kind.decode(text)
        return found

    def scan(self, kind: Kind[T]) -> list[T]:
        seen = "value" if self._as_of is None else _SEEN
        rows = self._db.execute(
            f"SELECT {seen} FROM records WHERE kind = :kind ORDER BY key", {"kind": kind.name, "as_of": self._as_of}
        )
        return [kind.decode(text) for (text,) in rows if text is not None]

    def counter(self, name: str) -> int:
        row = self._db.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()
        return 0 if row is None else int(row[0])

    def counters(self, prefix: str = "") -> dict[str, int]:
        rows = self._db.execute(
            "SELECT name, value FROM counters WHERE substr(name, 1, ?) = ? ORDER BY name", (len(prefix), prefix)
        )
        return {name[len(prefix) :]: value for name, value in rows}

    def put(self, kind: Kind[T], key: str, value: T) -> None:
        index = kind.index(value) if kind.index is not None else None
        previous = "idx, value" if kind.history else "NULL, NULL"
        self._db.execute(
            f"""INSERT INTO records (kind, key, idx, value, changed) VALUES (?, ?, ?, ?, ?)
                ON CONFLICT (kind, key) DO UPDATE SET (previous_idx, previous) = (SELECT {previous}),
                idx = excluded.idx, value = excluded.value, changed = excluded.changed""",
            (kind.name, key, index, kind.encode(value), self._changed),
        )

    def delete(self, kind: Kind[Any], key: str) -> bool:
        if kind.history:
            statement = """UPDATE records
                           SET previous_idx = idx, previous = value, idx = NULL, value = NULL, changed = ?
                           WHERE kind = ? AND key = ? AND value IS NOT NULL"""
            return self._db.execute(statement, (self._changed, kind.name, key)).rowcount > 0
        return self._db.execute("DELETE FROM records WHERE kind = ? AND key = ?", (kind.name, key)).rowcount > 0

    def add(self, counter: str, amount: int = 1) -> int:
        row = self._db.execute(
            """INSERT INTO counters VALUES (?, ?)
               ON CONFLICT (name) DO UPDATE SET value = value + excluded.value RETURNING value""",
            (counter, amount),
        ).fetchone()
        return int(row[0])

    def clear(self, kind: Kind[Any]) -> None:
        self._db.execute("DELETE FROM records WHERE kind = ?", (kind.name,))

    def _select(self, columns: str, kind: Kind[Any], column: str, values: Iterable[str]) -> list[Sequence[Any]]:
        wanted = list(values)
        rows: list[Sequence[Any]] = []
        for start in range(0, len(wanted), _CHUNK):
            names = {f"v{i}": value for i, value in enumerate(wanted[start : start + _CHUNK])}
            marks = ", ".join(f":{name}" for name in names)
            rows += self._db.execute(
                f"SELECT {columns} FROM records WHERE kind = :kind AND {column} IN ({marks}) ORDER BY key",
                {"kind": kind.name, "as_of": self._as_of, **names},
            ).fetchall()
        return rows
