"""From argv to checked options: the table of flags of one run, and everything that is wrong with
what was given. No I/O; `controllers/cli/main.py` prints the problems and ends with 2."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs

from cloudprovider.kinds import show_duration
from controllers.catalog import WEBHOOKS
from controllers.cloudcalls.options import CloudCallOptions
from controllers.endpoints.options import ServingOptions, pair_problem
from controllers.flags import syntax
from controllers.flags.ignored import IGNORED, REMOVED
from controllers.flags.syntax import Parsed
from controllers.options import BOOL, VERSION, one_of
from controllers.options.declare import Flag, fill, flags_of
from controllers.options.kinds import display
from controllers.registration.entry import (
    ControllerEntry,
    contradictions,
    misspelt,
    named_twice,
    off_by_flags,
    problems_of,
)
from controllers.registration.options import SECTIONS, ManagerOptions, Options
from controllers.webhooks.options import WebhookOptions
from controllers.webhooks.webhook import WebhookEntry

_LOCK = "leases"
NO_PROVIDER = "--cloud-provider: must be given: the name of an installed provider"
"""The problem of a missing --cloud-provider; `controllers/cli/main.py`, which may look, adds which
ones are installed."""


@attrs.frozen
class Outcome:
    """What became of argv. With any problem `options` is None; all problems are listed."""

    options: Options | None
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    values: Mapping[str, Any]
    """All flags by their names, for the checks that read files; wrong ones have their defaults."""
    flags: Sequence[Flag[Any]]
    """Every flag that is taken, as of `table`."""


def option_classes(
    catalog: Sequence[ControllerEntry],
    flags: Sequence[type[Any]] = (),
    webhooks: Sequence[WebhookEntry] = WEBHOOKS,
) -> list[type[Any]]:
    """The classes of options besides the manager's own, each once; `flags` are the program's."""
    controllers = [kind for entry in catalog for kind in entry.options]
    asked = [kind for one in webhooks for kind in one.options]
    return list(dict.fromkeys([CloudCallOptions, WebhookOptions, ServingOptions, *controllers, *asked, *flags]))


def table(
    catalog: Sequence[ControllerEntry],
    default_provider: str | None = None,
    flags: Sequence[type[Any]] = (),
    defaults: Mapping[str, str] | None = None,
    webhooks: Sequence[WebhookEntry] = WEBHOOKS,
) -> list[Flag[Any]]:
    """Every flag that is taken, each once: the manager's, all controllers', webhooks' and the
    program's.

    `flags` are the program's own options classes, `defaults` its defaults by the names of flags, as
    typed. Raises ValueError for mistakes of the program, all at once: a name or shorthand that is
    taken, a name that cannot be given, a section that is not the program's own, a default for no
    flag or of no good value, two controllers or webhooks of one name."""
    problems: list[str] = []
    rows: dict[str, Flag[Any]] = {}
    sections = {*SECTIONS, *(entry.name for entry in catalog)}
    fixed_rows = [
        Flag("version", VERSION, "false", "global", "Print the version and stop.", one_of("true", "false", "raw")),
        *(ignored.flag for ignored in IGNORED),
        Flag("help", BOOL, False, "global", "Print this text and stop.", shorthand="h"),
    ]
    fixed: dict[str, Flag[Any]] = {row.name: row for row in fixed_rows}
    shorts = {row.shorthand: row.name for row in fixed.values()}
    kinds: list[type[Any]] = [ManagerOptions, *option_classes(catalog, flags, webhooks)]
    for kind in kinds:
        for row in flags_of(kind):
            if row.name in rows or row.name in fixed:
                # Several controllers may take one flag, if they mean the same by it.
                if rows.get(row.name) != row:
                    problems.append(f"{kind.__name__} declares --{row.name}, which is declared differently elsewhere")
                continue
            rows[row.name] = row
            # Among Go's flags in --help it would pass for one of them.
            if kind in flags and row.section in sections:
                problems.append(f"{kind.__name__}: --{row.name} needs a section of its own, not {row.section!r}")
            if row.name != (right := row.name.replace("_", "-")):
                rule = "underscores of a command line are read as dashes"
                problems.append(f"{kind.__name__}: --{row.name} must be --{right}: {rule}")
            if row.shorthand and (taken := shorts.setdefault(row.shorthand, row.name)) != row.name:
                problems.append(f"{kind.__name__}: -{row.shorthand}, of --{row.name}, is the shorthand of --{taken}")
    for noun, entries in (("controllers", catalog), ("webhooks", webhooks)):
        problems.extend(
            f"two {noun} have the name {name}; to replace one of ours, leave it out of the catalog"
            for name in named_twice(entries)
        )
    given = dict(defaults or {})
    if default_provider and given.setdefault("cloud-provider", default_provider) != default_provider:
        problems.append("default_provider and the default of --cloud-provider contradict each other")
    for name, raw in given.items():
        # Told and not passed over: a default that is misspelt in main.py would be missed for
        # months.
        if name not in rows:
            problems.append(f"a default for --{name}: there is no such flag, or none that has an effect")
            continue
        try:
            # Read as typed, so that a default is checked as a flag's value is.
            rows[name] = attrs.evolve(rows[name], default=syntax.read(rows[name], raw))
        except ValueError as error:
            problems.append(f"a default for --{name}: {error}")
    if problems:
        raise ValueError("this program's flags are wrong: " + "; ".join(problems))
    for name, entries in (("controllers", catalog), ("webhooks", webhooks)):
        known = ", ".join(entry.name for entry in entries) or "none"
        off = ", ".join(entry.name for entry in entries if not entry.on_by_default) or "none"
        rows[name] = attrs.evolve(rows[name], help=f"{rows[name].help} All: {known}. Off by default: {off}.")
    return [*rows.values(), *fixed.values()]


def by_section(rows: Sequence[Flag[Any]]) -> dict[str, list[Flag[Any]]]:
    """The flags by their named set, in the order of --help: Go's sets, the controllers' own, then
    the rest."""
    last = SECTIONS[-3:]  # misc, global, without effect
    order = [*SECTIONS[:-3], *(row.section for row in rows if row.section not in last), *last]
    return {name: [row for row in rows if row.section == name] for name in order}


def parse(
    argv: Sequence[str],
    catalog: Sequence[ControllerEntry],
    default_provider: str | None = None,
    *,
    flags: Sequence[type[Any]] = (),
    defaults: Mapping[str, str] | None = None,
    webhooks: Sequence[WebhookEntry] = WEBHOOKS,
) -> Outcome:
    """Turn argv into options, or into the list of all that is wrong with it. Pure; never raises.

    The other arguments are the program's, as `table` takes them, and raise as it says."""
    rows = table(catalog, default_provider, flags, defaults, webhooks)
    parsed = syntax.parse(rows, argv, REMOVED)
    values = parsed.values
    problems = (*parsed.problems, *_across(parsed, catalog, webhooks))
    options: Options | None = None
    # Nothing starts on a part of its options: they are whole, or there are none.
    if not problems:
        own = {kind: fill(kind, values) for kind in option_classes(catalog, flags, webhooks)}
        options = Options(fill(ManagerOptions, values), own)
    return Outcome(
        options=options,
        problems=problems,
        warnings=(*parsed.warnings, *_without_effect(values, catalog, webhooks)),
        values=values,
        flags=rows,
    )


