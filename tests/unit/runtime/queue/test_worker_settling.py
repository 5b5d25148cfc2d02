"""What becomes of a key after its run: the table in ``outcomes.py``, row by row."""

import logging
from concurrent.futures import Future
from typing import Any

import pytest

from cloudprovider.errors import InstanceNotFound, RetryError, Throttled
from cloudprovider.internal.backoff import Backoff
from cloudprovider.internal.cleaning import text_of
from controllers.runtime.api import TooManyRequests
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import DONE, Parked, Result, TerminalError, WorkQueue
from controllers.runtime.queue.outcomes import LEAST_WAIT, Aborted, FailureHandling, Requeuer
from tests.support.clock import FakeClock


class Bench:
    """A queue with one key in work, and a settler that keeps what it reports."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.chance = 0.0
        self.queue: WorkQueue[str] = WorkQueue(
            "Nodes", clock=self.clock, metrics=self.metrics, backoff=Backoff(1.0, 60.0, 0.0)
        )
        self.reported: list[tuple[str, Exception]] = []
        self.settler = Requeuer(
            self.queue,
            FailureHandling(on_error=lambda key, error: self.reported.append((key, error))),
            metrics=self.metrics,
            clock=self.clock,
            chance=lambda: self.chance,
        )
        self.take()

    def requeuer(self, **handling: Any) -> Requeuer[str]:
        """Another one of the same queue."""
        return Requeuer(self.queue, FailureHandling(**handling), metrics=self.metrics, clock=self.clock)

    def take(self) -> None:
        self.queue.add("a")
        assert self.queue.get(0) == "a"

    def run(self, outcome: Any) -> None:
        """One run of key a that ends like this."""

        def reconcile() -> Any:
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        self.settler.run("a", reconcile)

    def next_run(self) -> float | None:
        """Seconds until the key runs again; None when it will not."""
        for seconds in range(200):
            if self.queue.get(0) == "a":
                return float(seconds)
            self.clock.advance(1.0)
        return None

    def results(self) -> dict[str, float]:
        names = ("success", "requeue_after", "retry_after", "terminal", "parked", "error")
        counts = {name: self.metrics.value("controller_reconcile_total", name="Nodes", result=name) for name in names}
        return {name: count for name, count in counts.items() if count}

    def errors(self) -> float | None:
        return self.metrics.value("controller_reconcile_errors_total", name="Nodes")


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("outcome", [None, DONE, Result()])
def test_success_forgets_and_ends(bench: Bench, outcome: Result | None) -> None:
    bench.queue.add_rate_limited("a")
    bench.run(outcome)
    assert bench.queue.num_requeues("a") == 0
    assert bench.results() == {"success": 1}
    assert bench.errors() == 0
    assert bench.reported == []
    assert bench.queue.oldest_running().key is None


def test_requeue_after_forgets_and_comes_back(bench: Bench) -> None:
    bench.queue.add_rate_limited("a")
    assert bench.next_run() is None, "in work"
    bench.run(Result(requeue_after=30.0))
    assert bench.queue.num_requeues("a") == 0
    bench.queue.get(0)
    bench.queue.done("a")
    assert bench.next_run() == 30.0
    assert bench.results() == {"requeue_after": 1}


def test_requeue_after_may_name_a_priority_and_else_keeps_that_of_the_run(bench: Bench) -> None:
    for result, expected in ((Result(requeue_after=1.0, priority=5), "a"), (Result(requeue_after=1.0), "b")):
        bench.run(result)
        bench.clock.advance(2.0)
        bench.queue.add("b", 3)
        assert bench.queue.get(0) == expected, "a has priority 5, then that of this run: 0"
        bench.queue.done(expected)
        other = bench.queue.get(0)
        assert other is not None
        bench.queue.done(other)
        bench.take()


def test_an_exception_backs_off_each_time_longer(bench: Bench) -> None:
    delays = []
    for _ in range(4):
        bench.run(KeyError("x"))
        delays.append(bench.next_run())
    assert delays == [1.0, 2.0, 4.0, 8.0]
    assert bench.results() == {"error": 4}
    assert bench.errors() == 4
    assert [(key, type(error)) for key, error in bench.reported] == [("a", KeyError)] * 4
    bench.run(None)
    bench.take()
    bench.run(KeyError("x"))
    assert bench.next_run() == 1.0, "success ended the backoff"


@pytest.mark.row("S4")
@pytest.mark.row("K10")
def test_an_api_server_that_names_the_same_time_again_and_again_is_asked_ever_more_rarely(bench: Bench) -> None:
    delays = []
    for _ in range(8):
        bench.run(TooManyRequests("busy", status=429, retry_after=7.0))
        delays.append(bench.next_run())
    assert delays == [7, 7, 7, 8, 16, 32, 60, 60]
    bench.run(DONE)
    bench.take()
    bench.run(TooManyRequests("busy", status=429, retry_after=7.0))
    assert bench.next_run() == 7


@pytest.mark.row("K10")
def test_a_named_time_is_a_second_at_least_and_varies(bench: Bench) -> None:
    bench.run(RetryError("being built", retry_after=0.01))
    assert bench.next_run() == 1.0
    bench.chance = 1.0
    bench.run(RetryError("being built", retry_after=70.0))
    assert bench.next_run() == 77.0


@pytest.mark.row("K32")
def test_a_retry_error_of_no_time_means_soon_and_never_backs_off(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(6):
        bench.run(RetryError("being built", 0))
        assert bench.next_run() == LEAST_WAIT
    assert "failed" not in caplog.text
    assert bench.errors() == 0
    for seconds in (1.0, 2.0):
        bench.run(Throttled("slowly", 0.0))
        assert bench.next_run() == seconds, "no time is named"


@pytest.mark.parametrize(
    "error",
    [
        RetryError("being built", retry_after=7.0),
        Throttled("slowly", retry_after=7.0),
    ],
)
def test_retry_after_is_obeyed_and_is_not_counted_as_an_error(bench: Bench, error: Exception) -> None:
    bench.run(KeyError("x"))
    assert bench.next_run() == 1.0
    for _ in range(3):
        bench.run(error)
        assert bench.next_run() == 7.0
    assert bench.queue.num_requeues("a") == 1, "neither counted nor forgotten"
    assert bench.results() == {"error": 1, "retry_after": 3}
    assert bench.errors() == 1
    assert len(bench.reported) == (1 if isinstance(error, RetryError) else 4)
    bench.run(KeyError("x"))
    assert bench.next_run() == 2.0


@pytest.mark.parametrize("value", [None, 0, -1.0, float("nan"), float("inf"), "7", True, object()])
def test_a_retry_after_that_names_no_time_backs_off(bench: Bench, value: object) -> None:
    class Odd(Exception):
        retry_after = value

    bench.run(Odd())
    assert bench.next_run() == 1.0
    assert bench.results() == {"error": 1}


def test_a_terminal_error_is_not_tried_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    class Hopeless(TerminalError):
        retry_after = 5.0

    bench.queue.add_rate_limited("a")
    bench.run(Hopeless("no such class"))
    assert bench.queue.num_requeues("a") == 0
    assert bench.results() == {"terminal": 1}
    assert bench.errors() == 1
    assert bench.reported[0][0] == "a"
    assert "not tried again" in caplog.text
    assert bench.next_run() == 1.0, "what was asked for before stands"
    bench.run(Hopeless("no such class"))
    assert bench.next_run() is None


@pytest.mark.row("N5")
class TestParked:
    def test_closed_until_its_future_ends_then_backoff(self, bench: Bench) -> None:
        call: Future[None] = Future()
        bench.run(Parked(call, "create_route has not answered"))
        bench.queue.add("a")
        assert bench.next_run() is None
        assert bench.queue.parked() == ["a"]
        assert bench.results() == {"parked": 1}
        assert bench.errors() == 0
        assert bench.metrics.value("controller_parked_keys", name="Nodes") == 1
        assert "create_route" in str(bench.reported[0][1])
        call.set_result(None)
        assert bench.metrics.value("controller_parked_keys", name="Nodes") == 0
        assert bench.queue.num_requeues("a") == 1
        assert bench.next_run() == 0.0, "an event came meanwhile"
        bench.queue.done("a")
        assert bench.next_run() == 1.0, "and the backoff"

    @pytest.mark.parametrize("end", ["result", "exception", "cancel", "before"])
    def test_however_it_ends(self, bench: Bench, end: str) -> None:
        call: Future[None] = Future()
        if end == "before":
            call.set_result(None)
        bench.run(Parked(call))
        if end == "result":
            call.set_result(None)
        elif end == "exception":
            call.set_exception(KeyError("x"))
        elif end == "cancel":
            assert call.cancel()
        assert bench.next_run() == 1.0
        assert bench.metrics.value("controller_parked_keys", name="Nodes") == 0

    def test_a_parked_key_whose_report_fails_is_not_run_during_its_call(self, bench: Bench) -> None:
        def report(key: str, error: Exception) -> None:
            raise SystemExit("a recorder that ends threads")

        settler = bench.requeuer(on_error=report)
        call: Future[None] = Future()
        with pytest.raises(SystemExit):
            settler.settle("a", Parked(call))
        bench.queue.add("a")
        assert bench.next_run() is None
        call.set_result(None)
        assert bench.next_run() == 0.0

    def test_what_is_no_future_does_not_lose_the_key(self, bench: Bench) -> None:
        bench.run(Parked("not a future"))  # type: ignore[arg-type]  # what a careless caller may pass
        assert bench.queue.parked() == []
        assert bench.next_run() == 1.0

    def test_the_end_of_the_call_after_shutdown_harms_nothing(self, bench: Bench) -> None:
        call: Future[None] = Future()
        bench.run(Parked(call))
        bench.queue.shut_down()
        assert bench.queue.wait_drained(0)
        call.set_result(None)
        assert bench.queue.parked() == []


class TestNothingIsLost:
    def test_a_report_that_raises_costs_nothing(self, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        def report(key: str, error: Exception) -> None:
            raise RuntimeError("the recorder is broken")

        settler = bench.requeuer(on_error=report)
        settler.settle("a", KeyError("x"))
        assert bench.queue.num_requeues("a") == 1
        assert bench.next_run() == 1.0
        assert "the recorder is broken" in caplog.text

    def test_the_key_is_closed_while_it_is_reported(self, bench: Bench) -> None:
        seen = []

        def report(key: str, error: Exception) -> None:
            bench.queue.add(key)
            seen.append(bench.queue.get(0))

        settler = bench.requeuer(on_error=report)
        settler.settle("a", KeyError("x"))
        assert seen == [None]
        assert bench.next_run() == 0.0

    @pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
    def test_what_would_end_the_thread_settles_the_key_first(self, bench: Bench, error: BaseException) -> None:
        with pytest.raises(type(error)):
            bench.run(error)
        [(key, reported)] = bench.reported
        assert key == "a"
        assert isinstance(reported, Aborted)
        assert reported.__cause__ is error
        assert type(error).__name__ in str(reported)
        assert bench.next_run() == 1.0

    @pytest.mark.parametrize("outcome", [True, 5.0, "ok", ["a"]])
    def test_a_reconcile_that_returns_nonsense_has_failed(
        self, bench: Bench, outcome: object, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench.run(outcome)
        assert bench.results() == {"error": 1}
        assert "must return a Result" in caplog.text
        assert bench.next_run() == 1.0

    def test_an_exception_that_is_broken_itself(self, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        class Broken(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no text")

        bench.run(Broken())
        assert bench.next_run() == 1.0
        assert "its message cannot be shown: RuntimeError" in caplog.text

    def test_an_attribute_that_raises(self, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        class Broken(Exception):
            @property
            def retry_after(self) -> float:
                raise RuntimeError("not yet known")

        bench.run(Broken())
        assert bench.next_run() == 1.0
        assert "handling the result of a failed" in caplog.text


class ComeAgain(Exception):
    retry_after = 7.0


class TestLog:
    def test_an_expected_error_is_one_line(self, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        bench.run(InstanceNotFound("no instance\n  of that name"))
        assert bench.next_run() == 1.0
        bench.run(InstanceNotFound("no instance of that name"))
        lines = [record for record in caplog.records if record.levelno >= logging.INFO]
        assert [record.getMessage() for record in lines] == [
            "Nodes: a failed (attempt 1), retrying in 1 s: InstanceNotFound: no instance of that name",
            "Nodes: a failed (attempt 2), retrying in 2 s: InstanceNotFound: no instance of that name",
        ]
        assert all(record.levelno == logging.WARNING and not record.exc_info for record in lines)

    @pytest.mark.row("K16")
    def test_the_delay_told_is_the_true_one(self, caplog: pytest.LogCaptureFixture, clock: FakeClock) -> None:
        queue: WorkQueue[str] = WorkQueue("Nodes", clock=clock, metrics=Metrics(), min_interval=1.0)
        settler = Requeuer(queue, FailureHandling(), metrics=Metrics(), clock=clock)
        queue.add("a")
        queue.get(0)
        settler.settle("a", InstanceNotFound("no instance"))
        assert "a failed (attempt 1), retrying in 1 s: InstanceNotFound" in caplog.text
        clock.advance(0.99)
        assert queue.get(0) is None
        clock.advance(0.01)
        assert queue.get(0) == "a"

    def test_its_stack_is_there_for_those_who_debug(self, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.DEBUG):
            bench.run(InstanceNotFound("no instance"))
        assert [bool(record.exc_info) for record in caplog.records] == [False, True]

    @pytest.mark.parametrize(
        ("error", "expected", "level", "stack", "told"),
        [
            (ZeroDivisionError("x"), (), logging.ERROR, True, "ZeroDivisionError: x"),
            (ZeroDivisionError("x"), (ZeroDivisionError,), logging.WARNING, False, "ZeroDivisionError: x"),
            (Throttled("slow down", retry_after=7.0), (), logging.INFO, False, "retrying in 7 s as asked"),
            (ComeAgain("busy"), (), logging.INFO, False, "retrying in 7 s as asked"),
        ],
        ids=["unexpected: with its stack", "named as expected", "a named time", "by an error of another's"],
    )
    def test_one_line_with_the_stack_of_what_was_not_expected_alone(
        self, bench: Bench, error: Exception, expected: tuple[type[Exception], ...], level: int, stack: bool,
        told: str, caplog: pytest.LogCaptureFixture,
    ) -> None:  # fmt: skip
        with caplog.at_level(logging.INFO):
            bench.requeuer(expected=expected).settle("a", error) if expected else bench.run(error)
        [record] = caplog.records
        assert (record.levelno, bool(record.exc_info)) == (level, stack)
        assert told in record.getMessage()

    def test_during_the_shutdown_it_promises_nothing(self, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        bench.queue.shut_down()
        bench.run(InstanceNotFound("no instance"))
        assert "not tried again, as this controller stops" in caplog.text

    def test_its_text_is_one_line(self) -> None:
        assert text_of(ValueError("a\n\tb")) == "a b"
        assert len(text_of("x" * 5_000)) == 1_000


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), "5", True])
def test_senseless_results_are_refused(seconds: Any) -> None:
    with pytest.raises(ValueError, match="requeue_after"):
        Result(requeue_after=seconds)
