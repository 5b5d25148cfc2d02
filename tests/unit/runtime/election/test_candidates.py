"""Candidates in their own threads, watching the Lease: a release is taken at once; without the right they poll."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cloudprovider.testing.waiting import eventually
from tests.support.clock import FakeClock
from tests.unit.runtime.election.support import Candidate, LeaseServer


class Run:
    def __init__(self, server: LeaseServer, clock: FakeClock) -> None:
        self._server, self._clock = server, clock
        self.made: list[Candidate] = []

    def __call__(self, identity: str) -> Candidate:
        self.made.append(Candidate(self._server, self._clock, identity))
        self.made[-1].elector.start()
        return self.made[-1]


@pytest.fixture
def run(server: LeaseServer, clock: FakeClock) -> Iterator[Run]:
    runs = Run(server, clock)
    yield runs
    for one in runs.made:
        one.elector.stop()
        assert one.elector.join(10)


@pytest.mark.row("M1")
def test_a_released_lease_is_taken_without_waiting(server: LeaseServer, clock: FakeClock, run: Run) -> None:
    leader = run("one")
    eventually(leader.leads)
    standby = run("two")
    eventually(server.watchers)
    clock.wait_for_timeout(15)  # no polling: it waits for the end of the lease
    asked = len(server.requests)
    leader.elector.stop()
    eventually(standby.leads)  # and no time has passed
    assert [method for method, _ in server.requests[asked:]] == ["PUT", "PUT"]
    assert server.spec["leaseTransitions"] == 1
    eventually(lambda: not server.watchers())


def test_a_leader_that_renews_keeps_its_standby_waiting(server: LeaseServer, clock: FakeClock, run: Run) -> None:
    leader = run("one")
    eventually(leader.leads)
    standby = run("two")
    eventually(server.watchers)
    for _ in range(20):
        clock.wait_for_timeout(2)
        clock.wait_for_timeout(15)
        clock.advance(2)
    assert not standby.leads()
    assert standby.elector.waits_for == "one"


def test_a_broken_watch_is_opened_again_and_the_lease_looked_at_meanwhile(
    server: LeaseServer, clock: FakeClock, run: Run
) -> None:
    server.put({"holderIdentity": "other", "leaseDurationSeconds": 3600})
    standby = run("two")
    eventually(server.watchers)
    clock.wait_for_timeout(3600)
    server.requests.clear()
    server.break_watches()
    eventually(lambda: [method for method, _ in server.requests] == ["GET"])

    def reopened() -> int:
        clock.advance(0.1)
        return server.watchers()

    eventually(reopened)
    server.put({"holderIdentity": ""})
    eventually(standby.leads)


def test_without_the_right_to_watch_it_polls_and_says_once_what_is_missing(
    server: LeaseServer, clock: FakeClock, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    server.may_watch = False
    server.put({"holderIdentity": "other", "leaseDurationSeconds": 3600})
    standby = run("two")
    for _ in range(30):
        clock.wait_for_timeout(3.2)
        clock.advance(3.2)
    assert caplog.text.count("missing permission: watch on leases") == 1
    assert "resources [leases], resourceNames [ccm], verbs [watch]" in caplog.text
    clock.wait_for_timeout(3.2)
    server.put({"holderIdentity": ""})
    clock.advance(3.2)
    eventually(standby.leads)


def test_a_leader_is_asked_to_stop_while_it_waits(server: LeaseServer, clock: FakeClock, run: Run) -> None:
    leader = run("one")
    clock.wait_for_timeout(2)
    leader.elector.stop()
    assert leader.elector.join(10)
    assert server.spec["holderIdentity"] == ""


def test_a_fault_of_ours_closes_the_fence(
    server: LeaseServer, clock: FakeClock, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    leader = run("one")
    clock.wait_for_timeout(2)

    def bug(_method: str) -> None:
        raise ZeroDivisionError

    server.fault = bug
    clock.advance(2)
    eventually(lambda: leader.lost)
    assert not leader.elector.fence.held()
    assert "this is a bug" in caplog.text
