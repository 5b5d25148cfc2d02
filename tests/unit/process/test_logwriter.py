"""Lines reach a stream in order, and a stream that hangs holds up nobody."""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import os
import threading
from collections.abc import Iterator

import pytest

from cloudprovider.testing.waiting import eventually
from controllers.process import logs
from controllers.process.logwriter import LineWriter
from tests.support.threadless import no_thread


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


def read_all(end: int, until: bytes) -> bytes:
    data = b""
    while until not in data:
        data += os.read(end, 65536)
    return data


@pytest.mark.row("K19")
def test_nobody_waits_for_a_reader_and_what_was_lost_is_told(pipe: tuple[int, int]) -> None:
    reads, writes = pipe
    with os.fdopen(writes, "w") as stream:
        writer = LineWriter(stream, "{} lost\n".format, most=100_000)
        for number in range(5000):  # 500 KB: more than the pipe and the memory hold
            writer.write(f"{number:04} {'x' * 94}\n")
        assert not writer.flush(0.05)
        data = b""
        while accounted_for(data) < 5000:  # what is lost may be told in more than one line
            data += os.read(reads, 65536)
        assert writer.flush(10)
    lines = data.decode().splitlines()
    kept = [int(line[:4]) for line in lines if not line.endswith(" lost")]
    assert kept == sorted(set(kept))  # whole and in order
    assert kept[:900] == list(range(900))
    assert len(kept) < 5000
    assert lines[-1].endswith(" lost")
    assert accounted_for(data) == 5000


def accounted_for(data: bytes) -> int:
    """How many lines were kept, and how many are said to be lost."""
    whole = data.decode().split("\n")[:-1]
    return sum(int(line.split()[0]) if line.endswith(" lost") else 1 for line in whole)


@pytest.mark.row("K19")
def test_a_log_call_does_not_wait_while_nobody_reads(pipe: tuple[int, int]) -> None:
    reads, writes = pipe
    done = threading.Event()
    with os.fdopen(writes, "w") as stream:
        logs.setup("text", 0, stream)

        def talk() -> None:
            for _ in range(3000):
                logging.getLogger("controllers.x").info("y" * 100)
            done.set()

        threading.Thread(target=talk, daemon=True).start()
        assert done.wait(20)
        logging.getLogger("controllers.x").info("the end")
        read_all(reads, b"the end\n")


def test_all_lines_of_many_threads_arrive(pipe: tuple[int, int]) -> None:
    reads, writes = pipe
    with os.fdopen(writes, "w") as stream:
        writer = LineWriter(stream, str)

        def talk(name: int) -> None:
            for number in range(200):
                writer.write(f"{name} {number}\n")

        threads = [threading.Thread(target=talk, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert writer.flush(10)
        lines = os.read(reads, 1 << 20).decode().splitlines()
    assert sorted(lines) == sorted(f"{n} {i}" for n in range(8) for i in range(200))
    for n in range(8):
        assert [line for line in lines if line.startswith(f"{n} ")] == [f"{n} {i}" for i in range(200)]


def test_a_stream_that_is_closed_stops_nobody(pipe: tuple[int, int]) -> None:
    reads, writes = pipe
    stream = os.fdopen(writes, "w")
    writer = LineWriter(stream, str)
    os.close(reads)
    writer.write("a\n")
    writer.write("b\n")
    assert eventually(lambda: writer.flush(1)) is not False


@pytest.mark.row("K7", "K19")
def test_a_line_costs_nobody_an_error_where_no_thread_is_left(pipe: tuple[int, int]) -> None:
    reads, writes = pipe
    with os.fdopen(writes, "w", closefd=False) as stream:
        writer = LineWriter(stream, str)
        with no_thread("log"):
            writer.write("first\n")
        writer.write("second\n")
        assert writer.flush(10)
    assert os.read(reads, 100) == b"first\nsecond\n"


@pytest.mark.row("K30")
def test_a_finalizer_may_log_in_the_thread_that_writes() -> None:
    """The collector runs where something is allocated, and calls what it likes in that thread."""
    written = io.StringIO()
    writer = LineWriter(written, str)
    done, told = threading.Event(), [0]

    def collected(phase: str, _: object) -> None:
        if phase == "stop" and threading.current_thread().name == "log" and told[0] < 2000:
            told[0] += 1
            writer.write("collected\n")

    def talk() -> None:
        for number in range(2000):
            writer.write(f"{number}\n")
        if writer.flush(10):
            done.set()

    before = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(1, 10**6)  # of what is young alone
    try:
        threading.Thread(target=talk, daemon=True).start()
        assert done.wait(20)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collected)
    assert told[0] > 10, "the collector ran there"
    lines = written.getvalue().splitlines()
    assert [line for line in lines if line != "collected"] == [str(number) for number in range(2000)]


@pytest.mark.row("K30")
def test_what_is_taken_is_not_written_again_and_nobody_waits_for_it(pipe: tuple[int, int]) -> None:
    reads, writes = pipe
    with os.fdopen(writes, "w") as stream:
        writer = LineWriter(stream, str)
        for _ in range(2000):
            writer.write(f"{'x' * 99}\n")  # more than the pipe holds
        flushed: list[bool] = []
        waits = threading.Thread(target=lambda: flushed.append(writer.flush(60)))
        waits.start()
        taken = ""
        while waits.is_alive():
            taken += writer.take()
            waits.join(0.01)
        assert flushed == [True]
        data = b""
        while len(data) + len(taken) < 200_000:
            data += os.read(reads, 65536)
        assert writer.flush(10)
    assert len(data) + len(taken) == 200_000


def test_lines_that_come_right_after_a_write_go_together_and_a_flush_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("controllers.process.logwriter._PAUSE", 600.0)
    written: list[str] = []

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    writer = LineWriter(Stream(), str)
    writer.write("first\n")
    assert eventually(lambda: written == ["first\n"])
    writer.write("a\n")
    threading.Event().wait(0.05)  # time enough for a writer that does not pause
    assert written == ["first\n"]
    for line in ("b\n", "c\n"):
        writer.write(line)
    assert writer.flush(10)
    assert written == ["first\n", "a\nb\nc\n"]
