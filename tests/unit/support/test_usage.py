"""The measure of the tests for leaks sees a thread, a descriptor and memory that nobody gives back."""

from __future__ import annotations

import mmap
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.support.usage import Usage, usage

HOW_MANY = 5


@contextmanager
def threads() -> Iterator[None]:
    done = threading.Event()
    made = [threading.Thread(target=done.wait) for _ in range(HOW_MANY)]
    for one in made:
        one.start()
    yield
    done.set()
    for one in made:
        one.join()


@contextmanager
def sockets() -> Iterator[None]:
    with ExitStack() as ends:
        for _ in range(HOW_MANY):
            ends.enter_context(socket.socket())
        yield


@contextmanager
def memory() -> Iterator[None]:
    """Pages of the kernel's own: what Python allocates may fit into memory that earlier tests gave back."""
    with mmap.mmap(-1, HOW_MANY * 4_000_000) as kept:
        kept.write(b"x" * len(kept))
        yield


@pytest.mark.parametrize(("leak", "word"), [(threads, "threads"), (sockets, "files"), (memory, "memory")])
def test_a_leak_is_seen(leak: type, word: str) -> None:
    before = usage()
    with leak():
        assert word in usage().grown(before)


def test_what_stays_is_no_growth() -> None:
    assert usage().grown(usage()) == ""
    assert Usage(10, 20, 100.0).grown(Usage(9, 18, 95.0)) == ""
    assert Usage(13, 20, 100.0).grown(Usage(10, 20, 100.0)) == "threads 10 -> 13, more than 2 above"
