"""Parts stop in reverse order, together within a group, and all within one bound; what runs in the
background goes on after an exception."""

from __future__ import annotations

import threading

import pytest

from cloudprovider import StopSignal
from cloudprovider.testing.waiting import eventually
from controllers.manager.shutdown import SHORTEST, ShutdownGroups, Stoppable
from tests.support.clock import FakeClock


class Recorded:
    """Parts that write down when they are asked and waited for; a wait takes `takes` seconds of the
    fake clock."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.groups = ShutdownGroups(self.clock)
        self.acts: list[str] = []
        self.given: dict[str, float] = {}

    def add(self, group: str, name: str, takes: float = 0.0) -> None:
        def wait(seconds: float) -> bool:
            self.acts.append(f"wait {name}")
            self.given[name] = seconds
            self.clock.advance(min(takes, seconds))
            return takes <= seconds

        self.groups.add(group, Stoppable(name, wait, lambda: self.acts.append(f"ask {name}")))


def test_groups_stop_in_reverse_and_parts_of_one_group_together() -> None:
    made = Recorded()
    made.add("serving", "health")
    made.add("controllers", "a")
    made.add("controllers", "b")
    assert made.groups.stop(30) == []
    assert made.acts == ["ask a", "ask b", "wait a", "wait b", "ask health", "wait health"]


def test_all_share_one_bound_and_each_gets_a_moment() -> None:
    made = Recorded()
    made.add("clients", "clients", takes=0.5)
    made.add("controllers", "slow", takes=20)
    made.add("controllers", "hung", takes=99)
    assert made.groups.stop(30) == ["hung"]
    assert made.given == {"slow": 30, "hung": 10, "clients": SHORTEST}


@pytest.mark.parametrize("broken", ["ask", "wait"])
def test_a_part_that_raises_is_named_and_holds_up_no_other(broken: str, caplog: pytest.LogCaptureFixture) -> None:
    made = Recorded()
    made.add("first", "well")

    def fail() -> None:
        raise RuntimeError("bug")

    def wait(_seconds: float) -> bool:
        if broken == "wait":
            fail()
        return True

    made.groups.add("second", Stoppable("ill", wait, fail if broken == "ask" else lambda: None))
    assert made.groups.stop(1) == ["ill"]
    assert "wait well" in made.acts
    assert "RuntimeError: bug" in caplog.text


def test_a_second_stop_does_nothing() -> None:
    made = Recorded()
    made.add("g", "a")
    made.groups.stop(1)
    made.acts.clear()
    assert made.groups.stop(1) == []
    assert made.acts == []


class Worker:
    """Raises at its first runs."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.runs = 0
        self.works = threading.Event()

    def run(self, stop: StopSignal) -> None:
        self.runs += 1
        if self.errors:
            raise self.errors.pop(0)
        self.works.set()
        stop.wait()


@pytest.fixture
def groups(clock: FakeClock) -> ShutdownGroups:
    return ShutdownGroups(clock)


@pytest.mark.row("K24")
def test_what_raises_is_told_once_and_run_again(
    groups: ShutdownGroups, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(KeyError("a"), KeyError("a"), SystemExit(3))
    groups.in_background("checks", "access check", worker.run)
    for run in (1, 2, 3):
        clock.wait_for_timeout(5.0)
        assert worker.runs == run
        clock.advance(5.0)
    eventually(worker.works.is_set)
    assert worker.runs == 4
    told = [record for record in caplog.records if "access check failed" in record.getMessage()]
    assert [record.levelname for record in told if record.levelname != "DEBUG"] == ["ERROR", "ERROR"]
    assert told[0].exc_info is not None
    assert groups.stop(10.0) == []


@pytest.mark.row("K24")
def test_the_end_is_not_kept_by_what_raises_all_the_time(groups: ShutdownGroups, clock: FakeClock) -> None:
    groups.in_background("checks", "access check", Worker(*[KeyError("a")] * 100).run)
    clock.wait_for_timeout(5.0)
    assert groups.stop(10.0) == []
