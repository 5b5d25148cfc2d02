"""A cloud that is at work: what is told of it, when, and how often it is asked."""

import logging
from collections.abc import Iterator

import pytest

from cloudprovider.errors import CloudProviderError, Pending, RetryError
from cloudprovider.internal.backoff import Backoff
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import DONE, Result, WorkQueue
from controllers.runtime.queue.outcomes import FailureHandling, Requeuer
from tests.support.clock import FakeClock


class Bench:
    """One key whose work ends as it is told, again and again."""

    def __init__(self, caplog: pytest.LogCaptureFixture, *, with_words: bool = True) -> None:
        self.clock, self.metrics = FakeClock(), Metrics()
        self.queue: WorkQueue[str] = WorkQueue(
            "service", clock=self.clock, metrics=self.metrics, backoff=Backoff(1.0, 60.0, 0.0)
        )
        self.waiting: list[tuple[str, bool]] = []
        self.failed: list[Exception] = []
        handling: FailureHandling[str] = FailureHandling(
            on_error=lambda key, error: self.failed.append(error),
            on_wait=(lambda key, error, long: self.waiting.append((str(error), long))) if with_words else None,
            noun="service",
        )
        self.requeuer = Requeuer(self.queue, handling, metrics=self.metrics, clock=self.clock, chance=lambda: 0.0)
        self.queue.add("web")
        self._caplog = caplog

    def run(self, outcome: Result | Exception) -> float:
        """The next run ends so; the seconds until it was its turn."""
        waited = 0.0
        while (key := self.queue.get(timeout=0)) is None:
            self.clock.advance(0.5)
            waited += 0.5

        def reconcile() -> Result:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        self.requeuer.run(key, reconcile)
        return waited

    def told(self) -> list[str]:
        lines = [record.getMessage() for record in self._caplog.records]
        self._caplog.clear()
        return lines


@pytest.fixture
def bench(caplog: pytest.LogCaptureFixture) -> Iterator[Bench]:
    with caplog.at_level(logging.INFO):
        yield Bench(caplog)


@pytest.mark.row("P10")
@pytest.mark.parametrize("error", [RetryError("still building", 3.0), Pending("still building", 3.0)])
def test_nothing_of_a_wait_is_called_a_failure(bench: Bench, error: RetryError) -> None:
    name = type(error).__name__
    for _ in range(3):
        bench.run(error)
    bench.run(DONE)
    assert bench.told() == [
        f"service: web waits for the cloud (answer 1), asking again in 3 s: {name}: still building",
        f"service: web waits for the cloud (answer 2), asking again in 3 s: {name}: still building",
        f"service: the cloud was done after 9 s: {name}, 3 answers for service web",
    ]
    assert bench.failed == []
    assert bench.metrics.value("controller_reconcile_errors_total", name="service") == 0
    assert bench.metrics.value("controller_reconcile_total", name="service", result="retry_after") == 3


@pytest.mark.row("P10")
def test_its_words_are_told_when_they_change_not_for_each_try_number_or_request_id(bench: Bench) -> None:
    for words in ("building, 10 %", "building, 20 %", "building, 100 %", "attaching", "attaching"):
        bench.run(Pending(words))
    assert bench.waiting == [("building, 10 %", False), ("attaching", False)]
    for step in ("req-5f3ac at 10:12:01Z", "req-0be12 at 10:13:07Z", "7d1e-44c0 at 10:14:44Z"):
        bench.run(Pending(f"is being made ({step})", 5.0))
    assert len(bench.waiting) == 3


def test_who_has_no_word_for_a_wait_is_told_that_it_takes_long(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog, with_words=False)
    began = bench.clock.monotonic()
    while bench.clock.monotonic() - began < 1000:
        bench.run(Pending("is being made", 5.0))
    assert [str(error) for error in bench.failed] == ["is being made"]


def test_a_wait_without_end_is_a_warning_every_15_minutes(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    began = bench.clock.monotonic()
    while bench.clock.monotonic() - began < 3700:
        bench.run(Pending("still building", 5.0))
    assert bench.waiting == [("still building", False), *[("still building", True)] * 4]
    levels = {record.levelname for record in caplog.records}
    assert levels == {"INFO", "WARNING"}
    assert len(caplog.records) < 15


@pytest.mark.row("P10")
def test_a_long_wait_costs_few_questions_and_no_tenth_of_its_time(bench: Bench) -> None:
    began = bench.clock.monotonic()
    runs = 0
    while bench.clock.monotonic() - began < 3600:
        bench.run(Pending("still building", 1.0))
        runs += 1
    assert runs < 130, "of 3600 that it asked for"
    assert bench.run(DONE) == 60.0
    bench.queue.add("web")
    bench.run(Pending("x", 1.0))
    assert bench.run(Pending("x", 1.0)) == 1.0, "another wait begins at the beginning"
    assert bench.run(Pending("x", 90.0)) == 1.0
    assert bench.run(DONE) == 90.0, "what the provider asks for is kept"


@pytest.mark.row("P10")
def test_a_failure_ends_the_wait_and_is_told_as_one(bench: Bench) -> None:
    bench.run(Pending("still building"))
    bench.run(CloudProviderError("the build failed"))
    bench.run(DONE)
    assert bench.told() == [
        "service: web waits for the cloud (answer 1), asking again in 5 s: Pending: still building",
        "service: web failed (attempt 1), retrying in 1 s: CloudProviderError: the build failed",
    ]
    assert [str(error) for error in bench.failed] == ["the build failed"]


def test_many_that_wait_are_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        bench = Bench(caplog)
        for number in range(500):
            bench.queue.add(f"web-{number}")
        for _ in range(501):
            bench.run(Pending("still building", 30.0))
        for _ in range(501):
            bench.run(DONE)
    lines = bench.told()
    assert len(lines) < 5
    assert lines[-1].startswith("service: the cloud was done after 30 s: Pending, 501 answers for 501 services")
