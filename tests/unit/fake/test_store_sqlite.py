"""The SQLite file between processes, and files that are none."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from cloudprovider.testing.fake.errors import FakeStateError
from cloudprovider.testing.fake.records import REMOVED_INSTANCES, Mark
from cloudprovider.testing.fake.store_sqlite import SCHEMA_VERSION, SQLiteStore

SPAWN = multiprocessing.get_context("spawn")
PROCESSES, ROUNDS = 3, 60


def _count(path: str, ready: Connection) -> None:
    store = SQLiteStore(path, time.time, busy_timeout=60)
    ready.send("ready")
    ready.recv()
    for _ in range(ROUNDS):
        with store.write() as tx:
            current = tx.get(REMOVED_INSTANCES, "n")
            tx.put(REMOVED_INSTANCES, "n", Mark(str(int(current.value) + 1 if current else 1)))
            tx.add("n")
    store.close()


def test_processes_lose_no_update(tmp_path: Path) -> None:
    """They open the file together, too: turning it into a shared one is part of the race."""
    pipes = [SPAWN.Pipe() for _ in range(PROCESSES)]
    workers = [SPAWN.Process(target=_count, args=(str(tmp_path / "state"), far)) for _, far in pipes]
    for worker in workers:
        worker.start()
    for near, _ in pipes:
        assert near.recv() == "ready"
    for near, _ in pipes:
        near.send("go")
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    store = SQLiteStore(tmp_path / "state", time.time)
    with store.read() as view:
        assert view.get(REMOVED_INSTANCES, "n") == Mark(str(PROCESSES * ROUNDS))
        assert view.counter("n") == PROCESSES * ROUNDS
    store.close()


def _die_inside(path: str, ready: Connection) -> None:
    store = SQLiteStore(path, time.time)
    with store.write() as tx:
        tx.add("n")
    with store.write() as tx:
        tx.add("n")
        ready.send("inside")
        ready.recv()


def test_a_killed_process_leaves_what_it_finished_and_no_lock(tmp_path: Path) -> None:
    near, far = SPAWN.Pipe()
    worker = SPAWN.Process(target=_die_inside, args=(str(tmp_path / "state"), far))
    worker.start()
    assert near.recv() == "inside"
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.join(60)
    store = SQLiteStore(tmp_path / "state", time.time, busy_timeout=5)
    with store.write() as tx:
        assert tx.add("n") == 2
    store.close()


def test_a_forked_child_opens_its_own_connection(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "state", time.time)
    with store.write() as tx:
        tx.add("n")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with store.write() as tx:
                tx.add("n")
            store.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    with store.write() as tx:
        assert tx.add("n") == 3
    store.close()


def test_waiting_for_another_process_ends(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "state", time.time, busy_timeout=0.01)
    other = sqlite3.connect(tmp_path / "state", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(FakeStateError, match="locked"), store.write() as tx:
        tx.add("n")
    with store.read() as view:
        assert view.counter("n") == 0, "readers wait for nobody"
    other.execute("ROLLBACK")
    with store.write() as tx:
        assert tx.add("n") == 1
    other.close()
    store.close()


@pytest.mark.parametrize("content", [b"not a database, but long enough to look at" * 100, b""])
def test_a_file_that_is_no_database_is_named_an_empty_one_used(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    if content:
        with pytest.raises(FakeStateError, match=str(path)):
            SQLiteStore(path, time.time)
        assert path.read_bytes() == content
    else:
        SQLiteStore(path, time.time).close()


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(FakeStateError, match="missing/file"):
        SQLiteStore(tmp_path / "missing" / "file", time.time)


def test_another_release_s_format_is_refused(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "file")
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    with pytest.raises(FakeStateError, match="delete the file"):
        SQLiteStore(tmp_path / "file", time.time)
