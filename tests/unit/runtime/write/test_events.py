"""Events are written beside the work: in order, bounded, tried again, and never lost without a
trace."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from cloudprovider.internal import cleaning
from cloudprovider.internal.cleaning import Cleaner
from cloudprovider.testing.waiting import eventually
from controllers.runtime.api import (
    AlreadyExists,
    BadRequest,
    ClientClosed,
    Forbidden,
    Invalid,
    NotFound,
    Response,
    RestClient,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from controllers.runtime.api.reachability import Reachability
from controllers.runtime.metrics import Metrics
from controllers.runtime.write import EventRecorder, Reference, events
from controllers.runtime.write.correlation import BURST, CACHE_SIZE, COMBINED_PREFIX
from controllers.runtime.write.events import FORBIDDEN_TRIES, IDLE_SECONDS, MAX_TRIES
from tests.support.clock import FakeClock
from tests.unit.runtime.loopback import LIMIT, Call

COMPONENT = "cloud-node-controller"
NODE = Reference("Node", "n1", uid="u1")
PATH = "/api/v1/namespaces/default/events"


class FakeServer:
    """Keeps Events by path; `errors` are answered first, for the next requests."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str]] = []
        self.errors: list[Exception | None] = []
        self.apply_before_error = False
        self.gate = threading.Event()
        self.gate.set()
        self.inside = threading.Semaphore(0)
        self._lock = threading.Lock()

    def request(
        self, method: str, path: str, *, body: Any, timeout: float, accept: str, content_type: str = ""
    ) -> Response:
        self.inside.release()
        assert self.gate.wait(LIMIT)
        with self._lock:
            self.requests.append((method, path))
            error = self.errors.pop(0) if self.errors else None
            if error is None or self.apply_before_error:
                self._apply(method, path, json.loads(json.dumps(body)))
            if error is not None:
                raise error
        return Response(200, {}, b"{}")

    def _apply(self, method: str, path: str, body: Any) -> None:
        if method == "POST":
            name = f"{path}/{body['metadata']['name']}"
            if name in self.events:
                raise AlreadyExists("there", status=409)
            self.events[name] = body
        elif path in self.events:
            self.events[path].update(body)
        else:
            raise NotFound("gone", status=404)

    @property
    def stored(self) -> list[tuple[str, int]]:
        return sorted((event["message"], event["count"]) for event in self.events.values())


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


Make = Callable[..., EventRecorder]


@pytest.fixture
def make(server: FakeServer, clock: FakeClock, metrics: Metrics) -> Iterator[Make]:
    made: list[EventRecorder] = []

    def recorder(**options: Any) -> EventRecorder:
        options = {"clock": clock, "metrics": metrics, "chance": lambda: 0.0, **options}
        found = EventRecorder(cast(RestClient, server), COMPONENT, **options)
        made.append(found)
        return found

    yield recorder
    server.gate.set()
    for found in made:
        found.stop(0)


def dropped(metrics: Metrics, reason: str) -> float | None:
    return metrics.value("event_recorder_dropped_total", component=COMPONENT, reason=reason)


def settle(recorder: EventRecorder, clock: FakeClock) -> float:
    """Let as much time pass as the recorder waits for, until nothing is left to write; returns how
    much it was."""
    waited = 0.0
    while not recorder.flush(0):
        pause = clock.next_deadline()
        if pause:
            waited += pause
            clock.advance(pause)
        else:
            threading.Event().wait(0.001)
    return waited


