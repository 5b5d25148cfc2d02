"""A wait for a cloud that builds is told after ten seconds, and after the first that ran out the
others are short."""

from __future__ import annotations

import pytest

from cloudprovider.testing.conformance import Lab
from cloudprovider.testing.conformance.patience import Patience


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.row("P10")
def test_a_wait_is_told_once_after_ten_seconds() -> None:
    clock, lines = Clock(), list[str]()
    patience = Patience(Lab(), clock)
    patience.tell, patience.scenario = lines.append, "L3"
    wait = patience.wait("the load balancer is built")
    assert wait.goes_on(9.0, "busy")
    assert lines == []
    for _ in range(2):
        clock.now += 9.5
        assert wait.goes_on(1.0, "RetryError: busy")
    assert lines == ["L3 waits until the load balancer is built, for up to 290 s more (Lab.patience): RetryError: busy"]


@pytest.mark.row("P10")
def test_after_one_that_ran_out_the_others_are_short() -> None:
    clock = Clock()
    patience = Patience(Lab(), clock)
    assert not patience.wait("it is built").goes_on(301.0)
    wait = patience.wait("it is built")
    assert wait.seconds == 10.0
    assert wait.goes_on(10.0)
    assert not wait.goes_on(10.5)


def test_a_lab_with_less_patience_keeps_it() -> None:
    lab = Lab()
    lab.patience = 5.0
    patience = Patience(lab, Clock())
    patience.run_out()
    assert patience.seconds == 5.0
