"""Parts stop in reverse order, together within a group, and all within one bound."""

from __future__ import annotations

import pytest

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