class TestWriting:
    def test_created_then_counted_by_patch(self, make: Make, server: FakeServer, metrics: Metrics) -> None:
        recorder = make()
        recorder.event(NODE, "Normal", "Synced", "done")
        assert recorder.flush(LIMIT)
        recorder.event(NODE, "Normal", "Synced", "done")
        assert recorder.flush(LIMIT)
        assert server.stored == [("done", 2)]
        (path,) = server.events
        assert server.requests == [("POST", PATH), ("PATCH", path)]
        for operation in ("create", "patch"):
            assert metrics.value("event_recorder_writes_total", component=COMPONENT, operation=operation) == 1

    def test_an_expired_event_is_created_again(self, make: Make, server: FakeServer) -> None:
        recorder = make()
        recorder.event(NODE, "Normal", "Synced", "done")
        recorder.flush(LIMIT)
        server.events.clear()
        recorder.event(NODE, "Normal", "Synced", "done")
        recorder.flush(LIMIT)
        assert [method for method, _ in server.requests] == ["POST", "PATCH", "POST"]
        assert server.stored == [("done", 2)]

    def test_equal_ones_that_wait_together_are_one_write(
        self, make: Make, server: FakeServer, metrics: Metrics
    ) -> None:
        recorder = make()
        server.gate.clear()
        recorder.event(NODE, "Normal", "Other", "first")
        assert server.inside.acquire(timeout=LIMIT)
        for _ in range(50):
            recorder.event(NODE, "Warning", "Failed", "no route")
        server.gate.set()
        assert recorder.flush(LIMIT)
        assert server.stored == [("first", 1), ("no route", 50)]
        assert len(server.requests) == 2
        assert metrics.value("event_recorder_merged_total", component=COMPONENT) == 49

    def test_similar_ones_are_combined(self, make: Make, server: FakeServer) -> None:
        recorder = make()
        for n in range(12):
            recorder.event(NODE, "Warning", "Failed", f"try {n:02}")
        assert recorder.flush(LIMIT)
        assert (f"{COMBINED_PREFIX}try 11", 3) in server.stored
        assert len(server.events) == 10

    def test_a_talkative_object_is_limited_and_counted(self, make: Make, server: FakeServer, metrics: Metrics) -> None:
        recorder = make()
        for _ in range(BURST + 10):
            recorder.event(NODE, "Normal", "Synced", "done")
            recorder.flush(LIMIT)
        assert len(server.requests) == BURST
        assert dropped(metrics, "rate_limited") == 10

    def test_what_is_about_one_object_is_written_in_order(self, make: Make, server: FakeServer) -> None:
        recorder = make()
        for n in range(9):
            recorder.event(NODE, "Normal", f"Step{n}", "x")
        recorder.flush(LIMIT)
        reasons = [event["reason"] for event in server.events.values()]
        assert reasons == [f"Step{n}" for n in range(9)]

    def test_several_writers_work_at_once(self, make: Make, server: FakeServer) -> None:
        recorder = make(writers=4)
        server.gate.clear()
        for n in range(40):
            recorder.event(Reference("Node", f"n{n}"), "Normal", "Synced", "done")
        for _ in range(4):
            assert server.inside.acquire(timeout=LIMIT)
        server.gate.set()
        assert recorder.flush(LIMIT)
        assert len(server.events) == 40

    def test_a_long_message_is_cut(self, make: Make, server: FakeServer) -> None:
        recorder = make()
        recorder.event(NODE, "Normal", "Synced", "x" * 5000)
        recorder.flush(LIMIT)
        (event,) = server.events.values()
        assert len(event["message"]) == 1024
        assert event["message"].endswith("...")

    @pytest.mark.row("X2")
    def test_a_message_is_cleaned(self, make: Make, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cleaning, "_of_process", Cleaner(["s3cr3tValue"]))
        recorder = make()
        recorder.event(NODE, "Warning", "Failed", "s3cr3tValue, token=hunter2x\nline two \x1b[31mred")
        recorder.flush(LIMIT)
        (event,) = server.events.values()
        assert event["message"] == "***, token=<redacted>\\nline two \\x1b[31mred"

    @pytest.mark.parametrize(("kind", "reason"), [("Info", "Synced"), ("Normal", ""), ("Normal", "x" * 129)])
    def test_a_mistake_in_our_code_is_raised(self, make: Make, kind: str, reason: str) -> None:
        with pytest.raises(ValueError, match="type is Normal or Warning"):
            make().event(NODE, kind, reason, "m")

    def test_no_thread_before_the_first_event(self, make: Make) -> None:
        before = threading.active_count()
        recorder = make()
        assert threading.active_count() == before
        assert recorder.flush(0)


