"""The reference page, docs/reference.md: every flag and every permission, written from their declarations.

Stage: before the first one, no I/O. Data comes from the table of flags (`config.py`), the flags that are not supported
and the rules of the controllers' entries; a test compares what leaves with the page in the repository:

    python -m controllers.app.reference > docs/reference.md
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controllers.app.catalog import CATALOG
from controllers.app.config import by_section, table
from controllers.app.entry import ControllerEntry
from controllers.app.rbac import COMMON_RULES
from controllers.app.unsupported import unsupported_flags

_ABOUT = """# Reference: flags and permissions

This page is generated from the code; do not edit it, run `python -m controllers.app.reference > docs/reference.md`.
[operations.md](operations.md) explains what the settings are for.
"""


def page(catalog: Sequence[ControllerEntry]) -> str:
    """The page, in Markdown. Pure."""
    parts = [_ABOUT, "## Flags\n"]
    for section, rows in by_section(table(catalog)).items():
        flags = []
        for row in rows:
            name = f"`--{row.name}`" + (f", `-{row.shorthand}`" if row.shorthand else "")
            shown = row.kind.show(row.default)
            text = row.help + (f" Deprecated: {row.deprecated}." if row.deprecated else "")
            flags.append((name, f"`{shown}`" if shown else "", text))
        parts += [f"### {section[:1].upper()}{section[1:]}\n", _table(("flag", "default", "meaning"), flags)]
    reasons: dict[str, list[str]] = {}
    for row in unsupported_flags():
        reasons.setdefault(row.unsupported, []).append(f"`--{row.name}`")
    refused = [(", ".join(names), reason) for reason, names in reasons.items()]
    parts += ["## Flags of the Go manager that are not supported\n", _table(("flags", "why, and what to do"), refused)]
    rights = [
        (who, rule.resource, ", ".join(rule.verbs), rule.namespace or "all", rule.consequence)
        for who, rules in [("the manager", COMMON_RULES), *((entry.name, entry.rules) for entry in catalog)]
        for rule in rules
    ]
    parts += ["## Permissions\n", _table(("needed by", "resource", "verbs", "namespace", "without it"), rights)]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    print(page(CATALOG), end="")
