"""The text of --help, made of the flags' declarations. Imported by who asks for it: argparse is not
needed to read flags."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Container, Sequence
from typing import Any

from controllers.flags.parse import by_section
from controllers.options import BOOL, VERSION
from controllers.options.declare import Flag

_ABOUT = (
    "Runs the controllers that connect a Kubernetes cluster to a cloud, through the provider named by "
    "--cloud-provider. Flags are those of the Go cloud-controller-manager: --flag=value or --flag value, booleans "
    "--flag or --flag=false, durations such as 1m30s, underscores equal dashes."
)


class _Formatter(argparse.HelpFormatter):
    def _split_lines(self, text: str, width: int) -> list[str]:
        # argparse breaks --cloud-config at its hyphen: nobody could copy or search for it.
        return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def _default(row: Flag[Any]) -> str:
    shown = row.kind.show(row.default)
    # "default false" beside each switch would say what its name says already.
    if row.kind in (BOOL, VERSION):
        return " (default true)" if row.default is True else ""
    if isinstance(row.default, str | tuple):
        return f' (default "{shown}")' if shown else ""
    return f" (default {shown})"


_ABOUT_TEARDOWN = (
    "Shows what a cluster owns in the cloud: load balancers, routes, and what else its provider made for it. With "
    "--yes it deletes all of that. Needs no API server. For a cluster that is to go, when its manager does not run any "
    "more. Takes every flag of the manager, so that the manager's own arguments can be given; these count. Exit codes: "
    "0 nothing is left, 3 there is something to delete and --yes was not given, 2 bad flags, 1 anything else."
)
_COUNTS_FOR_TEARDOWN = frozenset(
    (
        "cloud-provider", "cloud-config", "cluster-name", "cluster-cidr", "allow-untagged-cloud", "kubeconfig",
        "master", "leader-elect-resource-name", "leader-elect-resource-namespace", "logging-format", "v", "help",
    )
)  # fmt: skip


def teardown_help(program: str, flags: Sequence[Flag[Any]], own: Container[str]) -> str:
    """The text of `teardown --help`: the flags that count for it, and those of the sections in
    `own`. Pure."""
    rows = [row for row in flags if row.name in _COUNTS_FOR_TEARDOWN or row.section in own]
    return help_text(program, rows, _ABOUT_TEARDOWN)


def help_text(program: str, flags: Sequence[Flag[Any]], about: str = _ABOUT) -> str:
    """The text of --help: every flag under its named set, with its default. Pure."""
    parser = argparse.ArgumentParser(
        prog=program,
        usage="%(prog)s [flags]",
        description=about,
        add_help=False,
        allow_abbrev=False,
        formatter_class=lambda prog: _Formatter(prog, max_help_position=8, width=100),
    )
    for section, rows in by_section(flags).items():
        if not rows:
            continue
        group = parser.add_argument_group(f"{section[:1].upper()}{section[1:]} flags")
        for row in rows:
            names = [f"-{row.shorthand}"] if row.shorthand else []
            names.append(f"--{row.name}")
            text = row.help + _default(row)
            if row.deprecated:
                text += f" Deprecated: {row.deprecated}."
            # argparse formats help texts with %.
            text = text.replace("%", "%%")
            if row.kind.bare is not None:
                group.add_argument(*names, help=text, action="store_true", dest=row.name)
            else:
                group.add_argument(*names, help=text, metavar=row.kind.metavar, dest=row.name)
    return parser.format_help()