class TestFailures:
    @pytest.mark.parametrize(
        ("errors", "pauses"),
        [
            ([ServerError("x", status=500)] * 2, (0.5, 1.0)),
            ([ServerError("x", status=503)] * 2, (0.5, 1.0)),
            ([Unreachable("x", sent=False)] * 2, (0.5, 1.0)),
            ([Unauthorized("x", status=401)] * 2, (0.5, 1.0)),
            pytest.param([TooManyRequests("x", status=429, retry_after=7)], (7,), id="the server's delay"),
            pytest.param([Forbidden("x", status=403)], (0.5,), id="a right that comes late"),
        ],
    )
    def test_passing_ones_are_tried_again(
        self,
        errors: list[Exception | None],
        pauses: tuple[float, ...],
        make: Make,
        server: FakeServer,
        clock: FakeClock,
    ) -> None:
        recorder = make()
        server.errors = [*errors]
        recorder.event(NODE, "Normal", "Synced", "done")
        for pause in pauses:
            clock.wait_for_timeout(pause)
            clock.advance(pause)
        assert recorder.flush(LIMIT)
        assert server.stored == [("done", 1)]

    def test_an_outage_loses_nothing_and_hammers_nobody(self, make: Make, server: FakeServer, clock: FakeClock) -> None:
        """Ten minutes without a server: the queue waits, one try per pause."""
        recorder = make(writers=1)
        server.errors = [Unreachable("x", sent=False)] * 64
        for n in range(20):
            recorder.event(Reference("Node", f"n{n}"), "Normal", "Synced", "done")
        waited = settle(recorder, clock)
        assert waited > 590
        assert len(server.events) == 20

    @pytest.mark.row("K17")
    def test_a_server_that_returns_while_a_failure_is_dealt_with(
        self, make: Make, server: FakeServer, clock: FakeClock
    ) -> None:
        reachability = Reachability(clock)
        lost = [Unreachable("x", sent=False) for _ in range(2)]
        for error in lost:
            error.recovery = reachability.failed("x")
        recorder = make(writers=1)
        server.errors = [*lost]
        recorder.event(NODE, "Normal", "Synced", "done")
        clock.wait_for_timeout(0.5)
        server.gate.clear()
        clock.advance(0.5)
        assert server.inside.acquire(timeout=LIMIT)
        assert server.inside.acquire(timeout=LIMIT), "the second try is under way"
        clock.advance(5.0)
        reachability.answered(200)
        server.gate.set()
        assert settle(recorder, clock) == 0.0
        assert server.stored == [("done", 1)]

    def test_one_poisoned_event_does_not_hold_up_the_others(
        self, make: Make, clock: FakeClock, metrics: Metrics
    ) -> None:
        class Poisoned(FakeServer):
            def _apply(self, method: str, path: str, body: Any) -> None:
                if body["reason"] == "Poison":
                    raise ServerError("webhook", status=500)
                super()._apply(method, path, body)

        server = Poisoned()
        recorder = EventRecorder(cast(RestClient, server), COMPONENT, clock=clock, metrics=metrics, writers=1)
        recorder.event(NODE, "Normal", "Poison", "x")
        for n in range(5):
            recorder.event(Reference("Node", f"o{n}"), "Normal", "Synced", "done")
        settle(recorder, clock)
        assert len(server.events) == 5
        assert dropped(metrics, "retries") == 1
        assert sum(1 for method, _ in server.requests if method == "POST") == 5 + MAX_TRIES
        assert recorder.stop(LIMIT)

    @pytest.mark.parametrize("created", [False, True], ids=["of its creation", "of its patch"])
    def test_a_lost_answer_is_no_second_event(
        self, created: bool, make: Make, server: FakeServer, clock: FakeClock
    ) -> None:
        recorder = make()
        if created:
            recorder.event(NODE, "Normal", "Synced", "done")
            recorder.flush(LIMIT)
        server.errors = [Unreachable("timeout", sent=True)]
        server.apply_before_error = True
        recorder.event(NODE, "Normal", "Synced", "done")
        clock.wait_for_timeout(0.5)
        recorder.event(NODE, "Normal", "Synced", "done")  # counted while the first one waits
        clock.advance(0.5)
        assert recorder.flush(LIMIT)
        assert server.stored == [("done", 2 + created)]

    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (
                Forbidden("x", status=403, details={"causes": [{"reason": "NamespaceTerminating"}]}),
                "namespace",
            ),
            (NotFound("no namespace", status=404), "namespace"),
            (Invalid("x", status=422), "rejected"),
            (BadRequest("x", status=400), "rejected"),
            (AlreadyExists("x", status=409), "rejected"),
            (ClientClosed("x"), "stopped"),
            (RuntimeError("fenced"), "refused"),
        ],
    )
    def test_final_ones_are_dropped_counted_and_logged(
        self,
        error: Exception,
        reason: str,
        make: Make,
        server: FakeServer,
        metrics: Metrics,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        caplog.set_level("INFO")
        recorder = make()
        server.errors = [error]
        recorder.event(NODE, "Normal", "Synced", "done")
        assert recorder.flush(LIMIT)
        assert len(server.requests) == 1
        assert dropped(metrics, reason) == 1
        assert f"dropped ({reason})" in caplog.text
        recorder.event(NODE, "Normal", "Synced", "done")  # its kind may be written again
        assert recorder.flush(LIMIT)
        assert server.stored == [("done", 1)]

    @pytest.mark.row("K8")
    def test_a_refused_one_holds_up_no_other(
        self, make: Make, server: FakeServer, clock: FakeClock, metrics: Metrics
    ) -> None:
        recorder = make(writers=1)
        server.errors = [Forbidden("exceeded quota", status=403)] * 3
        for n in range(3):
            recorder.event(Reference("Service", f"s{n}", "full"), "Warning", "SyncFailed", "boom")
        recorder.event(Reference("Service", "web", "other"), "Normal", "Synced", "done")
        eventually(lambda: server.stored == [("done", 1)])  # though no time has passed

    @pytest.mark.row("K8")
    def test_once_writes_succeed_a_refused_one_is_dropped_at_once(
        self, make: Make, server: FakeServer, metrics: Metrics
    ) -> None:
        recorder = make(writers=1)
        recorder.event(NODE, "Normal", "Synced", "done")
        assert recorder.flush(LIMIT)
        server.errors = [Forbidden("exceeded quota", status=403)]
        recorder.event(Reference("Service", "s", "full"), "Warning", "SyncFailed", "boom")
        assert recorder.flush(LIMIT)
        assert dropped(metrics, "forbidden") == 1

    def test_a_missing_right_names_the_rule(
        self, make: Make, server: FakeServer, clock: FakeClock, metrics: Metrics, caplog: pytest.LogCaptureFixture
    ) -> None:
        recorder = make(writers=1)
        server.errors.extend([Forbidden("x", status=403)] * FORBIDDEN_TRIES * 5)
        for n in range(5):
            recorder.event(Reference("Node", f"n{n}"), "Normal", "Synced", "done")
        settle(recorder, clock)
        assert dropped(metrics, "forbidden") == 5
        lines = [record.getMessage() for record in caplog.records]
        assert 0 < len(lines) < 5  # one a minute
        assert all("resources [events], verbs [create, patch]" in line for line in lines)


class TestTime:
    @pytest.mark.row("K12")
    def test_a_clock_set_back_silences_nothing(self, make: Make, server: FakeServer, clock: FakeClock) -> None:
        recorder = make(writers=1)
        for _ in range(BURST):
            recorder.event(NODE, "Normal", "Synced", "done")
            assert recorder.flush(LIMIT)
        clock.step_wall_clock(-3600)
        clock.advance(301)
        recorder.event(NODE, "Normal", "Synced", "done")
        assert recorder.flush(LIMIT)
        assert server.stored == [("done", BURST + 1)]
        assert server.requests[-1][0] == "PATCH"

    @pytest.mark.row("O6")
    def test_an_idle_writer_ends_its_thread_and_the_next_event_starts_one(
        self, make: Make, server: FakeServer, clock: FakeClock
    ) -> None:
        def threads() -> int:
            return sum(thread.name.startswith(f"{COMPONENT}-events") for thread in threading.enumerate())

        before = threads()
        recorder = make(writers=1)
        recorder.event(NODE, "Normal", "Synced", "done")
        assert recorder.flush(LIMIT)
        clock.wait_for_timeout(IDLE_SECONDS)
        assert threads() == before + 1
        clock.advance(IDLE_SECONDS)
        eventually(lambda: threads() == before)
        recorder.event(NODE, "Normal", "Synced", "done")
        assert recorder.flush(LIMIT)
        assert server.stored == [("done", 2)]


class TestBounds:
    def test_a_full_queue_drops_and_tells(
        self,
        make: Make,
        server: FakeServer,
        metrics: Metrics,
        clock: FakeClock,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(events, "CAPACITY", 10)
        recorder = make(writers=1)
        server.gate.clear()
        recorder.event(NODE, "Normal", "First", "x")
        assert server.inside.acquire(timeout=LIMIT)
        for n in range(15):
            recorder.event(Reference("Node", f"n{n}"), "Normal", "Synced", "done")
        assert dropped(metrics, "queue_full") == 5
        clock.advance(61)
        recorder.event(Reference("Node", "late"), "Normal", "Synced", "done")
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == 2
        assert "1 Event(s) dropped (queue_full)" in lines[0]
        assert "5 Event(s) dropped (queue_full)" in lines[1]
        server.gate.set()
        assert recorder.flush(LIMIT)
        assert len(server.events) == 11

    def test_recording_does_not_wait_for_the_server(self, make: Make, server: FakeServer) -> None:
        """1,000 distinct Events from 16 threads while no write returns."""
        recorder = make()
        server.gate.clear()

        def record(part: int) -> float:
            began = time.thread_time()
            for n in range(part, 1000, 16):
                recorder.event(Reference("Node", f"n{n}", uid=f"u{n}"), "Normal", "Synced", "done")
            return time.thread_time() - began

        calls = [Call(lambda part=part: record(part)) for part in range(16)]  # type: ignore[misc]  # a bound default
        spent = sum(call.outcome() for call in calls)
        assert not server.requests
        assert spent < 0.25  # CPU seconds for all of them; 0.02 on an idle machine
        server.gate.set()
        assert recorder.flush(LIMIT)
        assert len(server.events) == 1000


class TestStopping:
    def test_what_is_left_is_written_and_its_threads_end(self, make: Make, server: FakeServer) -> None:
        before = threading.active_count()
        recorder = make()
        for n in range(100):
            recorder.event(Reference("Node", f"n{n}"), "Normal", "Synced", "done")
        assert recorder.stop(LIMIT)
        assert len(server.events) == 100
        assert threading.active_count() == before
        assert recorder.stop(0)

    def test_later_ones_are_dropped_and_counted(self, make: Make, server: FakeServer, metrics: Metrics) -> None:
        recorder = make()
        recorder.stop(0)
        recorder.event(NODE, "Normal", "Synced", "done")
        assert dropped(metrics, "stopped") == 1
        assert not server.requests

    def test_a_pause_is_cut_short(self, make: Make, server: FakeServer, clock: FakeClock) -> None:
        recorder = make()
        server.errors = [TooManyRequests("x", status=429, retry_after=50)]
        recorder.event(NODE, "Normal", "Synced", "done")
        clock.wait_for_timeout(50)
        call = Call(lambda: recorder.stop(5))
        clock.wait_for_timeout(0.1)
        clock.advance(0.1)
        assert call.outcome() is True
        assert server.stored == [("done", 1)]

    def test_failures_meanwhile_are_tried_again_quickly(self, make: Make, server: FakeServer, clock: FakeClock) -> None:
        recorder = make()
        server.errors = [ServerError("x", status=503, retry_after=50)] * 3
        recorder.event(NODE, "Normal", "Synced", "done")
        clock.wait_for_timeout(50)
        call = Call(lambda: recorder.stop(5))
        for tries in (2, 3, 4):
            clock.wait_for_timeout(0.1)
            clock.advance(0.1)
            eventually(lambda tries=tries: len(server.requests) == tries)  # type: ignore[misc]  # a bound default
        assert call.outcome() is True
        assert server.stored == [("done", 1)]

    def test_a_hanging_server_holds_it_up_no_longer_than_asked(
        self, make: Make, server: FakeServer, clock: FakeClock, metrics: Metrics
    ) -> None:
        recorder = make(writers=1)
        server.gate.clear()
        for n in range(3):
            recorder.event(Reference("Node", f"n{n}"), "Normal", "Synced", "done")
        assert server.inside.acquire(timeout=LIMIT)
        call = Call(lambda: recorder.stop(5))
        clock.wait_for_timeout(5)
        clock.advance(5)
        assert call.outcome() is False
        assert dropped(metrics, "stopped") == 3


@pytest.mark.row("O6")
def test_recorders_share_one_memory(server: FakeServer, clock: FakeClock, metrics: Metrics) -> None:
    """However many controllers there are, what they remember together is bounded."""
    recorders = [EventRecorder(cast(RestClient, server), f"c{n}", clock=clock, metrics=metrics) for n in range(2)]
    for which, recorder in enumerate(recorders):
        for number in range(CACHE_SIZE - 100):
            recorder.event(Reference("Node", f"n{number}-{which}"), "Normal", "Synced", "synced")
        assert recorder.flush(LIMIT)
    for kind in ("event", "group", "budget"):
        assert metrics.value("event_recorder_remembered", kind=kind) == CACHE_SIZE
    recorders[1].event(Reference("Node", "n0-1"), "Normal", "Synced", "synced")
    assert recorders[1].flush(LIMIT)
    written = metrics.value("event_recorder_writes_total", component="c1", operation="patch")
    assert written == 1, "what was used last is remembered, whosever it is"
    for recorder in recorders:
        recorder.stop(0)
