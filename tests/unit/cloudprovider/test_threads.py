"""`cloudprovider.threads`: calls that may never return, and pools of threads for them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import pytest

from cloudprovider import current_call
from cloudprovider.call import Call
from cloudprovider.threads import NoThreadLeft, Task, ThreadPool, TooLate, start, within
from tests.support.clock import FakeClock
from tests.support.threadless import no_thread


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What calls hang at; opened at the end."""
    event = threading.Event()
    yield event
    event.set()


def test_a_thread_is_a_daemon_with_its_name_and_no_memory_for_one_is_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_self: threading.Thread) -> None:
        raise MemoryError

    seen: list[object] = []
    thread = start(seen.append, "a-name", 7)
    thread.join(10)
    assert (thread.daemon, thread.name, seen) == (True, "a-name", [7])
    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(NoThreadLeft, match="no thread left: MemoryError"):
        start(print, "any")


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(lambda: start(print, "lost"), id="start"),
        pytest.param(lambda: Task(print, "lost"), id="task"),
        pytest.param(lambda: within(1.0, print, name="lost"), id="within"),
        pytest.param(lambda: within(1.0, print, name="lost", as_main=True), id="within-as-main"),
        pytest.param(lambda: ThreadPool("lost", 1).run(lambda: None), id="pool"),
    ],
)
def test_no_thread_left_has_one_message(begin: Callable[[], object]) -> None:
    with no_thread("lost"), pytest.raises(NoThreadLeft) as refused:
        begin()
    assert str(refused.value) == "the system has no thread left: can't start new thread"


def test_within_returns_and_raises_as_the_call_does() -> None:
    assert within(10.0, lambda: 7, name="call") == 7
    with pytest.raises(KeyError):
        within(10.0, lambda: dict[str, int]()["x"], name="call")
    with pytest.raises(SystemExit):
        within(10.0, lambda: sys.exit(3), name="call")


def test_a_call_that_is_too_late_is_cancelled_and_left_behind(gate: threading.Event) -> None:
    calls = []

    def hang() -> None:
        calls.append(current_call())
        gate.wait(60)

    with pytest.raises(TooLate, match=r"^vendor has not returned within 0.05 s$"):
        within(0.05, hang, name="vendor")
    assert calls[0].is_cancelled()
    assert calls[0].remaining() == 0.0


@pytest.mark.parametrize("as_main", [False, True])
def test_threads_of_a_call_are_daemons_unless_it_runs_as_main(as_main: bool) -> None:
    assert within(10.0, lambda: threading.Thread().daemon, name="call", as_main=as_main) is not as_main
    assert within(10.0, lambda: threading.Thread(daemon=True).daemon, name="call", as_main=as_main)


def test_threads_of_a_call_as_main_that_is_too_late_are_daemons(gate: threading.Event) -> None:
    found: list[bool] = []
    ended = threading.Event()

    def hang() -> None:
        gate.wait(60)
        found.append(threading.Thread().daemon)
        ended.set()

    with pytest.raises(TooLate):
        within(0.01, hang, name="call", as_main=True)
    gate.set()
    assert ended.wait(10)
    assert found == [True]


def test_a_task_sees_its_makers_context_and_its_call() -> None:
    word: ContextVar[str] = ContextVar("word")
    word.set("here")
    call = Call(deadline=time.monotonic() + 60)
    task = Task(lambda: (word.get(), current_call()), "task", call=call)
    assert task.wait(10)
    assert task.result() == ("here", call)


def test_a_task_waits_by_its_clock_and_tells_its_end_first(gate: threading.Event) -> None:
    clock = FakeClock()
    ended: list[bool] = []
    task = Task(lambda: gate.wait(60), "task", clock=clock, on_end=lambda: ended.append(task.wait(0)))
    waited: list[bool] = []
    waiter = start(lambda: waited.append(task.wait(5.0)), "waiter")
    clock.wait_for_timeout(5.0)
    clock.advance(5.0)
    waiter.join(10)
    assert waited == [False]
    with pytest.raises(TooLate):
        task.result()
    gate.set()
    assert task.wait()
    assert ended == [False]


class Bench:
    """A pool on a clock moved by hand, and work that ends when the test says so."""

    def __init__(self, limit: int, **settings: object) -> None:
        self.clock = FakeClock()
        self.pool = ThreadPool("pool", limit, clock=self.clock, **settings)  # type: ignore[arg-type]  # as given by the test
        self.began: list[str] = []
        self.ended: list[str] = []
        self.changed = threading.Condition()
        self.gates: dict[str, threading.Event] = {}

    def run(self, name: str) -> None:
        gate = self.gates[name] = threading.Event()

        def work() -> Callable[[], object]:
            with self.changed:
                self.began.append(name)
                self.changed.notify_all()
            gate.wait(60)
            return tell

        def tell() -> None:
            with self.changed:
                self.ended.append(name)
                self.changed.notify_all()

        self.pool.run(work)

    def end(self, name: str) -> None:
        self.gates[name].set()
        self.until(lambda: name in self.ended)

    def until(self, holds: Callable[[], bool]) -> None:
        with self.changed:
            end = time.monotonic() + 10
            while not holds():
                assert time.monotonic() < end
                self.changed.wait(0.005)


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(limit: int, **settings: object) -> Bench:
        made.append(Bench(limit, **settings))
        return made[-1]

    yield make
    for one in made:
        one.pool.close()
        for gate in one.gates.values():
            gate.set()


