"""Tables of the figures, and the page under docs/ that keeps them.

Each scenario has a block of the page between two comments; a block is replaced as a whole and
nothing else of the page is touched. A block that is not there yet is added at the end.
"""

from __future__ import annotations

import os
import platform
import re
import statistics
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.lab.bench.scenario import Figure, Goal, Outcome, Scenario

WIDTH = 100


def block(scenario: Scenario, outcomes: Sequence[Outcome], load: float) -> str:
    """One scenario's heading, table, and how it was measured."""
    repetitions = max((len(one.runs) for one in outcomes), default=0)
    once = "; ".join(one.contender.name for one in outcomes if one.contender.once)
    runs = f"minimum / median of {repetitions}" if repetitions > 1 else "one run each"
    lines = [
        f"### {scenario.title}",
        "",
        *textwrap.wrap(
            f"{time.strftime('%Y-%m-%d')}, {machine()}, load {load:.1f} before; {runs}"
            + (f" (once: {once})." if once and repetitions > 1 else "."),
            WIDTH,
        ),
        "",
        table(scenario.figures, outcomes),
    ]
    return "\n".join([*lines, "", *textwrap.wrap(scenario.method, WIDTH)])


def verdicts(scenario: Scenario, outcomes: Sequence[Outcome]) -> list[str]:
    """Its goals, and whether each was reached: for who measures, not for the page."""
    return [sentence(goal, scenario.figures, outcomes) for goal in scenario.goals]


def table(figures: Sequence[Figure], outcomes: Sequence[Outcome]) -> str:
    """Contenders by figures, in Markdown: minimum / median where there are several runs."""
    rows = [["contender", *(figure.heading for figure in figures)]]
    for one in outcomes:
        cells = [_cell(figure, _values(one, figure.key)) for figure in figures]
        if one.failure:
            cells[0] = one.failure if not one.runs else f"{cells[0]}, then {one.failure}"
        rows.append([one.contender.name, *cells])
    written = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([written[0], "|---" * len(rows[0]) + "|", *written[1:]])


def sentence(goal: Goal, figures: Sequence[Figure], outcomes: Sequence[Outcome]) -> str:
    """A goal, and whether it was reached, by the median."""
    figure = next(figure for figure in figures if figure.key == goal.figure)
    values, others = _of(goal.contender, goal.figure, outcomes), _of(goal.of, goal.figure, outcomes)
    most = f"{goal.at_most:g}"
    if goal.of:
        most = f"{most} times that of {goal.of}" if goal.at_most != 1 else f"that of {goal.of}"
    text = f"Goal for {goal.contender}: {figure.heading} <= {most}: "
    if not values or (goal.of and not others):
        return text + "not measured"
    found = [f(values) / (f(others) if goal.of else 1) for f in (min, statistics.median)]
    shown = " / ".join(f"{value:.{2 if goal.of else figure.digits}f}" for value in dict.fromkeys(found))
    return f"{text}{'reached' if found[-1] <= goal.at_most else 'missed'} ({shown})"


def lines_with_time() -> Callable[[str], None]:
    """A function that prints a line, with the minutes and seconds since now."""
    began = time.monotonic()

    def say(text: str) -> None:
        passed = int(time.monotonic() - began)
        print(f"[{passed // 60:3}:{passed % 60:02}] {text}", flush=True)

    return say


def machine() -> str:
    """What the figures were taken on."""
    return (
        f"{os.cpu_count()} cores ({platform.machine()}) shared by everything, Python {platform.python_version()}, "
        f"{platform.system()} {platform.release()}"
    )


def keep(page: Path, name: str, text: str, *, command: str = "make bench") -> None:
    """Put the block that `command` makes under this name on the page."""
    begin, end = f"<!-- {command}: {name} -->", f"<!-- end of {name} -->"
    framed = f"{begin}\n{text}\n{end}"
    old = page.read_text() if page.exists() else "# Benchmarks\n"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.S)
    new = pattern.sub(lambda _: framed, old) if pattern.search(old) else f"{old.rstrip()}\n\n{framed}\n"
    page.write_text(new)


def as_json(outcomes: Mapping[str, Sequence[Outcome]]) -> dict[str, object]:
    """All figures, unrounded, by scenario and contender."""
    return {
        name: {one.contender.name: {"runs": [dict(run) for run in one.runs], "failure": one.failure} for one in found}
        for name, found in outcomes.items()
    }


def _values(outcome: Outcome, key: str) -> list[float]:
    return [run[key] for run in outcome.runs if key in run]


def _of(name: str, key: str, outcomes: Sequence[Outcome]) -> list[float]:
    return [value for one in outcomes if one.contender.name == name for value in _values(one, key)]


def _cell(figure: Figure, values: Sequence[float]) -> str:
    if not values:
        return ""
    both = [f"{value:,.{figure.digits}f}" for value in (min(values), statistics.median(values))]
    return both[0] if len(values) == 1 or (figure.digits == 0 and both[0] == both[1]) else " / ".join(both)
