"""The effective configuration of a run: the contents of /configz and /flagz, and the line about it
at the start. No I/O.

No secret leaves here: options that are declared secret, users and passwords in URLs and values of
the cloud config are hidden, and of files only the path is shown. /configz has the shape of Go's
(CloudControllerManagerConfiguration v1alpha1): every value is the one in force, at the place that
its declaration names, and options that Go lacks stand beside it. /flagz has the text form of
apiserver's flagz package."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from cloudprovider.internal.cleaning import one_line
from controllers.flags.ignored import IGNORED
from controllers.flags.parse import option_classes
from controllers.options import DURATION, FLOAT, LIST
from controllers.options.declare import CLASSIFIED, Flag, values_of
from controllers.options.kinds import without_user
from controllers.program import DISTRIBUTION, PROGRAM
from controllers.registration.entry import ControllerEntry, canonical
from controllers.registration.options import Options

GROUP: Final = "cloudcontrollermanager.config.k8s.io"
OWN: Final = DISTRIBUTION

_FIXED: dict[str, Any] = {
    "kind": "CloudControllerManagerConfiguration",
    "apiVersion": f"{GROUP}/v1alpha1",
    "Generic": {
        "Port": 0,
        "ClientConnection": {"acceptContentTypes": ""},
        "LeaderMigration": {"leaderName": "", "resourceLock": "", "controllerLeaders": None},
    },
}
"""What no flag sets: `Port` is that of a server without TLS, which Go no longer has either; empty,
`acceptContentTypes` means that `contentType` says what is accepted, too."""

_HEADER = """
%s flagz
Warning: This endpoint is for people. Its format can change at any time: no program should read it.
"""


def configz(
    options: Options, catalog: Sequence[ControllerEntry], migration: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The object that /configz serves, ready for JSON. Each call makes a new one.

    `migration` is the object to show for --enable-leader-migration, None without it.
    """
    found = copy.deepcopy(_FIXED)
    if migration is not None:
        found["Generic"]["LeaderMigration"] = migration
    own: dict[str, dict[str, Any]] = {}
    without_effect = ((row.flag, row.flag.default) for row in IGNORED if row.flag.configz)
    for flag, value in (*_values(options, catalog), *without_effect):
        # Go resolves aliases before it shows them.
        if flag.name == "controllers":
            value = canonical(value, catalog)
        if not flag.configz:
            own.setdefault(flag.section, {})[flag.name] = _json(flag, value)
            continue
        *path, last = flag.configz.split(".")
        at = found
        for step in path:
            at = at.setdefault(step, {})
        at[last] = _json(flag, value)
    return {GROUP: found, OWN: own}


def flagz(options: Options) -> str:
    """The text that /flagz serves: each flag with its value, sorted by name."""
    lines = sorted(f"{flag.name}={_shown(flag, value)}\n" for flag, value in _values(options))
    return _HEADER % PROGRAM + "\n" + "".join(lines)


def changed(options: Options, flags: Iterable[Flag[Any]]) -> list[str]:
    """The flags that differ from the defaults in `flags`, as typed. For the log."""
    defaults = {flag.name: flag.default for flag in flags}
    return [
        f"--{flag.name}={_shown(flag, value)}"
        for flag, value in _values(options)
        if flag.name in defaults and value != defaults[flag.name]
    ]


def _values(options: Options, catalog: Sequence[ControllerEntry] = ()) -> Iterator[tuple[Flag[Any], Any]]:
    """Each flag once: several classes may hold the same option. Of the catalog all."""
    seen: set[str] = set()
    kinds = dict.fromkeys((*options.own, *option_classes(catalog)) if catalog else options.own)
    for one in (options.manager, *map(options.of, kinds)):
        for flag, value in values_of(one):
            # Two controllers may share an option, the cluster's ranges for one.
            if flag.name not in seen:
                seen.add(flag.name)
                yield flag, value


def _shown(flag: Flag[Any], value: Any) -> str:
    # Its length alone would say something.
    if flag.secret:
        return CLASSIFIED
    return one_line(without_user(flag.kind.show(value)))


def _json(flag: Flag[Any], value: Any) -> object:
    if not flag.secret:
        # A duration is a number here and a text in Go's configuration.
        if flag.kind is FLOAT or (isinstance(value, bool | int) and flag.kind is not DURATION):
            return value
        if flag.kind is LIST:
            return [one_line(without_user(word)) for word in value]
    return _shown(flag, value)
