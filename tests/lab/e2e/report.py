"""From the suite's JUnit file to a table of the page. Pure, but for reading the file.

The file lists every test that the suite has. Those that were not chosen are "skipped" without a
reason, and are left out.
"""

from __future__ import annotations

import re
import textwrap
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from attrs import frozen

from tests.lab.bench.report import machine
from tests.lab.e2e.specs import SpecSet

Outcome = Literal["passed", "failed", "skipped"]
REASON_LENGTH = 300
_TAG = re.compile(r"\s*\[[^\]]*\]")
_NOT_CHOSEN = "skipped"


@frozen
class Result:
    """What became of one test."""

    name: str
    """With all its tags, as the suite prints it."""
    outcome: Outcome
    seconds: float
    reason: str = ""
    """Why it failed or was skipped: the first lines of the suite's own message."""

    @property
    def title(self) -> str:
        """The name without tags."""
        return _TAG.sub("", self.name).strip()


def read(report: Path) -> list[Result]:
    """The tests that were chosen, by name. Raises ET.ParseError for what is no XML, ValueError for
    a status that is unknown."""
    results = []
    for case in ET.parse(report).getroot().iter("testcase"):
        kind, _, name = case.get("name", "").partition(" ")
        if kind != "[It]":  # what comes before and after the tests
            if _reason(case) and case.get("status") not in ("passed", "skipped"):
                results.append(Result(case.get("name", ""), "failed", _seconds(case), _reason(case)))
            continue
        skipped = case.find("skipped")
        if skipped is not None and skipped.get("message") in (_NOT_CHOSEN, "pending"):
            continue
        results.append(Result(name, _outcome(case), _seconds(case), _reason(case)))
    return sorted(results, key=lambda result: result.name)


def unexpected(results: Sequence[Result], cannot_pass: Mapping[str, str]) -> list[str]:
    """What must fail `make e2e`: a test that failed or was skipped without a known reason, and one
    that passed although it has one."""
    problems = []
    for result in results:
        known = _known(result, cannot_pass)
        if result.outcome == "passed" and known:
            problems.append(f"passed, but is listed as one that cannot pass: {result.title}")
        if result.outcome != "passed" and not known:
            problems.append(f"{result.outcome}: {result.title}: {result.reason}")
    return problems


def block(chosen: SpecSet, results: Sequence[Result], cannot_pass: Mapping[str, str], version: str) -> str:
    """One set's heading, how it was run, and its table, in Markdown."""
    passed = sum(result.outcome == "passed" for result in results)
    took = sum(result.seconds for result in results)
    told = (
        f"{passed} of {len(results)} passed on {time.strftime('%Y-%m-%d')}, Kubernetes {version}, {machine()}. "
        f"{took / 60:.0f} minutes, one test after the other."
    )
    lines = [f"## {chosen.title}", "", *textwrap.wrap(told, 100), "", "| test | result | seconds | reason |"]
    lines.append("|---|---|---|---|")
    for result in results:
        reason = "" if result.outcome == "passed" else _known(result, cannot_pass) or result.reason
        cells = [result.title, result.outcome, f"{result.seconds:.0f}", reason]
        lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    return "\n".join(lines)


def _known(result: Result, cannot_pass: Mapping[str, str]) -> str:
    return next((reason for part, reason in cannot_pass.items() if part in result.name), "")


def _outcome(case: ET.Element) -> Outcome:
    status = case.get("status", "")
    if status in ("passed", "skipped"):
        return "passed" if status == "passed" else "skipped"
    if status in ("failed", "panicked", "timedout", "interrupted", "aborted"):
        return "failed"
    raise ValueError(f"{case.get('name')}: unknown status {status!r}")


def _seconds(case: ET.Element) -> float:
    return float(case.get("time", "0"))


def _reason(case: ET.Element) -> str:
    for kind in ("failure", "error"):
        found = case.find(kind)
        if found is not None:
            return _first(found.text or found.get("message") or "")
    skipped = case.find("skipped")
    return _first(skipped.get("message", "").removeprefix("skipped - ")) if skipped is not None else ""


def _first(text: str) -> str:
    """The message up to where it names the line of the suite."""
    lines = [line.strip() for line in text.strip().splitlines()]
    told = " ".join(line for line in lines[: _end(lines)] if line)
    return textwrap.shorten(told, REASON_LENGTH, placeholder=" ...")


def _end(lines: Sequence[str]) -> int:
    return next((number for number, line in enumerate(lines) if line.startswith(("In [", "There were"))), len(lines))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
