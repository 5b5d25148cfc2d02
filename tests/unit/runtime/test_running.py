"""A controller's life: nothing before the caches are filled, everything stopped at the end,
whatever happened."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from controllers.runtime.base import ControllerBase, Periodic
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Worker, WorkQueue
from tests.support.clock import FakeClock


class _Part:
    """A registration, a worker and a recorder in one; what is done to it is kept."""

    def __init__(self, did: list[str], synced: bool = True, drains: bool = True) -> None:
        self.did, self.synced, self.drains = did, synced, drains
        self.timeouts: list[float] = []

    def has_synced(self) -> bool:
        return self.synced

    def remove(self) -> None:
        self.did.append("remove")

    def start(self) -> None:
        self.did.append("start")

    def ask_to_stop(self) -> None:
        self.did.append("ask")

    def stop(self, timeout: float) -> bool:
        self.did.append("stop")
        self.timeouts.append(timeout)
        return self.drains


class _Stop:
    """Set after it was waited for `waits` times."""

    def __init__(self, waits: int) -> None:
        self._left = waits

    def is_set(self) -> bool:
        return self._left <= 0

    def wait(self, timeout: float | None = None) -> bool:
        self._left -= 1
        return self.is_set() or timeout is None


class _Controller(ControllerBase):
    """Of one part, and without what a real one is built of."""

    NAME = "part"

    def __init__(self, part: _Part, clock: FakeClock, workers: list[Any], begin: Callable[[], object]) -> None:
        self._clock, self._drain_timeout, self._periodic = clock, 7.0, []
        self._handlers = [lambda: cast(Any, part)]
        self._workers, self._recorder = workers, cast(Any, part)
        self._to_begin = begin

        self._did, self._working = part.did, False

    def _begin(self) -> None:
        assert not self._working
        self._to_begin()

    def _finish(self) -> None:
        assert self._working
        self._did.append("finish")


def _run(part: _Part, stop: Any, *, begin: Callable[[], object] = bool, periodic: Sequence[Periodic] = ()) -> None:
    controller = _Controller(part, FakeClock(), [part], begin)
    controller._periodic += periodic
    controller.run(stop)


def test_it_begins_when_the_caches_are_filled_and_ends_in_order() -> None:
    did: list[str] = []
    part = _Part(did)
    _run(part, _Stop(1), begin=lambda: did.append("begin"))
    assert did == ["begin", "start", "finish", "remove", "ask", "stop", "stop"]
    assert part.timeouts == [7.0, 7.0]


def test_told_to_stop_before_the_caches_are_filled_it_starts_nothing() -> None:
    did: list[str] = []
    _run(_Part(did, synced=False), _Stop(3), begin=lambda: did.append("begin"))
    assert did == ["remove", "ask", "stop", "stop"]


def test_a_beginning_that_fails_leaves_nothing_running() -> None:
    did: list[str] = []
    part = _Part(did)
    with pytest.raises(ZeroDivisionError):
        _run(part, _Stop(1), begin=lambda: 1 // 0)
    assert did == ["remove", "ask", "stop", "stop"]
    assert part.timeouts == [0.0, 1.0], "nobody waits for work; what was told still gets out"


def test_work_that_does_not_end_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        _run(_Part([], drains=False), _Stop(1))
    assert "did not finish before the drain timeout" in caplog.text


def test_no_worker_begins_anything_new_while_another_one_drains() -> None:
    clock, metrics = FakeClock(), Metrics()
    slow, other = (WorkQueue[str](name, clock=clock, metrics=metrics) for name in ("slow", "other"))
    begun, go, done = threading.Event(), threading.Event(), threading.Event()
    ran: list[str] = []

    def work(_key: str) -> None:
        begun.set()
        go.wait(60)

    workers = [Worker(slow, work, threads=1, metrics=metrics), Worker(other, ran.append, threads=1, metrics=metrics)]
    controller = _Controller(_Part([]), clock, workers, bool)
    controller._drain_timeout = 30.0
    slow.add("hangs")
    other.add_after("later", 10.0)
    thread = threading.Thread(target=controller.run, args=(done,))
    thread.start()
    assert begun.wait(60)
    done.set()
    clock.wait_for_timeout(30)  # the drain
    other.add("new")
    clock.advance(20)
    assert len(other) == 0
    go.set()
    thread.join(60)
    assert ran == []


class _Ended:
    """Stands in for the event that ends a periodic action: keeps the waits, ends after some of
    them."""

    def __init__(self, rounds: int) -> None:
        self.waits: list[float] = []
        self._rounds = rounds

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return len(self.waits) >= self._rounds


@pytest.mark.row("K24")
@pytest.mark.parametrize("error", [RuntimeError("no luck"), SystemExit("no luck")])
def test_a_periodic_action_names_its_next_time_and_survives_failures(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[float | None] = [None, 5.0, 1.0]

    def action() -> float | None:
        answer = answers.pop(0)
        if answer == 1.0:
            raise error
        return answer

    ended = _Ended(3)
    look = Periodic("look", 60.0, action)
    before = look.ran
    look.run(cast(Any, ended))
    assert (before, look.ran) == (False, True)
    assert ended.waits == [60.0, 5.0, 60.0]
    assert "look failed, retrying in 60 s" in caplog.text


def test_periodic_actions_run_beside_the_work_and_end_with_it() -> None:
    ran, stop = threading.Event(), threading.Event()

    def action() -> None:
        ran.set()
        stop.set()

    _run(_Part([]), stop, periodic=[Periodic("act", 60.0, action)])
    assert ran.is_set()
    assert not [thread for thread in threading.enumerate() if thread.name == "part-act"]
