"""Running a row's contenders, its table, its goals, and the page that keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.contenders import Contender, beside_go
from tests.bench.report import block, keep, sentence, table
from tests.bench.scenario import Figure, Figures, Goal, Outcome, Scenario, alone, run
from tests.bench.trial import Unfinished

OURS, SLOW, BROKEN = Contender("ours", "ours"), Contender("slow", "go", once=True), Contender("broken", "go")
TIME, CALLS = Figure("time", "time, s"), Figure("calls", "calls", 0)


def _outcome(contender: Contender, *values: float, failure: str = "") -> Outcome:
    return Outcome(contender, tuple({"time": value} for value in values), failure)


def test_contenders_alternate_and_what_failed_or_is_slow_is_not_run_again() -> None:
    order: list[str] = []

    def measure(contender: Contender) -> Figures:
        order.append(contender.name)
        if contender is BROKEN:
            raise Unfinished("> 5 s")
        return {"time": float(len(order))}

    told: list[str] = []
    scenario = Scenario("row", "Row", "", (TIME,), (OURS, SLOW, BROKEN), alone(measure))
    ours, slow, broken = run(scenario, scenario.contenders, 3, told.append)
    assert order == ["ours", "slow", "broken", "ours", "ours"]
    assert [figures["time"] for figures in ours.runs] == [1, 4, 5]
    assert len(slow.runs) == 1
    assert (broken.runs, broken.failure) == ((), "> 5 s")
    assert any("broken" in line and "> 5 s" in line for line in told)


def test_a_table_has_minimum_and_median_and_says_who_failed() -> None:
    outcomes = [
        Outcome(OURS, ({"time": 3.0, "calls": 7}, {"time": 1.0, "calls": 7}, {"time": 2.0, "calls": 7})),
        _outcome(SLOW, 20.0),
        _outcome(BROKEN, failure="> 5 s"),
    ]
    assert table((TIME, CALLS), outcomes).splitlines() == [
        "| contender | time, s | calls |",
        "|---|---|---|",
        "| ours | 1.00 / 2.00 | 7 |",
        "| slow | 20.00 |  |",
        "| broken | > 5 s |  |",
    ]


@pytest.mark.parametrize(
    ("values", "at_most", "verdict"),
    [
        ((1.0, 2.0, 3.0), 2.0, "reached (1.00 / 2.00)"),
        ((1.0, 2.0, 3.0), 1.5, "reached by the minimum only (1.00 / 2.00)"),
        ((1.0, 2.0, 3.0), 0.5, "missed (1.00 / 2.00)"),
        ((), 0.5, "not measured"),
    ],
)
def test_a_goal_is_judged_by_minimum_and_median(values: tuple[float, ...], at_most: float, verdict: str) -> None:
    said = sentence(Goal("ours", "time", at_most), (TIME,), [_outcome(OURS, *values)])
    assert said == f"Goal for ours: time, s <= {at_most:g}: {verdict}"


def test_a_goal_may_be_a_ratio_to_another_contender() -> None:
    outcomes = [_outcome(OURS, 3.0, 3.0), _outcome(BROKEN, 2.0, 4.0)]
    said = sentence(Goal("ours", "time", 1.25, of="broken"), (TIME,), outcomes)
    assert said.endswith("<= 1.25 times that of broken: reached by the median only (1.50 / 1.00)")


def test_a_block_is_replaced_alone_and_the_rest_of_the_page_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Benchmarks\n\nProse.\n")
    keep(page, "one", "first \\1")
    keep(page, "two", "second")
    keep(page, "one", "again")
    assert page.read_text() == (
        "# Benchmarks\n\nProse.\n\n<!-- make bench: one -->\nagain\n<!-- end of one -->\n\n"
        "<!-- make bench: two -->\nsecond\n<!-- end of two -->\n"
    )


def test_a_block_says_where_how_often_and_how_it_was_measured() -> None:
    scenario = Scenario(
        "row", "A row", "Method.", (TIME,), (OURS, SLOW), alone(lambda _: {}), (Goal("ours", "time", 1),)
    )
    text = block(scenario, [_outcome(OURS, 1.0, 2.0), _outcome(SLOW, 9.0)], 0.5)
    assert text.startswith("### A row\n")
    assert "load 0.5 before; minimum / median of 2 (once: slow)." in text
    assert "Goal for ours: time, s <= 1: reached by the minimum only" in text
    assert text.endswith("\nMethod.")


def test_beside_go_measures_the_default_flags_once() -> None:
    ours, uncapped, default = beside_go("ours", "service", 50, flags=("--x",))
    assert (ours.kind, ours.flags, ours.once) == ("ours", ("--x",), False)
    assert not uncapped.once
    assert "--kube-api-qps=100000" in uncapped.flags
    assert (default.flags, default.once) == (("--x",), True)
    assert {one.latency_ms for one in (ours, uncapped, default)} == {50}