def _across(parsed: Parsed, catalog: Sequence[ControllerEntry], webhooks: Sequence[WebhookEntry]) -> list[str]:
    """Problems that no single flag shows; a flag that is wrong by itself is not named twice."""
    values, ill = parsed.values, parsed.failed
    problems = []
    if not values["cloud-provider"] and "cloud-provider" not in ill:
        problems.append(NO_PROVIDER)
    problems += _election_problems(values, ill)
    if values["cloud-api-burst"] and not values["cloud-api-qps"] and "cloud-api-qps" not in ill:
        problems.append(f"--cloud-api-burst={values['cloud-api-burst']}: has no effect without --cloud-api-qps")
    pair = pair_problem(values["tls-cert-file"], values["tls-private-key-file"])
    if pair:
        problems.append(pair)
    problems += _webhook_problems(values, ill, webhooks)
    if "controllers" not in ill:
        lines = problems_of(values["controllers"], catalog) or off_by_flags(values, catalog)
        problems += [f"--controllers: {line}" for line in lines]
    return problems


def _without_effect(
    values: Mapping[str, Any], catalog: Sequence[ControllerEntry], webhooks: Sequence[WebhookEntry]
) -> Iterator[str]:
    """What is let pass because Go's manager runs with it."""
    # No problem: in Go there is a limit by default, so manifests may give the burst alone.
    if values["kube-api-burst"] and values["kube-api-qps"] <= 0:
        yield f"--kube-api-burst={values['kube-api-burst']}: has no effect without --kube-api-qps: there is no limit"
    if not values["leader-elect"]:
        if values["enable-leader-migration"]:
            yield (
                "--enable-leader-migration: has no effect with --leader-elect=false: nothing keeps another manager "
                "from running the same controllers"
            )
        if values["leader-elect-resource-lock"] != _LOCK:
            yield "--leader-elect-resource-lock: has no effect with --leader-elect=false"
    if values["leader-migration-config"] and not values["enable-leader-migration"]:
        yield "--leader-migration-config: has no effect without --enable-leader-migration"
    for flag, entries in (("controllers", catalog), ("webhooks", webhooks)):
        for name in contradictions(values[flag], entries):
            yield f"--{flag}: {name} is both asked for and left out; the first word counts, as in Go"


def _webhook_problems(values: Mapping[str, Any], ill: Collection[str], webhooks: Sequence[WebhookEntry]) -> list[str]:
    problems = []
    if "webhooks" not in ill:
        lines = misspelt(values["webhooks"], webhooks, "webhook")
        problems += [f"--webhooks: {line}" for line in lines]
    files = (values["webhook-tls-cert-file"], values["webhook-tls-private-key-file"])
    if pair := pair_problem(*files, prefix="webhook-"):
        problems.append(pair)
    port = values["webhook-secure-port"]
    if port and port == values["secure-port"]:
        problems.append("--webhook-secure-port: must not be the same as --secure-port")
    return problems


def _election_problems(values: Mapping[str, Any], ill: Collection[str]) -> list[str]:
    durations = {
        "lease_duration": "leader-elect-lease-duration",
        "renew_deadline": "leader-elect-renew-deadline",
        "retry_period": "leader-elect-retry-period",
    }
    names = {"name": "leader-elect-resource-name", "namespace": "leader-elect-resource-namespace"}
    if not values["leader-elect"] or "leader-elect" in ill:
        return []
    from controllers.runtime.election import wrong_durations, wrong_names  # not needed for --help

    problems = []
    if (lock := values["leader-elect-resource-lock"]) != _LOCK:
        problems.append(f"--leader-elect-resource-lock={display(lock)}: must be {_LOCK}")
    if set(ill).isdisjoint(names.values()):
        wrong = wrong_names(*(values[flag] for flag in names.values()))
        problems += [f"--{names[field]}={display(values[names[field]])}: {text}" for field, text in wrong]
    if set(ill).isdisjoint(durations.values()):
        wrong = wrong_durations(*(values[flag] for flag in durations.values()))
        problems += [f"--{durations[field]}={show_duration(values[durations[field]])}: {text}" for field, text in wrong]
    return problems
