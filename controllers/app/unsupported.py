"""Flags of the Go cloud-controller-manager that this version does not support yet, each with the reason.

Stage: before the first one, pure data. `config.py` adds these rows to the table of flags, so that a manifest written
for the Go program fails with a sentence that says what is missing instead of "no such flag", and so that no setting
is accepted and then ignored. A flag leaves this file when what it sets exists. What has no meaning here is taken: see
`ignored.py`.
"""

from __future__ import annotations

from typing import Any

from controllers.options import BOOL, STRING, Flag

_MIGRATION = "leader migration does not exist in this version: leave this flag out"

_VALUED = {
    _MIGRATION: "leader-migration-config",
}
_SWITCHES = {
    _MIGRATION: "enable-leader-migration",
}


def unsupported_flags() -> list[Flag[Any]]:
    """The rows for the table of flags: parsed (so that their values are skipped), never stored."""
    rows: list[Flag[Any]] = []
    for reason, names in _VALUED.items():
        rows += [Flag(name, STRING, "", "unsupported", "", unsupported=reason) for name in names.split()]
    for reason, names in _SWITCHES.items():
        rows += [Flag(name, BOOL, False, "unsupported", "", unsupported=reason) for name in names.split()]
    return rows
