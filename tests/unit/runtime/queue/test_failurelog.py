"""Repeated failures in few lines: what is told, when, and with which counts."""

import logging
from collections.abc import Iterator

import pytest

from controllers.runtime.queue import seconds_text
from controllers.runtime.queue.failurelog import FailureLog
from tests.support.clock import FakeClock

log = logging.getLogger("controllers.test")


class Bench:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.clock = FakeClock()
        self.failures: FailureLog[str] = FailureLog("Nodes", log, clock=self.clock, noun="node")
        self._caplog = caplog

    def fail(
        self, key: str, text: str = "the cloud is down", error: Exception | None = None, stack: bool = False
    ) -> None:
        self.failures.failed(key, "retrying in 1 s", error or OSError(text), text, stack=stack)

    def told(self, level: int = logging.INFO) -> list[str]:
        lines = [record.getMessage() for record in self._caplog.records if record.levelno >= level]
        self._caplog.clear()
        return lines


@pytest.fixture
def bench(caplog: pytest.LogCaptureFixture) -> Iterator[Bench]:
    with caplog.at_level(logging.INFO, "controllers.test"):
        yield Bench(caplog)


@pytest.mark.row("K16")
def test_of_one_key_the_attempts_1_2_4_8_are_told_and_the_end(bench: Bench) -> None:
    for _ in range(20):
        bench.fail("a")
        bench.clock.advance(1.0)
    attempts = [line.partition("(attempt ")[2].partition(")")[0] for line in bench.told()]
    assert attempts == ["1", "2", "4", "8", "16"]
    bench.failures.succeeded("a")
    assert bench.told() == ["Nodes: over after 20 s: OSError, 20 failures of node a; the last one succeeded"]


def test_the_first_line_names_key_attempt_delay_and_cause_and_has_the_stack_and_fields_for_json(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.fail("a", stack=True)
    fields = vars(caplog.records[0])
    assert (fields["node"], fields["attempt"], fields["error"]) == ("a", 1, "OSError: the cloud is down")
    assert caplog.records[0].exc_info
    assert bench.told() == ["Nodes: a failed (attempt 1), retrying in 1 s: OSError: the cloud is down"]


@pytest.mark.row("K16")
def test_a_thousand_keys_are_a_few_lines_with_counts(bench: Bench) -> None:
    for _ in range(60):
        for number in range(1000):
            bench.fail(f"node-{number:04d}", f"no answer about node-{number:04d} (request 77{number})")
        bench.clock.advance(1.0)
    lines = bench.told()
    assert 3 <= len(lines) <= 10
    assert "failures of 1000 nodes" in lines[-1]
    for number in range(1000):
        bench.failures.succeeded(f"node-{number:04d}")
    assert bench.told() == ["Nodes: over after 60 s: OSError, 60000 failures of 1000 nodes; the last one succeeded"]


@pytest.mark.row("K16")
def test_another_kind_of_failure_is_told_at_once_and_texts_that_all_differ_do_not_make_kinds_without_end(
    bench: Bench,
) -> None:
    bench.fail("a")
    bench.fail("b")
    bench.told()
    bench.fail("c", "quota exceeded")
    assert len(bench.told()) == 1
    for number in range(676):
        bench.fail("a", chr(97 + number // 26) + chr(97 + number % 26) + "x")
    assert len(bench.told()) < 30


@pytest.mark.row("K16")
def test_a_key_that_comes_and_goes_is_not_told_each_time(bench: Bench) -> None:
    for _ in range(100):
        bench.fail("a")
        bench.failures.succeeded("a")
        bench.clock.advance(0.1)
    assert len(bench.told()) <= 5


@pytest.mark.row("K16")
def test_what_is_not_told_is_there_for_those_who_debug(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "controllers.test"):
        for key in "abcdef":
            bench.fail(key)
    assert len(bench.told(logging.DEBUG)) == 6


@pytest.mark.row("K16")
def test_one_that_fails_for_ever_keeps_no_names_of_those_that_recovered(bench: Bench) -> None:
    """Nodes come and go, and one of them never gets well: names are kept for a while, counts for
    good."""
    bench.fail("node-for-ever")
    bench.fail("node-too")
    for number in range(20_000):
        bench.fail(f"node-{number}")
        bench.failures.succeeded(f"node-{number}")
    [kind] = bench.failures._kinds.values()
    assert len(kind.ever) <= 1002
    bench.clock.advance(5.0)
    for _ in range(2):
        bench.told()
        bench.fail("node-for-ever")
        bench.fail("node-too")
        bench.clock.advance(5.0)
    bench.failures.succeeded("node-for-ever")
    bench.failures.succeeded("node-too")
    assert bench.told()[-1] == "Nodes: over after 15 s: OSError, 20006 failures of 20002 nodes; the last one succeeded"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0027, "0.003 s"), (1.0, "1 s"), (1.25, "1.2 s"), (58.3, "58 s"), (3600.0, "3600 s"), (0.0, "0 s")],
)
def test_times_for_people(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text
