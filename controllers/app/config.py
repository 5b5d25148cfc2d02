"""From argv to checked options: the table of flags of one run, and everything that is wrong with what was given.

Stage: before the first one, no I/O. Data comes from argv and from the classes of options of the manager and of the
catalog; it goes to `cli.py`, which prints the problems and ends with 2, or hands the options to the manager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from controllers.app import goflags
from controllers.app.entry import ControllerEntry, problems_of
from controllers.app.goflags import Parsed
from controllers.app.ignored import IGNORED
from controllers.app.options import SECTIONS, ManagerOptions, Options
from controllers.app.unsupported import unsupported_flags
from controllers.cloudcalls.options import CloudCallOptions
from controllers.options import BOOL, VERSION, Flag, fill, flags_of, one_of


@attrs.frozen
class Outcome:
    """What became of argv. With any problem `options` is None; the problems of all flags are listed."""

    options: Options | None
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    help: bool
    """-h was given; then nothing else counts."""
    version: str
    """"true" or "raw" when the version was asked for, else "false"."""
    cloud_provider: str
    """The name asked for, also when there are problems."""


def option_classes(catalog: Sequence[ControllerEntry]) -> list[type[Any]]:
    """The classes of options besides the manager's own, each once."""
    return list(dict.fromkeys([CloudCallOptions, *(kind for entry in catalog for kind in entry.options)]))


def table(catalog: Sequence[ControllerEntry], default_provider: str | None = None) -> list[Flag[Any]]:
    """Every flag that is taken, each once: the manager's and those of all controllers in the catalog.

    Raises ValueError where two classes declare one flag in different ways: a mistake of the program.
    """
    rows: dict[str, Flag[Any]] = {}
    kinds: list[type[Any]] = [ManagerOptions, *option_classes(catalog)]
    for kind in kinds:
        for row in flags_of(kind):
            if rows.setdefault(row.name, row) != row:
                raise ValueError(f"{kind.__name__} declares --{row.name}, which another class declares differently")
    known = ", ".join(entry.name for entry in catalog)
    off = ", ".join(entry.name for entry in catalog if not entry.on_by_default) or "none"
    changed = []
    for row in rows.values():
        if row.name == "cloud-provider" and default_provider:
            row = attrs.evolve(row, default=default_provider)
        elif row.name == "controllers":
            row = attrs.evolve(row, help=f"{row.help} All: {known}. Off by default: {off}.")
        changed.append(row)
    check = one_of("true", "false", "raw")
    changed.append(Flag("version", VERSION, "false", "global", "Print the version and stop.", check))
    changed += [ignored.flag for ignored in IGNORED]
    changed.append(Flag("help", BOOL, False, "global", "Print this text and stop.", shorthand="h"))
    return changed


def by_section(rows: Sequence[Flag[Any]]) -> dict[str, list[Flag[Any]]]:
    """The flags by their named set, in the order of --help: Go's sets, the controllers' own, then the rest."""
    last = SECTIONS[-3:]  # misc, global, without effect
    order = [*SECTIONS[:-3], *(row.section for row in rows if row.section not in last), *last]
    return {name: [row for row in rows if row.section == name] for name in order}


def parse(argv: Sequence[str], catalog: Sequence[ControllerEntry], default_provider: str | None = None) -> Outcome:
    """Turn argv into options, or into the list of all that is wrong with it. Pure; never raises for bad input."""
    parsed = goflags.parse([*table(catalog, default_provider), *unsupported_flags()], argv)
    values = parsed.values
    problems = (*parsed.problems, *_across(parsed, catalog))
    options: Options | None = None
    if not problems:
        own = {kind: fill(kind, values) for kind in option_classes(catalog)}
        options = Options(fill(ManagerOptions, values), own)
    return Outcome(
        options=options,
        problems=problems,
        warnings=parsed.warnings,
        help=values["help"],
        version=values["version"],
        cloud_provider=values["cloud-provider"],
    )


def _across(parsed: Parsed, catalog: Sequence[ControllerEntry]) -> list[str]:
    """Problems that no single flag shows; a flag that is ill by itself is not complained about twice."""
    values, ill = parsed.values, parsed.failed
    problems = []
    if not values["cloud-provider"] and "cloud-provider" not in ill:
        problems.append("--cloud-provider: must be given: the name of an installed provider")
    if values["leader-elect"] and "leader-elect" not in ill:
        problems.append(
            "--leader-elect: leader election does not exist in this version: give --leader-elect=false, and run one "
            "replica only"
        )
    for rate, burst in (("kube-api-qps", "kube-api-burst"), ("cloud-api-qps", "cloud-api-burst")):
        if values[burst] and not values[rate] and rate not in ill:
            problems.append(f"--{burst}={values[burst]}: has no effect without --{rate}")
    if "controllers" not in ill:
        problems += [f"--controllers: {line}" for line in problems_of(values["controllers"], catalog)]
    return problems
