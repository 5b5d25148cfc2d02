"""Candidates in their own threads, watching the Lease: a release is taken at once; without the
right they poll."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from cloudprovider.testing.waiting import eventually
from controllers.runtime.election.record import read
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


RELEASED = {
    "holderIdentity": "",
    "leaseDurationSeconds": 1,
    "acquireTime": "2020-01-01T00:00:00.000000Z",
    "renewTime": "2020-01-01T00:00:00.000000Z",
}
"""As its holder leaves it."""


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
    server.put(RELEASED)
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
    server.put(RELEASED)
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


@pytest.mark.row("K19")
def test_a_loss_is_told_before_anything_is_logged_and_once(
    server: LeaseServer, clock: FakeClock, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Who reads the log may hang."""
    leader = run("one")
    clock.wait_for_timeout(2)
    seen: list[str] = []
    leader.lost_hook = lambda: seen.append(caplog.text + "".join(leader.told[1:]))
    server.put({**server.spec, "holderIdentity": "other"})
    clock.advance(2)
    assert leader.elector.join(10)
    assert leader.lost == ["other has taken the lease kube-system/ccm"]
    assert "leaderelection lost" in caplog.text
    assert ["leaderelection lost" in text or "stopped" in text for text in seen] == [False]


@pytest.mark.row("K19", "K4")
def test_a_lease_that_runs_out_is_told_while_the_elector_hangs(server: LeaseServer, clock: FakeClock, run: Run) -> None:
    """In a log line, say, or in the answer to a renewal that never comes."""
    leader, let_go, hangs = run("one"), threading.Event(), threading.Event()
    clock.wait_for_timeout(2)

    def hang(_method: str) -> None:
        hangs.set()
        let_go.wait(30)

    server.fault = hang
    clock.advance(2)  # the renewal is due
    assert hangs.wait(10)
    clock.advance(11.4)
    assert leader.elector.fence.held()
    assert leader.lost == []
    clock.advance(0.2)  # nine tenths of 15 s after the last renewal
    assert not leader.elector.fence.held()
    eventually(lambda: leader.lost)
    server.fault = lambda _method: None
    let_go.set()
    assert leader.elector.join(10)
    assert not leader.leads()
    assert leader.lost == ["the lease kube-system/ccm was not renewed in time"]
    assert not leader.elector.fence.held()


def test_a_leader_watches_the_lease_no_more(server: LeaseServer, clock: FakeClock, run: Run) -> None:
    server.put({"holderIdentity": "other", "leaseDurationSeconds": 3600})
    standby = run("two")
    eventually(server.watchers)
    server.put(RELEASED)
    eventually(standby.leads)
    watch = standby.elector._watch._thread
    assert watch is not None

    def ended() -> bool:
        clock.advance(0.1)  # the pause before it would watch again
        return not watch.is_alive()

    eventually(ended)
    assert server.watchers() == 0


def test_what_is_logged_of_other_leaders(
    server: LeaseServer, clock: FakeClock, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Each once, however often it renews; and whether the lease was left or let go."""
    caplog.set_level("INFO")
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 15}
    server.put(spec)
    standby = run("two")
    eventually(server.watchers)
    for second in range(3):
        server.put({**spec, "renewTime": f"2023-11-14T22:13:{second:02}.000000Z"})
        eventually(lambda: standby.elector._observed.record == read(server.lease or {}))
    assert caplog.text.count("the leader of kube-system/ccm is other; this process stands by") == 1
    server.put({**spec, "holderIdentity": "third"})
    eventually(lambda: "the leader of kube-system/ccm is third" in caplog.text)
    server.put(RELEASED)
    eventually(standby.leads)
    assert "is ; this" not in caplog.text
    assert "did not renew" not in caplog.text
    assert "the leader of kube-system/ccm is two" not in caplog.text


def test_a_lease_that_was_left_is_said_to_be(
    server: LeaseServer, clock: FakeClock, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    server.put({"holderIdentity": "other", "leaseDurationSeconds": 15})
    standby = run("two")
    eventually(server.watchers)
    clock.wait_for_timeout(15)
    clock.advance(15)
    eventually(standby.leads)
    assert "successfully acquired lease kube-system/ccm, which other did not renew" in caplog.text
