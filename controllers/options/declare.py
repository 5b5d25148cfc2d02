"""One declaration for each option: its default, kind, flag, help and check stand beside the field
that it sets. No I/O.

A class of options is a frozen attrs class whose fields are made by `option`; `fill` makes an
instance from the values of its flags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

import attrs

from cloudprovider.kinds import Kind
from controllers.options.kinds import DURATION, NAME, display

T = TypeVar("T")
Check = Callable[[T], str | None]
"""Returns what is wrong with a value of the right type, or None."""

CLASSIFIED = "CLASSIFIED"
"""Stands for the value of a secret option, as in Go's /flagz."""

_FLAG = "flag"
_GROUP = "group"


@attrs.frozen
class Flag(Generic[T]):
    """One row of the table of flags."""

    name: str
    kind: Kind[T]
    default: T
    section: str
    help: str
    check: Check[T] | None = None
    shorthand: str = ""
    deprecated: str = ""
    secret: bool = False
    """The value is shown nowhere: not in the log, /configz or /flagz."""
    note: Check[T] | None = None
    """What the operator is to know about a value that is taken, or None: logged once."""
    configz: str = ""
    """Where it stands in Go's configuration, as a path in /configz; empty for what Go lacks."""


def option(
    default: T,
    kind: Kind[T],
    flag: str = "",
    section: str = "",
    help: str = "",
    *,
    check: Check[T] | None = None,
    shorthand: str = "",
    deprecated: str = "",
    secret: bool = False,
    configz: str = "",
) -> Any:
    """Declare one field of an options class. Without a `flag` only programs can set it.

    A value of a wrong type, or one that `check` objects to, raises ValueError with the names of
    field and flag. The value of a `secret` option is shown nowhere. A file whose path is the option
    is better: every user of the machine can read a process's command line. `configz` is for options
    that Go's manager has, too: see `Flag`.
    """

    def validate(_instance: object, attribute: attrs.Attribute[T], value: T) -> None:
        # A check is asked about values of the right type alone.
        mistyped = kind.problem(value)
        wrong = mistyped or (check(value) if check else None)
        if wrong:
            # The message goes to the terminal and the log.
            shown = CLASSIFIED if secret else display(repr(value) if mistyped else kind.show(value))
            raise ValueError(f"{attribute.name}={shown}{f' (--{flag})' if flag else ''}: {wrong}")

    row = Flag(flag, kind, default, section, help, check, shorthand, deprecated, secret=secret, configz=configz)
    # At the field and not in the parser: options that a program makes are checked as well.
    return attrs.field(default=default, validator=validate, repr=not secret, metadata={_FLAG: row} if flag else {})


def group(kind: type[Any]) -> Any:
    """Declare a field that holds another class of options, with flags of its own."""
    return attrs.field(factory=kind, metadata={_GROUP: kind})


def flags_of(kind: type[Any]) -> Iterator[Flag[Any]]:
    """The flags of one class of options, in the order of its fields."""
    for field in attrs.fields(kind):
        if _GROUP in field.metadata:
            yield from flags_of(field.metadata[_GROUP])
        elif _FLAG in field.metadata:
            yield field.metadata[_FLAG]


def fill(kind: type[T], values: Mapping[str, Any]) -> T:
    """An instance of a class of options, from the values of its flags by their names."""
    given: dict[str, Any] = {}
    for field in attrs.fields(kind):  # type: ignore[arg-type]  # an attrs class, as its maker says
        if _GROUP in field.metadata:
            given[field.name] = fill(field.metadata[_GROUP], values)
        elif _FLAG in field.metadata:
            given[field.name] = values[field.metadata[_FLAG].name]
    return kind(**given)


def values_of(options: Any) -> Iterator[tuple[Flag[Any], Any]]:
    """The flags of an options class with an instance's values, as `fill` takes. In field order."""
    for field in attrs.fields(type(options)):
        value = getattr(options, field.name)
        if _GROUP in field.metadata:
            yield from values_of(value)
        elif _FLAG in field.metadata:
            yield field.metadata[_FLAG], value


def between(low: float, high: float) -> Check[float]:
    """A check: `low` and `high` are allowed."""
    return lambda value: None if low <= value <= high else f"must be between {low:g} and {high:g}"


def positive(value: float) -> str | None:
    """A check for durations that cannot be zero."""
    return None if value > 0 else "must be greater than 0"


def not_negative(value: float) -> str | None:
    """A check for numbers that can be zero."""
    return None if value >= 0 else "must not be negative"


def no_limit_at_zero(value: float) -> str | None:
    """A check for rates."""
    return None if value >= 0 else "must not be negative; 0 means no limit"


def one_of(*allowed: str) -> Check[str]:
    """A check: the value is one of a few words; an empty one among them is not listed."""
    return lambda value: None if value in allowed else "must be " + " or ".join(filter(None, allowed))


def not_empty(value: str) -> str | None:
    """A check for texts."""
    return None if value.strip() else "must not be empty"


DEFAULT_CLUSTER_NAME: Final = "kubernetes"


def cluster_name_option() -> Any:
    """The cluster's name, for the manager and for each controller that hands it to the provider."""
    return option(
        DEFAULT_CLUSTER_NAME,
        NAME,
        "cluster-name",
        "generic",
        "Name of the cluster, handed to the provider for the names of what it creates. Two clusters in one cloud "
        "account need two names.",
        check=not_empty,
        configz="KubeCloudShared.ClusterName",
    )


def drain_timeout_option() -> Any:
    """Seconds for the work under way when a controller stops; the manager says how many."""
    return option(30.0, DURATION, check=not_negative)
