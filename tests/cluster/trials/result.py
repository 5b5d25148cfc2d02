"""The result of a trial, and its block of docs/reference/real-cluster-trials.md. Pure."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Sequence

from attrs import define, field

from tests.bench.report import machine

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

    def __str__(self) -> str:
        lines = ["passed" if not self.problems else "FAILED"]
        lines += [f"  {what}: {value}" for what, value in self.figures]
        return "\n".join([*lines, *(f"  problem: {problem}" for problem in self.problems)])


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
