"""What a run says of its goals, and that each goal is about what its row measures."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.lab.bench.__main__ import SCENARIOS
from tests.lab.bench.contenders import Contender
from tests.lab.bench.report import block, sentence, table, verdicts
from tests.lab.bench.scenario import Figure, Goal, Outcome, Scenario, alone

TOOK = Figure("took", "done, s")
TIMES_GO = Goal("ours", "took", 0.8, of="Go")


def outcome(name: str, *took: float, once: bool = False) -> Outcome:
    return Outcome(Contender(name, "ours", once=once), tuple({"took": value} for value in took))


def said(goal: Goal, *outcomes: Outcome) -> str:
    return sentence(goal, [TOOK], outcomes).rpartition(": ")[2]


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ([7.8], "reached (0.78)"),
        ([9.2], "missed (0.92)"),
        ([7.0, 8.0, 9.0], "reached (0.70 / 0.80)"),
        ([7.0, 9.2, 9.3], "missed (0.70 / 0.92)"),
        ([5.0, 5.0, 20.0], "reached (0.50)"),
    ],
)
def test_the_median_alone_decides_and_the_minimum_is_shown(ours: Sequence[float], verdict: str) -> None:
    assert said(TIMES_GO, outcome("ours", *ours), outcome("Go", 10.0, 10.0, 10.0)) == verdict


def test_medians_are_compared_and_minimums() -> None:
    slow_once, go = outcome("ours", 8.1, 8.1, 8.1), outcome("Go", 9.0, 11.0, 30.0)
    assert said(TIMES_GO, slow_once, go) == "reached (0.90 / 0.74)", "the minimum alone would have missed"


def test_a_goal_beside_nobody_has_the_digits_of_its_column() -> None:
    goal = Goal("ours", "took", 120)
    assert sentence(goal, [Figure("took", "memory, MB", 0)], [outcome("ours", 106.4)]) == (
        "Goal for ours: memory, MB <= 120: reached (106)"
    )
    assert said(goal, outcome("ours", 100.0, 126.0, 130.0)) == "missed (100.00 / 126.00)"


def test_what_is_compared_must_be_there() -> None:
    assert said(TIMES_GO, outcome("ours", 7.0), outcome("Go")) == "not measured"
    assert said(TIMES_GO, outcome("Go", 7.0)) == "not measured"


def test_a_figure_that_a_contender_has_not_is_an_empty_cell() -> None:
    both = [TOOK, Figure("cpu", "CPU, s")]
    rows = table(both, [outcome("ours", 2.0, 1.0, 4.0)]).splitlines()
    assert rows[0] == "| contender | done, s | CPU, s |"
    assert rows[-1] == "| ours | 1.00 / 2.00 |  |"


def test_the_block_says_how_often_was_measured_and_goals_stand_apart() -> None:
    scenario = Scenario("row", "A row", "How.", (TOOK,), (), alone(lambda _: {}), (TIMES_GO,))
    outcomes = [outcome("ours", 1, 2, 3), outcome("Go", 9, once=True)]
    many = " ".join(block(scenario, outcomes, 0.5).split())
    assert "minimum / median of 3 (once: Go)." in many
    assert "oal" not in many
    assert verdicts(scenario, outcomes) == ["Goal for ours: done, s <= 0.8 times that of Go: reached (0.11 / 0.22)"]
    assert "one run each." in " ".join(block(scenario, [outcome("ours", 1), outcome("Go", 9)], 0.5).split())


@pytest.mark.parametrize("name", SCENARIOS)
def test_goals_are_about_figures_and_contenders_of_their_row(name: str) -> None:
    scenario = SCENARIOS[name](1.0)
    assert scenario.name == name
    contenders = {one.name for one in scenario.contenders}
    for goal in scenario.goals:
        assert goal.figure in {figure.key for figure in scenario.figures}, goal
        assert {goal.contender, goal.of} <= contenders | {""}, goal
