"""The result of a trial, and its block of a page such as docs/reports/real-cluster-trials.md."""

from __future__ import annotations

import os
import textwrap
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from attrs import define, field

from tests.lab.bench.report import keep, machine
from tests.support.sampling import Life, slope

WIDTH = 100


@define
class Result:
    """What a trial found. It passed when it has no problems."""

    figures: list[tuple[str, str]] = field(factory=list)
    """What was measured, and the value with its unit."""
    problems: list[str] = field(factory=list)
    """What should not have happened, a sentence each."""

    def add(self, what: str, value: object) -> None:
        """Note a figure; a float is taken as seconds."""
        self.figures.append((what, f"{value:.1f} s" if isinstance(value, float) else str(value)))

    def check(self, held: bool, problem: str) -> None:
        """Note a problem unless `held`."""
        if not held:
            self.problems.append(problem)

    def check_growth(
        self, life: Life, first: int, allowed: Mapping[str, float], who: str = "", since: str = ""
    ) -> None:
        """Note by how much each of these grew from that sample on, and a problem if it was more
        than is allowed."""
        for what, most in allowed.items():
            values = life.values(what)[first:]
            try:
                grown = slope(life.at[first:], values)
            except ValueError as few:
                self.problems.append(f"{who}{what}: {few}")
                continue
            flat = grown.is_flat(most)
            shown = f"{values[0]:.0f} to {values[-1]:.0f}, line {grown}"
            self.add(f"{who}{what}{since}", f"{shown}, {'flat' if flat else 'grows'}")
            self.check(flat, f"{who}{what} grew by {grown}, more than {most:g}")


def judged(
    run: Callable[[], Result],
    name: str,
    title: str,
    method: str,
    *,
    command: str,
    page: Path | None,
    fails: type[Exception] = AssertionError,
) -> Result:
    """Run a trial, print its block, and put it on the page, if there is one. An exception of the
    kind `fails` is a problem of the trial."""
    load, begun = os.getloadavg()[0], time.monotonic()
    try:
        result = run()
    except fails as problem:
        traceback.print_exc()
        result = Result(problems=[f"{type(problem).__name__}: {problem}"])
    text = block(title, method, result, seconds=time.monotonic() - begun, load=load)
    print(text, flush=True)
    if page is not None:
        keep(page, name, text, command=command)
    return result


def block(title: str, method: str, result: Result, *, seconds: float, load: float) -> str:
    """One trial's heading, how it was done, its verdict and its table, in Markdown."""
    verdict = "Passed" if not result.problems else "Failed"
    told = f"{verdict} on {time.strftime('%Y-%m-%d')} in {seconds:.0f} s. {machine()}, load {load:.1f} before."
    lines = [f"## {title}", "", *textwrap.wrap(method, WIDTH), "", *textwrap.wrap(told, WIDTH)]
    lines += ["", *_list(result.problems)] if result.problems else []
    lines += ["", "| what | figure |", "|---|---|"]
    return "\n".join([*lines, *(f"| {_cell(what)} | {_cell(value)} |" for what, value in result.figures)])


def _list(problems: Sequence[str]) -> list[str]:
    return [line for one in problems for line in textwrap.wrap(one, WIDTH, initial_indent="- ", subsequent_indent="  ")]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
