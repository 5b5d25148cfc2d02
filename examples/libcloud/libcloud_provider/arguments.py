"""libcloud's drivers by name, and the names of their arguments.

A driver's constructor takes `**kwargs` and passes them on, to the constructors of its bases, of its
connection, or of the class that it chooses by API version. So the names are collected from all of
these: from their signatures, and from `kwargs.get("...")` and `kwargs.pop("...")` in their sources.
A name that none of them has would be ignored by libcloud without a word.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Collection, Iterable
from functools import cache
from typing import Any

from libcloud.compute import providers as compute
from libcloud.loadbalancer import providers as loadbalancer

SECRET_NAMES = frozenset({"secret", "password", "token", "ex_consumer_key", "ex_force_auth_token", "api_token"})
"""Arguments that are secret in every driver. `key` is in some: with a secret beside it, it is a
name; see `config`."""

_TAKEN = re.compile(r"""kwargs(?:\.(?:get|pop)\(|\[)\s*["'](\w+)["']""")
_INTERNAL = {"self", "cls", "args", "kwargs", "timeout", "retry_delay", "backoff", "ex_auth_cache"}
"""Not for users: time limits and retries are the host's."""


@cache
def compute_drivers() -> dict[str, Any]:
    """libcloud's compute drivers, by name: where each is, as (module, class)."""
    return {str(name): place for name, place in compute.DRIVERS.items()}


@cache
def balancer_drivers() -> dict[str, Any]:
    """libcloud's load balancer drivers, by name: where each is, as (module, class)."""
    return {str(name): place for name, place in loadbalancer.DRIVERS.items()}


@cache
def driver_class(place: tuple[str, str]) -> Any:
    """The class there. Raises ImportError where a package is missing that this driver needs."""
    module, name = place
    return getattr(__import__(module, fromlist=[name]), name)


@cache
def argument_names(kind: Any) -> frozenset[str]:
    """The arguments that the driver takes."""
    family = [kind]
    for one in family:
        family += one.__subclasses__()
    connections = [one.connectionCls for one in family if hasattr(one, "connectionCls")]
    names: set[str] = set()
    for one in {base for each in family for base in each.__mro__}:
        names |= _taken(one, "__init__") | _taken(one, "__new__")
    if any("openstack" in one.__module__ for connection in connections for one in connection.__mro__):
        for one in {base for connection in connections for base in connection.__mro__}:
            names |= {name for name in _taken(one, "__init__") if name.startswith("ex_")}
    return frozenset(names - _INTERNAL)


def required_names(place: tuple[str, str] | None) -> tuple[str, ...]:
    """The arguments that the driver cannot be made without; none for one that cannot be loaded."""
    if place is None:
        return ()
    try:
        kind = driver_class(place)
    except ImportError:
        return ()
    needed: list[str] = []
    for method in ("__new__", "__init__"):
        function = getattr(kind, method)
        if function in (object.__new__, object.__init__):
            continue
        needed += [
            one.name
            for one in [*inspect.signature(function).parameters.values()][1:]
            if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
        ]
    return tuple(dict.fromkeys(needed))


def argument_problems(place: tuple[str, str] | None, given: Collection[str]) -> list[str]:
    """What is wrong with the names of the arguments of a driver; none for an unknown driver, which
    is a problem of its own."""
    if place is None:
        return []
    try:
        known = argument_names(driver_class(place))
    except ImportError as exc:
        return [f"libcloud's driver cannot be loaded: {exc}. Install what it needs beside libcloud"]
    return [_unknown(name, known) for name in sorted(given) if name not in known]


def hint(name: str, known: Iterable[str]) -> str:
    """The known name that a misspelt one probably means, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"


def _unknown(name: str, known: Iterable[str]) -> str:
    return f"{name}: the driver takes no such argument; {hint(name, known)}"


def _taken(kind: type, method: str) -> set[str]:
    function = vars(kind).get(method)
    if function is None or kind is object:
        return set()
    function = getattr(function, "__func__", function)
    try:
        parameters = inspect.signature(function).parameters
        return {*parameters, *_TAKEN.findall(inspect.getsource(function))}
    except (TypeError, ValueError, OSError):  # builtins have neither
        return set()
