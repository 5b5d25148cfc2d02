"""The kinds of values that an option can have, each with its way of being written, parsed and
shown. Durations, numbers and lists are written as Go's pflag reads them. No I/O."""

from __future__ import annotations

import csv
import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import attrs

from cloudprovider.internal.values import parse_bool, parse_duration, show_bool, show_duration

T = TypeVar("T")

_INT32 = range(-(2**31), 2**31)
_OCTAL = re.compile(r"[+-]?0[0-7]+")
_NUMBER = re.compile(r"[+-]?[0-9a-zA-Z_.+-]+")


@attrs.frozen
class Kind(Generic[T]):
    """How one type of value is written. `parse` raises ValueError, `show` is its inverse."""

    metavar: str
    parse: Callable[[str], T]
    show: Callable[[T], str]
    bare: str | None = None
    """What the flag means when it is given without a value; None: a value is required."""
    repeated: bool = False
    """True: each occurrence adds to the value (a tuple or a dict) instead of replacing it."""
    mistyped: Callable[[object], str | None] = lambda _value: None
    """What is wrong with the type of a value that a program gives instead of a text, or None."""


def without_user(value: str) -> str:
    """The text without the user and password of URLs in it."""
    return re.sub(r"(?<=://)[^/@]*@", "...@", value)


def display(value: str) -> str:
    """A flag's value as it may be shown: on one line, at most 80 characters, without a URL's user
    and password."""
    value = without_user(value)
    value = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in value)
    return value if len(value) <= 80 else value[:77] + "..."


def _plain(raw: str) -> str:
    """Python's own parsers also take spaces and digits of other scripts; Go's do not."""
    if not _NUMBER.fullmatch(raw):
        raise ValueError(raw)
    return raw


def is_octal(raw: str) -> bool:
    """Whether Go reads this number as an octal one."""
    return _OCTAL.fullmatch(raw) is not None


def _parse_int(raw: str) -> int:
    try:
        value = int(_plain(raw), 8 if is_octal(raw) else 0)
    except ValueError:
        raise ValueError("must be a whole number") from None
    if value not in _INT32:
        raise ValueError("must fit in 32 bits")
    return value


def _parse_float(raw: str) -> float:
    try:
        value = float(_plain(raw))
    except ValueError:
        raise ValueError("must be a number") from None
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


def _not_whole(value: object) -> str | None:
    return None if isinstance(value, int) and not isinstance(value, bool) else "must be a whole number"


def _not_a_number(value: object) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return None if number else "must be a finite number"


def _parse_list(raw: str) -> tuple[str, ...]:
    """Comma-separated with CSV quoting, as pflag's string slice; spaces around names go."""
    if not raw:
        return ()
    try:
        rows = list(csv.reader([raw], strict=True))
    except csv.Error:
        raise ValueError("must be a comma-separated list") from None
    return tuple(word.strip() for word in rows[0])


def _parse_integers(raw: str) -> tuple[int, ...]:
    return tuple(_parse_int(word) for word in _parse_list(raw))


def _parse_ip(raw: str) -> str:
    try:
        ipaddress.ip_address(raw)
    except ValueError:
        raise ValueError("must be an IP address, such as 0.0.0.0 or ::") from None
    return raw


def _parse_switches(raw: str) -> dict[str, bool]:
    """`NAME=true,OTHER=false`, as component-base's MapStringBool."""
    switches = {}
    for word in filter(None, (part.strip() for part in raw.split(","))):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not equals:
            raise ValueError(f"must be NAME=true or NAME=false, joined by commas; {display(name)} has no value")
        try:
            switches[name] = parse_bool(value)
        except ValueError:
            raise ValueError(f"the value of {display(name)} must be true or false") from None
    return switches


def _show_switches(switches: Mapping[str, bool]) -> str:
    return ",".join(f"{name}={show_bool(on)}" for name, on in switches.items())


STRING: Kind[str] = Kind("TEXT", str, str)
NAME: Kind[str] = Kind("NAME", str, str)
PATH: Kind[str] = Kind("PATH", str, str)
URL: Kind[str] = Kind("URL", str, str)
ADDRESS: Kind[str] = Kind("IP:PORT", str, str)
VERSION: Kind[str] = Kind("true|false|raw", str, str, bare="true")
INT: Kind[int] = Kind("INT", _parse_int, str, mistyped=_not_whole)
FLOAT: Kind[float] = Kind("NUMBER", _parse_float, lambda value: f"{value:g}", mistyped=_not_a_number)
BOOL: Kind[bool] = Kind("true|false", parse_bool, show_bool, bare="true")
DURATION: Kind[float] = Kind("DURATION", parse_duration, show_duration, mistyped=_not_a_number)
LIST: Kind[tuple[str, ...]] = Kind("NAME,...", _parse_list, ",".join, repeated=True)
INTEGERS: Kind[tuple[int, ...]] = Kind(
    "INT,...", _parse_integers, lambda value: ",".join(map(str, value)), repeated=True
)
IP: Kind[str] = Kind("IP", _parse_ip, str)
SWITCHES: Kind[dict[str, bool]] = Kind("NAME=true|false,...", _parse_switches, _show_switches, repeated=True)
