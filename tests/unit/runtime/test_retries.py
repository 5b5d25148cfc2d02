"""The end of an outage of the API server: whom it wakes."""

from __future__ import annotations

import random

import pytest

from cloudprovider.internal.backoff import Backoff
from controllers.runtime.api import Forbidden, ServerError, Unreachable
from controllers.runtime.api.reachability import OUTAGE, Reachability
from controllers.runtime.cache.retries import Retries, WatchOptions
from controllers.runtime.clock import ClockEvent
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import WorkQueue
from controllers.runtime.queue.outcomes import OUTAGE_SPREAD, FailureHandling, Requeuer
from tests.support.clock import FakeClock
from tests.unit.runtime.loopback import Call


def lost(server: Reachability, error: ServerError | Unreachable | None = None) -> ServerError | Unreachable:
    error = error or Unreachable("connection refused")
    error.recovery = server.failed("refused")
    return error


def test_a_listener_is_called_once_however_often_it_is_given(clock: FakeClock) -> None:
    told = list[str]()

    def listen() -> None:
        told.append("back")

    server = Reachability(clock)
    recovery = server.failed("refused")
    recovery.then(listen)
    recovery.then(listen)
    clock.advance(OUTAGE)
    server.answered(200)
    assert told == ["back"]


class TestTheWatch:
    def retries(self, clock: FakeClock) -> tuple[Retries, ClockEvent]:
        stop = ClockEvent(clock)
        return Retries("nodes", WatchOptions(), clock, random.Random(7), stop), stop

    @pytest.mark.row("K17")
    def test_waits_a_moment_at_most_after_the_server_is_back(self, clock: FakeClock) -> None:
        server = Reachability(clock)
        retries, _ = self.retries(clock)
        call = Call(lambda: retries.pause(60.0, lost(server)))
        clock.wait_for_timeout(60.0)
        clock.advance(20.0)
        clock.wait_for_timeout(40.0)
        server.answered(200)
        clock.wait_for_timeout(0.8 * random.Random(7).random())
        clock.advance(0.8)
        call.outcome()

    def test_obeys_retry_after_all_the_same(self, clock: FakeClock) -> None:
        server = Reachability(clock)
        retries, stop = self.retries(clock)
        call = Call(lambda: retries.pause(60.0, lost(server, ServerError("busy", status=503, retry_after=60.0))))
        clock.wait_for_timeout(60.0)
        clock.advance(OUTAGE)
        server.answered(200)
        clock.advance(59.0 - OUTAGE)
        clock.wait_for_timeout(1.0)
        stop.set()
        call.outcome()

    @pytest.mark.row("K2")
    def test_a_restart_that_one_try_missed_and_another_was_refused_by_is_no_cut_connection(self) -> None:
        retries, _ = self.retries(FakeClock())
        seen = []
        for error in (Unreachable("connection closed"), Forbidden("a server that has just started", status=403)):
            retries.delay(error)
            seen.append(retries.was_away)
        retries.start_over()
        assert [*seen, retries.was_away] == [False, True, False]

    def test_stops_at_once(self, clock: FakeClock) -> None:
        retries, stop = self.retries(clock)
        call = Call(lambda: retries.pause(60.0, lost(Reachability(clock))))
        clock.wait_for_timeout(60.0)
        stop.set()
        retries.wake()
        call.outcome()


class TestKeys:
    @pytest.mark.row("K17")
    def test_that_failed_in_an_outage_return_soon_after_it(self, clock: FakeClock) -> None:
        metrics = Metrics()
        server = Reachability(clock)
        queue: WorkQueue[str] = WorkQueue("Nodes", clock=clock, metrics=metrics, backoff=Backoff(60.0, 60.0, 0.0))
        settler = Requeuer(queue, FailureHandling(), metrics=metrics, clock=clock)
        for key in ("lost", "refused", "mended"):
            queue.add(key)
        for _ in range(3):
            failed = queue.get(0)
            error = ServerError("it broke", status=500) if failed == "refused" else lost(server)
            assert failed is not None
            settler.settle(failed, error)
        queue.add("mended")
        assert queue.get(0) == "mended"
        settler.settle("mended", lost(server))
        queue.add("mended")
        assert queue.get(0) == "mended"
        queue.add("mended")  # and it has to run again
        settler.run("mended", lambda: None)
        assert queue.get(0) == "mended"
        settler.run("mended", lambda: None)
        clock.advance(OUTAGE)
        server.answered(200)
        clock.advance(OUTAGE_SPREAD)
        assert queue.get(0) == "lost"
        assert queue.num_requeues("lost") == 0
        assert queue.get(0) is None, "what failed otherwise backs off as ever, and what succeeded does not run again"

    def test_that_are_settled_after_the_servers_return_do_so_too(self, clock: FakeClock) -> None:
        """Their failure is older than the answer, but its thread came to settle them only now."""
        metrics = Metrics()
        server = Reachability(clock)
        queue: WorkQueue[str] = WorkQueue("Nodes", clock=clock, metrics=metrics, backoff=Backoff(60.0, 60.0, 0.0))
        settler = Requeuer(queue, FailureHandling(), metrics=metrics, clock=clock)
        for key in ("early", "late"):
            queue.add(key)
        assert [queue.get(0), queue.get(0)] == ["early", "late"]
        settler.settle("early", lost(server))
        error = lost(server)
        clock.advance(OUTAGE)
        server.answered(200)
        settler.settle("late", error)
        clock.advance(OUTAGE_SPREAD)
        assert {queue.get(0), queue.get(0)} == {"early", "late"}
