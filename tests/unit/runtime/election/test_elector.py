"""One candidate for a Lease: every way in which leading begins, goes on, ends, with each step taken
by the test."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from controllers.runtime.api import ApiError, Forbidden, ServerError, TooManyRequests, Unreachable
from controllers.runtime.election import LeaseLost
from controllers.runtime.election.settings import JITTER
from tests.support.clock import FakeClock
from tests.unit.runtime.election.support import Candidate, LeaseServer

POLL = 2.0 * (1 + JITTER / 2)
"""Seconds between two looks of a candidate that does not watch, with the chance of these tests."""


@pytest.fixture
def me(server: LeaseServer, clock: FakeClock) -> Candidate:
    server.may_watch = False
    return Candidate(server, clock, "me")


def held_by(server: LeaseServer, holder: str, seconds: int = 15, **spec: object) -> None:
    server.put(
        {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "acquireTime": "2020-01-01T00:00:00.000000Z",
            "renewTime": "2020-01-01T00:00:00.000000Z",
            "leaseTransitions": 4,
            **spec,
        }
    )


def failing(*errors: ApiError) -> Callable[[str], None]:
    left = list(errors)

    def fault(_method: str) -> None:
        if left:
            raise left.pop(0)

    return fault


def always(error: ApiError) -> Callable[[str], None]:
    def fault(_method: str) -> None:
        raise error

    return fault


class TestAcquiring:
    def test_a_lease_that_is_not_there_is_created(self, server: LeaseServer, me: Candidate) -> None:
        assert me.metric("leader_election_master_status") == 0
        assert me.step() == 2.0
        assert me.leads()
        assert (me.began, me.told) == (1, ["became leader"])
        assert me.metric("leader_election_master_status") == 1
        assert server.spec["holderIdentity"] == "me"
        assert server.spec["leaseTransitions"] == 0
        me.elector.fence.check()

    def test_requests_end_well_before_the_renew_deadline(self, server: LeaseServer, me: Candidate) -> None:
        me.step()
        assert [method for method, _ in server.requests] == ["GET", "POST"]
        assert [timeout for _, timeout in server.requests] == pytest.approx([10 / 3, 10 / 3])

    def test_a_released_lease_is_taken_and_the_transition_counted(self, server: LeaseServer, me: Candidate) -> None:
        held_by(server, "", 1)
        me.step()
        assert me.leads()
        assert server.spec["leaseTransitions"] == 5

    def test_anothers_lease_is_taken_when_its_record_has_stood_still_for_its_own_duration(
        self, server: LeaseServer, me: Candidate, clock: FakeClock
    ) -> None:
        held_by(server, "other", 40)
        assert me.step() == pytest.approx(POLL)
        assert me.elector.waits_for == "other"
        clock.advance(39.9)
        assert me.step() == pytest.approx(0.1)  # no longer than until it ends
        assert not me.leads()
        clock.advance(0.1)
        me.step()
        assert me.leads()
        assert server.spec["leaseTransitions"] == 5
        assert server.spec["leaseDurationSeconds"] == 15

    @pytest.mark.parametrize("hours", [-1, 1])
    def test_other_machines_clocks_are_never_trusted(
        self, server: LeaseServer, me: Candidate, clock: FakeClock, hours: int
    ) -> None:
        """Its leader renews, and its clock is an hour off: only that the record changes counts."""
        clock.step_wall_clock(hours * 3600.0)
        for second in range(40):
            held_by(server, "other", renewTime=f"2023-11-14T22:13:{second:02}.000000Z")
            me.step()
            clock.advance(2)
        assert not me.leads()
        clock.advance(13)
        me.step()
        assert me.leads()

    def test_a_label_is_no_renewal_and_is_kept(self, server: LeaseServer, me: Candidate, clock: FakeClock) -> None:
        held_by(server, "other")
        for number in range(15):
            me.step()
            assert not me.leads()
            server.put(server.spec, labels={"number": str(number)})
            clock.advance(1)
        me.step()
        assert me.leads()
        assert server.lease is not None
        assert server.lease["metadata"]["labels"] == {"number": "14"}

    def test_our_own_name_in_it_is_a_restart_of_ours(self, server: LeaseServer, me: Candidate) -> None:
        held_by(server, "me")
        me.step()
        assert me.leads()
        assert server.spec["acquireTime"] == "2020-01-01T00:00:00.000000Z"
        assert server.spec["leaseTransitions"] == 4

    def test_when_another_is_faster_it_stands_by(self, server: LeaseServer, me: Candidate, clock: FakeClock) -> None:
        held_by(server, "", 1)
        server.fault = lambda method: held_by(server, "other") if method == "PUT" else None
        assert me.step() == 0.0  # a conflict: look again at once
        server.fault = failing()
        assert me.step() == pytest.approx(POLL)
        assert me.elector.waits_for == "other"
        assert me.told == []

    def test_a_lease_that_changes_all_the_time_is_not_stormed(self, server: LeaseServer, me: Candidate) -> None:
        held_by(server, "", 1)
        server.fault = lambda method: server.put(server.spec) if method == "PUT" else None
        assert [me.step() for _ in range(4)] == [0.0, 0.0, pytest.approx(POLL), pytest.approx(POLL)]

    def test_somebody_deletes_the_lease_of_a_leader_at_work(
        self, server: LeaseServer, me: Candidate, clock: FakeClock
    ) -> None:
        """Its leader will create it again; taking it meanwhile would make two leaders."""
        held_by(server, "other")
        me.step()
        server.remove()
        clock.advance(14)
        me.step()
        assert server.lease is None
        clock.advance(1)
        me.step()
        assert me.leads()
        assert server.spec["leaseTransitions"] == 5

    @pytest.mark.parametrize("spec", [{}, {"holderIdentity": "", "renewTime": ""}, {"leaseTransitions": 2}])
    def test_a_lease_without_a_holder_is_free_whatever_else_stands_there(
        self, server: LeaseServer, me: Candidate, spec: dict[str, object]
    ) -> None:
        server.put(spec)
        me.step()
        assert me.leads()

    def test_an_answer_that_is_no_lease_proves_nothing(
        self, server: LeaseServer, me: Candidate, caplog: pytest.LogCaptureFixture
    ) -> None:
        server.lease = {"kind": "Status", "status": "Success"}
        me.step()
        assert not me.leads()
        assert "failed to acquire lease kube-system/ccm, retrying" in caplog.text

    @pytest.mark.parametrize(
        "error", [ServerError("boom", status=500), TooManyRequests("busy", status=429), Unreachable("no route")]
    )
    def test_a_server_in_trouble_is_asked_again(
        self, server: LeaseServer, me: Candidate, error: ApiError, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING)
        server.fault = failing(error, error, error)
        assert [me.step() for _ in range(3)] == [pytest.approx(POLL)] * 3
        assert len(caplog.records) == 1  # not one line a try
        me.step()
        assert me.leads()

    def test_a_write_whose_answer_was_lost_is_found(self, server: LeaseServer, me: Candidate, clock: FakeClock) -> None:
        server.lose_answers = 1
        me.step()
        assert server.spec["holderIdentity"] == "me"
        assert not me.leads()
        assert not me.elector.fence.held()
        clock.advance(POLL)
        me.step()
        assert me.leads()
        assert server.spec["leaseTransitions"] == 0

    def test_stopped_as_a_candidate_it_touches_nothing(self, server: LeaseServer, me: Candidate) -> None:
        held_by(server, "other")
        me.step()
        me.elector.stop()
        assert me.step() is None
        assert server.spec["holderIdentity"] == "other"
        assert me.told == []

    def test_an_answer_that_took_longer_than_the_lease_is_asked_for_again(
        self, server: LeaseServer, me: Candidate, clock: FakeClock
    ) -> None:
        server.fault = lambda method: clock.suspend(60) if method == "POST" else None
        assert me.step() == 0.0
        assert not me.leads()
        assert me.began == 0
        me.step()
        assert me.leads()
        assert me.elector.fence.held()


class TestLeading:
    @pytest.fixture
    def leader(self, me: Candidate) -> Candidate:
        me.step()
        assert me.leads()
        return me

    def test_it_renews_each_retry_period_with_one_request(
        self, server: LeaseServer, leader: Candidate, clock: FakeClock
    ) -> None:
        server.requests.clear()
        acquired = server.spec["acquireTime"]
        for _ in range(100):
            clock.advance(2)
            before = server.spec["renewTime"]
            assert leader.step() == pytest.approx(2)
            assert server.spec["renewTime"] > before
            leader.elector.fence.check()
        assert {method for method, _ in server.requests} == {"PUT"}
        assert server.spec["acquireTime"] == acquired
        assert server.spec["leaseTransitions"] == 0
        assert leader.metric("leader_election_slowpath_total") == 0

    def test_somebody_changes_a_label(self, server: LeaseServer, leader: Candidate, clock: FakeClock) -> None:
        server.put({**server.spec, "strategy": "odd"}, labels={"a": "b"})
        clock.advance(2)
        assert leader.step() == pytest.approx(2)
        assert leader.leads()
        assert server.lease is not None
        assert server.lease["metadata"]["labels"] == {"a": "b"}
        assert server.spec["strategy"] == "odd"
        assert leader.metric("leader_election_slowpath_total") == 1
        server.requests.clear()
        clock.advance(2)
        leader.step()
        assert [method for method, _ in server.requests] == ["PUT"]

    def test_somebody_deletes_the_lease(self, server: LeaseServer, leader: Candidate, clock: FakeClock) -> None:
        server.put({**server.spec, "leaseTransitions": 7})
        clock.advance(2)
        leader.step()
        transitions = server.spec["leaseTransitions"]
        server.remove()
        clock.advance(2)
        leader.step()
        assert leader.leads()
        assert server.spec["holderIdentity"] == "me"
        assert server.spec["leaseTransitions"] == transitions

    @pytest.mark.row("M2")
    def test_another_has_taken_it(self, server: LeaseServer, leader: Candidate, clock: FakeClock) -> None:
        held_by(server, "other")
        clock.advance(2)
        assert leader.step() is None
        assert not leader.leads()
        assert leader.lost == ["other has taken the lease kube-system/ccm"]
        assert leader.elector.lost == leader.lost[0]
        assert leader.told == ["became leader", "stopped leading"]
        assert leader.metric("leader_election_master_status") == 0
        with pytest.raises(LeaseLost, match="other has taken"):
            leader.elector.fence.check()
        assert server.spec["holderIdentity"] == "other"
        assert leader.step() is None  # for good

    def test_a_renewal_whose_answer_was_lost_is_found_and_goes_on(
        self, server: LeaseServer, leader: Candidate, clock: FakeClock
    ) -> None:
        clock.advance(2)
        server.lose_answers = 1
        assert leader.step() == pytest.approx(2)
        clock.advance(2)
        assert leader.step() == pytest.approx(2)
        assert leader.leads()
        assert server.spec["holderIdentity"] == "me"
        assert server.spec["leaseTransitions"] == 0

    @pytest.mark.row("K4")
    @pytest.mark.row("M2")
    @pytest.mark.parametrize(
        "error",
        [ServerError("boom", status=500), TooManyRequests("busy", status=429), Unreachable("lost"), Forbidden("no")],
    )
    def test_without_renewals_it_gives_up_before_the_lease_ends_and_the_fence_closes(
        self, server: LeaseServer, leader: Candidate, clock: FakeClock, error: ApiError
    ) -> None:
        began = clock.boottime()
        server.fault = always(error)
        pause = leader.step()
        while pause is not None:
            leader.elector.fence.check()
            clock.advance(max(pause, 0.5))
            pause = leader.step()
        assert clock.boottime() - began == pytest.approx(12, abs=0.6)
        assert len(leader.lost) == 1
        assert leader.lost[0].startswith("the lease kube-system/ccm was not renewed for 12")
        assert str(error) in leader.lost[0]
        with pytest.raises(LeaseLost):
            leader.elector.fence.check()

    @pytest.mark.row("K4")
    def test_requests_that_hang_leave_time_for_others(
        self, server: LeaseServer, leader: Candidate, clock: FakeClock
    ) -> None:
        """Each takes all of its time: several are tried, and the last one succeeds just in time."""
        hangs = 3

        def hang(_method: str) -> None:
            nonlocal hangs
            if hangs:
                hangs -= 1
                timeout = server.requests[-1][1]
                assert timeout is not None
                clock.advance(timeout)
                raise Unreachable("timed out waiting for the answer")

        clock.advance(2)
        server.fault = hang
        assert [leader.step() for _ in range(3)] == [0.0, 0.0, 0.0]
        assert leader.step() is None  # 2 + 3 * 3.33 s are over
        assert hangs == 0
        server.fault = failing()
        hangs = 2
        other = Candidate(server, clock, "me")
        other.step()
        clock.advance(2)
        server.fault = hang
        assert [other.step() for _ in range(2)] == [0.0, 0.0]
        assert other.step() == pytest.approx(2)
        assert other.leads()

    @pytest.mark.row("M2")
    def test_a_machine_that_was_asleep_has_lost_it(
        self, server: LeaseServer, leader: Candidate, clock: FakeClock
    ) -> None:
        clock.suspend(60)
        with pytest.raises(LeaseLost):
            leader.elector.fence.check()
        assert leader.elector.lost == "the lease kube-system/ccm was not renewed in time"
        written = server.spec["renewTime"]
        assert leader.step() is None
        assert server.spec["renewTime"] == written
        assert leader.lost

    def test_an_elector_that_hangs_is_seen_from_outside(
        self, server: LeaseServer, leader: Candidate, clock: FakeClock
    ) -> None:
        assert leader.elector.lost == ""
        clock.advance(13.5)
        assert "was not renewed in time" in leader.elector.lost
        assert leader.elector.problem() == ""
        clock.advance(15 + 20 - 13.5 + 0.1)
        assert leader.elector.problem() == "failed election to renew leadership on lease ccm"

    def test_a_slow_answer_counts_from_its_request(
        self, server: LeaseServer, leader: Candidate, clock: FakeClock
    ) -> None:
        clock.advance(2)
        server.fault = lambda _method: clock.advance(3)
        leader.step()
        clock.advance(10.4)
        leader.elector.fence.check()
        clock.advance(0.2)
        assert not leader.elector.fence.held()

    @pytest.mark.row("M1")
    def test_stopped_it_releases_the_lease_at_once(self, server: LeaseServer, leader: Candidate) -> None:
        open_at_release: list[bool] = []
        server.fault = lambda _method: open_at_release.append(leader.elector.fence.held())
        leader.elector.stop()
        assert leader.step() is None
        assert open_at_release == [False]
        assert server.spec["holderIdentity"] == ""
        assert server.spec["leaseDurationSeconds"] == 1
        assert leader.told == ["became leader", "stopped leading"]
        assert leader.lost == []
        assert leader.metric("leader_election_master_status") == 0
        with pytest.raises(LeaseLost, match="it was released"):
            leader.elector.fence.check()

    @pytest.mark.row("M2")
    def test_stopped_after_the_lease_may_have_been_lost_it_writes_nothing(
        self, server: LeaseServer, leader: Candidate, clock: FakeClock
    ) -> None:
        before = dict(server.spec)
        clock.advance(60)  # it stood still
        leader.elector.stop()
        assert leader.step() is None
        assert server.spec == before
        assert "was not renewed in time" in leader.elector.lost
        assert leader.lost == [leader.elector.lost]

    @pytest.mark.row("M2")
    def test_stopped_with_work_unfinished_it_keeps_the_lease_until_that_expires(
        self, server: LeaseServer, leader: Candidate, caplog: pytest.LogCaptureFixture
    ) -> None:
        before = dict(server.spec)
        leader.elector.stop("ensure_load_balancer for service/default/web")
        assert leader.step() is None
        assert server.spec == before
        assert not leader.elector.fence.held()
        assert leader.told == ["became leader", "stopped leading"]
        assert "is not released, others take over in" in caplog.text
        assert "ensure_load_balancer for service/default/web" in caplog.text

    def test_a_release_that_meets_a_change_is_made_again(self, server: LeaseServer, leader: Candidate) -> None:
        server.put(server.spec, labels={"a": "b"})
        leader.elector.stop()
        leader.step()
        assert server.spec["holderIdentity"] == ""
        assert server.lease is not None
        assert server.lease["metadata"]["labels"] == {"a": "b"}

    def test_what_another_has_taken_is_not_released(self, server: LeaseServer, leader: Candidate) -> None:
        held_by(server, "other")
        leader.elector.stop()
        assert leader.step() is None
        assert server.spec["holderIdentity"] == "other"

    def test_a_release_without_a_server_says_how_long_others_wait(
        self, server: LeaseServer, leader: Candidate, caplog: pytest.LogCaptureFixture
    ) -> None:
        server.fault = always(Unreachable("no route"))
        leader.elector.stop()
        assert leader.step() is None
        assert "could not be released, others take over in 15 s: no route" in caplog.text


@pytest.mark.row("M2")
def test_two_candidates_are_never_both_open(server: LeaseServer, clock: FakeClock) -> None:
    """The first one cannot reach the server from some moment on; the second one polls all the
    time."""
    server.may_watch = False
    one, two = Candidate(server, clock, "one"), Candidate(server, clock, "two")
    one.step()
    two.step()
    for tick in range(400):
        clock.advance(0.1)
        server.fault = always(Unreachable("cut off")) if tick > 31 else failing()
        one.step()
        server.fault = failing()
        two.step()
        assert not (one.elector.fence.held() and two.elector.fence.held())
    assert one.lost
    assert two.leads()


@pytest.mark.row("O13")
def test_a_standby_of_another_provider_says_so_once_and_until_that_leader_ends(
    server: LeaseServer, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    server.may_watch = False
    leader = Candidate(server, clock, "it", {"provider": "fake"})
    standby, sibling = (Candidate(server, clock, name, {"provider": name}) for name in ("acme", "fake"))
    leader.step()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            standby.step()
            sibling.step()
            clock.advance(2)
            leader.step()
    [text] = standby.strangers
    assert "held by it, which serves provider fake; this process serves provider acme" in text
    assert standby.elector.problem() == text
    assert caplog.text.count("which serves provider fake") == 1
    assert (sibling.strangers, sibling.elector.problem(), leader.elector.problem()) == ([], "", "")
    leader.elector.stop()
    leader.step()
    standby.step()
    assert standby.leads()
    assert standby.elector.problem() == ""
    sibling.step()
    assert "held by acme, which serves provider acme" in sibling.elector.problem()
