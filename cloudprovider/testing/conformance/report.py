"""The report of a conformance run: which scenarios passed, were skipped and why, and failed. Pure,
but for `write`.

Results come from the pytest plugin (`plugin.py`), one for each scenario and provider; out go a JSON
document for machines and a Markdown page for people. A scenario that the run left out counts as
"not run".
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from attrs import asdict, frozen

from cloudprovider.testing.conformance.registry import FAMILIES, SCENARIOS

Outcome = Literal["passed", "failed", "skipped", "not run"]
_SCHEMA = 1


@frozen
class ProviderFacts:
    """Whom a report is about."""

    name: str
    distribution: str = ""
    """ "name version" of the installed distribution; "" where none offers the name."""
    cls: str = ""
    """The provider's class, "module.name"."""
    features: tuple[str, ...] = ()


@frozen
class Result:
    """How one scenario ended. `reason` is why it was skipped, or what failed; `seconds` is how long
    it took."""

    id: str
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0


def as_json(
    provider: ProviderFacts,
    results: Mapping[str, Result],
    *,
    sdk: str,
    finished: str,
    left_behind: Sequence[str] = (),
    levels: Iterable[str] = ("provider",),
) -> dict[str, Any]:
    """The whole report as JSON values. `finished` is a time in ISO 8601; `levels` those that the
    run had classes of."""
    # A run without end-to-end classes has not "not run" those: it never meant to.
    chosen = [scenario for scenario in SCENARIOS.values() if scenario.level in set(levels) or scenario.id in results]
    scenarios = []
    for scenario in sorted(chosen, key=lambda one: one.order):
        result = results.get(scenario.id, Result(scenario.id, "not run"))
        row = {"id": scenario.id, "level": scenario.level, "title": scenario.title}
        scenarios.append({**row, **{key: value for key, value in asdict(result).items() if key != "id"}})
    counts = {name: sum(one["outcome"] == name for one in scenarios) for name in get_args(Outcome)}
    return {
        "schema": _SCHEMA,
        "provider": {"name": provider.name, "distribution": provider.distribution, "class": provider.cls},
        "sdk": sdk,
        "python": platform.python_version(),
        "finished": finished,
        "features": list(provider.features),
        "summary": counts,
        "scenarios": scenarios,
        "left_behind": list(left_behind),
    }


def summary_line(report: Mapping[str, Any]) -> str:
    """One line for the terminal."""
    counts = ", ".join(f"{number} {name}" for name, number in report["summary"].items() if number)
    return f"{report['provider']['name']}: {counts or 'no scenario'}"


def as_markdown(report: Mapping[str, Any]) -> str:
    """The report for people, from the JSON values."""
    provider = report["provider"]
    lines = [
        f"# Conformance of {provider['name']}",
        "",
        f"{summary_line(report)}.",
        "",
        "| | |",
        "|---|---|",
        f"| Provider | {provider['distribution'] or 'not installed as a distribution'}, `{provider['class']}` |",
        f"| SDK | {report['sdk']} |",
        f"| Python | {report['python']} |",
        f"| Finished | {report['finished']} |",
        f"| Features | {', '.join(report['features']) or 'none'} |",
    ]
    for letter, family in FAMILIES.items():
        rows = [one for one in report["scenarios"] if one["id"].startswith(letter)]
        if rows:
            lines += ["", f"## {family}", "", "| | Scenario | Result |", "|---|---|---|"]
            lines += [f"| {one['id']} | {_cell(one['title'])} | {_result(one)} |" for one in rows]
    if report["left_behind"]:
        lines += ["", "## Left behind in the cloud", "", *(f"- {_cell(one)}" for one in report["left_behind"])]
    return "\n".join([*lines, ""])


def write(folder: Path, report: Mapping[str, Any]) -> list[Path]:
    """Write `conformance-NAME.json` and `.md` into the folder, which is made where it is missing;
    their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / f"conformance-{report['provider']['name']}"
    files = {
        base.with_name(f"{base.name}.json"): json.dumps(report, indent=2) + "\n",
        base.with_name(f"{base.name}.md"): as_markdown(report),
    }
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return list(files)


def _result(one: Mapping[str, Any]) -> str:
    outcome: str = one["outcome"]
    shown = f"**{outcome}**" if outcome == "failed" else outcome
    return f"{shown}: {_cell(one['reason'])}" if one["reason"] else shown


def _cell(text: str) -> str:
    """Text that does not break a table."""
    return " ".join(text.split()).replace("|", "\\|")
