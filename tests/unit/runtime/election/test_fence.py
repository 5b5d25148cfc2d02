"""The fence: open for as long as the lease is certain, by a clock that counts the time asleep, and
never again."""

from __future__ import annotations

import pytest

from controllers.runtime.api import ApiError
from controllers.runtime.election import Fence, LeaseLost
from tests.support.clock import FakeClock


def test_it_is_closed_until_the_lease_is_ours(clock: FakeClock) -> None:
    fence = Fence("kube-system/ccm", clock)
    assert not fence.held()
    with pytest.raises(LeaseLost, match="this process does not hold the lease kube-system/ccm"):
        fence.check("PATCH", "/api/v1/nodes/n1")


def test_it_closes_by_itself_when_the_time_is_over(clock: FakeClock) -> None:
    fence = Fence("kube-system/ccm", clock)
    fence.extend(clock.boottime() + 13.5)
    clock.advance(13.4)
    fence.check()
    clock.advance(0.1)
    assert not fence.held()
    with pytest.raises(LeaseLost, match=r"may have been lost: it was certain until 0\.0 s ago"):
        fence.check()
    fence.extend(clock.boottime() + 1)
    fence.check()


@pytest.mark.row("M2")
def test_time_asleep_counts(clock: FakeClock) -> None:
    fence = Fence("kube-system/ccm", clock)
    fence.extend(clock.boottime() + 13.5)
    before = clock.monotonic()
    clock.suspend(60)
    assert clock.monotonic() == before
    with pytest.raises(ApiError, match=r"certain until 46\.5 s ago"):
        fence.check("ensure_load_balancer")


def test_a_wall_clock_that_is_set_changes_nothing(clock: FakeClock) -> None:
    fence = Fence("kube-system/ccm", clock)
    fence.extend(clock.boottime() + 13.5)
    for step in (3600, -7200):
        clock.step_wall_clock(step)
        fence.check()


def test_revoked_is_for_good(clock: FakeClock) -> None:
    fence = Fence("kube-system/ccm", clock)
    fence.extend(clock.boottime() + 13.5)
    fence.revoke("other took it")
    fence.revoke("it was released")
    fence.extend(clock.boottime() + 13.5)
    assert not fence.held()
    with pytest.raises(LeaseLost, match="not held any more: other took it"):
        fence.check()
