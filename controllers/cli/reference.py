"""The reference page of every flag and every permission, written from their declarations; a test
compares it with the page in the repository:

    python -m controllers.cli.reference > docs/reference/flags.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from controllers.catalog import CATALOG, WEBHOOKS
from controllers.cli.rbac import COMMON_RULES
from controllers.flags.parse import by_section, table
from controllers.manager.permissions import token_rule
from controllers.options.declare import flags_of
from controllers.registration.entry import ControllerEntry
from controllers.teardown.options import TeardownOptions
from controllers.webhooks.rbac_rules import WEBHOOK_RULES
from controllers.webhooks.webhook import WebhookEntry

_ABOUT = """# Flags and permissions

This page is generated from the code; do not edit it, run `make generate`.
The controllers' pages explain what the settings are for ([Running the manager](../guides/operations.md) lists them);
[the Go manager's flags](go-flags.md) compares them with Go's.
"""
_TEARDOWN = "`teardown` takes every flag above, too: [Tear down](../guides/uninstalling.md#tear-down)."
_ACCOUNTS = "--use-service-account-credentials"


def page(
    catalog: Sequence[ControllerEntry],
    default_provider: str | None = None,
    flags: Sequence[type[Any]] = (),
    defaults: Mapping[str, str] | None = None,
    webhooks: Sequence[WebhookEntry] = WEBHOOKS,
) -> str:
    """The page, in Markdown. Pure. A vendor passes what its `main` gets."""
    parts = [_ABOUT, "## Flags\n"]
    for section, rows in by_section(table(catalog, default_provider, flags, defaults, webhooks)).items():
        lines = []
        for row in rows:
            name = f"`--{row.name}`" + (f", `-{row.shorthand}`" if row.shorthand else "")
            shown = row.kind.show(row.default)
            text = row.help + (f" Deprecated: {row.deprecated}." if row.deprecated else "")
            lines.append((name, f"`{shown}`" if shown else "", text))
        parts += [f"### {section[:1].upper()}{section[1:]}\n", rows_of(("flag", "default", "meaning"), lines)]
    lines = [(f"`--{row.name}`", f"`{row.kind.show(row.default)}`", row.help) for row in flags_of(TeardownOptions)]
    lines = [(name, "" if default == "``" else default, text) for name, default, text in lines]
    parts += [f"### Only after `teardown`\n\n{_TEARDOWN}\n", rows_of(("flag", "default", "meaning"), lines)]
    common = [
        ("the manager", COMMON_RULES),
        (f"the manager, with {_ACCOUNTS}", (token_rule(()),)),
        ("the manager, with --webhooks", WEBHOOK_RULES),
    ]
    permissions = [
        (who, rule.resource, ", ".join(rule.verbs), rule.namespace or "all", rule.consequence)
        for who, rules in [*common, *((entry.name, entry.rules) for entry in catalog)]
        for rule in rules
    ]
    parts += ["## Permissions\n", rows_of(("needed by", "resource", "verbs", "namespace", "without it"), permissions)]
    return "\n".join(parts)


def rows_of(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with its header, one line for each row; a cell's `|` is escaped. Pure."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    print(page(CATALOG), end="")