def test_work_beyond_the_limit_waits_in_its_order(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    for name in "abcd":
        b.run(name)
    b.until(lambda: len(b.began) == 2)
    assert b.pool.threads() == 2
    b.end("a")
    b.until(lambda: b.began[2:] == ["c"])
    b.end("b")
    b.until(lambda: b.began[3:] == ["d"])
    b.end("c")
    b.end("d")
    b.until(lambda: b.pool.threads() == 0)  # nothing keeps them


def test_who_asks_again_at_once_finds_the_thread_free(bench: Callable[..., Bench]) -> None:
    b = bench(4, idle_seconds=30.0)
    for name in "abcdefgh":
        b.run(name)
        b.end(name)
    assert b.pool.threads() == 1


def test_idle_threads_end_all_but_the_one_that_is_kept(bench: Callable[..., Bench]) -> None:
    b = bench(3, idle_seconds=30.0, keep_one=True)
    for name in "abc":
        b.run(name)
    b.until(lambda: len(b.began) == 3)
    for name in "abc":
        b.end(name)
    b.clock.wait_for_waiters(3)
    b.clock.advance(29.0)
    b.run("d")  # by the last to come
    b.end("d")
    b.clock.wait_for_waiters(3)
    assert b.pool.threads() == 3
    b.clock.advance(1.0)
    b.until(lambda: b.pool.threads() == 2)
    b.clock.advance(60.0)
    b.until(lambda: b.pool.threads() == 1)
    b.pool.close()
    b.until(lambda: b.pool.threads() == 0)


def test_the_place_of_a_lost_thread_is_filled_and_it_ends_when_it_comes_back(bench: Callable[..., Bench]) -> None:
    b = bench(1, idle_seconds=30.0)
    b.run("hangs")
    b.until(lambda: b.began == ["hangs"])
    b.pool.lose()
    b.run("next")
    b.until(lambda: b.began == ["hangs", "next"])
    assert b.pool.threads() == 2
    b.pool.find()
    b.end("hangs")
    b.until(lambda: b.pool.threads() == 1)
    b.end("next")
    assert b.pool.threads() == 1


@pytest.mark.parametrize("error", [SystemExit(1), KeyError("x")])
def test_work_that_raises_costs_no_thread(
    bench: Callable[..., Bench], error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    b = bench(1, idle_seconds=30.0)

    def fails() -> None:
        raise error

    b.pool.run(fails)
    b.run("next")
    b.end("next")
    assert b.pool.threads() == 1
    assert "pool: a piece of work failed" in caplog.text


def test_where_no_further_thread_can_be_had_work_may_wait_for_those_that_there_are(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    b = bench(4, patient=True)
    b.run("a")
    b.until(lambda: b.began == ["a"])
    with no_thread("pool"):
        b.run("b")
        b.run("c")
        for name in "abc":
            b.end(name)
        b.until(lambda: b.pool.threads() == 0)
        with pytest.raises(NoThreadLeft):
            b.run("nobody is there")
    assert b.began == ["a", "b", "c"]
    assert caplog.text.count("pool: work waits, as a further thread could not be started") == 1
    b.run("d")
    b.end("d")


def test_short_work_of_one_thread_piece_after_piece_does_not_wake_another_each_time(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    b = bench(2, idle_seconds=30.0)
    for name in "ab":
        b.run(name)
    b.until(lambda: len(b.began) == 2)
    for name in "ab":
        b.end(name)
    b.clock.wait_for_waiters(2)
    waits: list[float | None] = []
    wait = b.clock.wait

    def counted(condition: threading.Condition, timeout: float | None) -> bool:
        waits.append(timeout)
        return wait(condition, timeout)

    monkeypatch.setattr(b.clock, "wait", counted)
    left, ended = list(range(1000)), threading.Event()

    def piece() -> None:
        left.pop()
        if left:
            b.pool.run(piece)
        else:
            ended.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(30.0)  # the system may always switch threads: here it does not
    try:
        b.pool.run(piece)
        assert ended.wait(10)
    finally:
        sys.setswitchinterval(interval)
    assert len(waits) < 20


def test_closed_threads_end_after_their_work(bench: Callable[..., Bench]) -> None:
    b = bench(1, idle_seconds=30.0, keep_one=True)
    b.run("a")
    b.pool.close()
    b.pool.close()
    b.end("a")
    b.until(lambda: b.pool.threads() == 0)
