"""A crew of threads: bounded in threads and places, fair to peers, gone when there is nothing to do."""

from __future__ import annotations

import threading

import pytest

from cloudprovider.testing.waiting import eventually
from controllers.app.serving.answerers import Answerers

A, B = b"10.0.0.1", b"10.0.0.2"


class Work:
    """Work that waits for the test."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.done = 0
        self._lock = threading.Lock()

    def __call__(self) -> None:
        assert self.free.wait(20)
        with self._lock:
            self.done += 1


def _threads(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


def test_no_peer_gets_all_places_and_all_come_free_again() -> None:
    crew, work = Answerers("crew-a", 2, places=5, per_peer=3), Work()
    assert [crew.add(A, work) for _ in range(4)] == [True, True, True, False]
    assert [crew.add(B, work) for _ in range(3)] == [True, True, False]
    assert _threads("crew-a") == 2
    work.free.set()
    eventually(lambda: work.done == 5)
    eventually(lambda: _threads("crew-a") == 0)
    assert [crew.add(A, work) for _ in range(3)] == [True] * 3
    eventually(lambda: work.done == 8)


def test_where_no_thread_can_be_had_the_work_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    crew, work = Answerers("crew-b", 2, places=5, per_peer=1), Work()
    work.free.set()

    def no_thread(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        assert not crew.add(A, work)
        assert not crew.add(A, work)
    assert crew.add(A, work), "its place came free"
    eventually(lambda: work.done == 1)
