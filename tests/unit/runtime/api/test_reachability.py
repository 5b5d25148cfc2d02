"""Whether the API server answers: told to those who wait before they try again."""

from __future__ import annotations

import logging
from contextlib import closing

import pytest

from controllers.runtime.api import ApiError, Unreachable
from controllers.runtime.api.reachability import OUTAGE, Reachability
from tests.support.clock import FakeClock
from tests.unit.runtime.api.test_clients import builder_for
from tests.unit.runtime.loopback import Peer, Server


class TestReachability:
    @pytest.mark.row("K17")
    def test_the_first_answer_after_an_outage_is_told_once(self, clock: FakeClock) -> None:
        told = list[str]()
        reachability = Reachability(clock)
        reachability.answered(200)
        recovery = reachability.failed("connection refused")
        recovery.then(lambda: told.append("waited"))
        clock.advance(OUTAGE)
        assert reachability.failed("connection refused again") is recovery
        assert (told, recovery.done(), reachability.error) == ([], False, "connection refused again")
        reachability.answered(404)
        reachability.answered(200)
        recovery.then(lambda: told.append("late"))
        assert (told, recovery.done(), reachability.error) == (["waited", "late"], True, "")
        assert not reachability.recovery.done()

    @pytest.mark.row("K17")
    def test_a_failure_among_answers_is_no_outage(self, clock: FakeClock) -> None:
        reachability = Reachability(clock)
        recovery = reachability.failed("timed out")
        clock.advance(OUTAGE - 0.1)
        reachability.answered(200)
        assert not recovery.done()
        assert reachability.failed("timed out") is recovery

    def test_the_time_of_the_first_failure_is_kept(self, clock: FakeClock) -> None:
        reachability = Reachability(clock)
        reachability.failed("refused")
        began = clock.monotonic()
        clock.advance(5)
        reachability.failed("refused")
        assert reachability.down_since == began
        reachability.answered(200)
        assert reachability.down_since is None

    @pytest.mark.parametrize("status", [502, 503, 504])
    def test_what_a_load_balancer_says_for_a_dead_server_is_no_answer(self, status: int) -> None:
        reachability = Reachability()
        reachability.failed("refused")
        reachability.answered(status)
        assert (reachability.recovery.done(), reachability.error) == (False, f"status {status}")

    def test_one_bad_listener_does_not_harm_the_others(self, caplog: pytest.LogCaptureFixture) -> None:
        told: list[str] = []

        def bad() -> None:
            raise ValueError("oh")

        clock = FakeClock()
        reachability = Reachability(clock)
        recovery = reachability.failed("refused")
        recovery.then(bad)
        recovery.then(lambda: told.append("x"))
        clock.advance(OUTAGE)
        with caplog.at_level(logging.ERROR):
            reachability.answered(200)
        assert told == ["x"]
        assert "listener" in caplog.text


class TestReports:
    def test_any_clients_answer_ends_the_wait_of_all(self, clock: FakeClock) -> None:
        answers = iter((False, True))

        def sometimes(peer: Peer) -> None:
            if peer.request() and next(answers):
                peer.answer()

        told: list[str] = []
        with Server(sometimes) as server, builder_for(server, clock=clock) as builder:
            one, other = builder.rest("one"), builder.rest("other")
            with pytest.raises(Unreachable) as lost:
                one.request("PATCH", "/a", body={})
            assert lost.value.recovery is not None
            lost.value.recovery.then(lambda: told.append("back"))
            clock.advance(OUTAGE)
            assert builder.reachability.down_since is not None
            other.request("PATCH", "/a", body={})
            assert told == ["back"]
            assert builder.reachability.down_since is None

    def test_a_watchs_opening_counts_and_its_end_does_not(self) -> None:
        def broken_off(peer: Peer) -> None:
            if peer.request():
                peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")

        with Server(broken_off) as server, builder_for(server) as builder:
            builder.reachability.failed("refused")
            with closing(builder.rest("watcher").stream("/a", read_timeout=5)) as stream:
                stream.open()
                assert builder.reachability.down_since is None
                with pytest.raises(ApiError):
                    next(stream)
            assert builder.reachability.down_since is None
