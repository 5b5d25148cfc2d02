"""The kinds of values that only flags have, as Go's pflag reads them, and how a flag's value is
shown. The other kinds are in `cloudprovider.kinds`. No I/O."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Final

import attrs

from cloudprovider.kinds import BOOL, Duration, Integer, Kind, ListOf, Number

_INT32 = range(-(2**31), 2**31)
_OCTAL = re.compile(r"[+-]?0[0-7]+")
_NUMBER = re.compile(r"[+-]?[0-9a-zA-Z_.+-]+")


def without_user(value: str) -> str:
    """The text without the user and password of URLs in it."""
    return re.sub(r"(?<=://)[^/@]*@", "...@", value)


def display(value: str) -> str:
    """A flag's value as it may be shown: on one line, at most 80 characters, without a URL's user
    and password."""
    value = without_user(value)
    # A terminal acts on control characters, whoever has put them into a manifest.
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


@attrs.frozen
class Word(Kind[str]):
    """Any text, the empty one too."""

    metavar: str
    bare: str | None = None

    allowed = "a text"

    def parse(self, text: str) -> str:
        return text


class _Int(Integer):
    def number(self, text: str) -> int:
        try:
            # As Go's ParseInt with base 0: 010 is eight, 0x10 sixteen.
            value = int(_plain(text), 8 if is_octal(text) else 0)
        except ValueError:
            raise self.refusal() from None
        # Go's configuration holds them as int32.
        if value not in _INT32:
            raise ValueError("must fit in 32 bits")
        return value


class _Float(Number[float]):
    described = "a number"
    metavar = "NUMBER"

    def number(self, text: str) -> float:
        try:
            return float(_plain(text))
        except ValueError:
            raise self.refusal() from None

    def show(self, value: float) -> str:
        return f"{value:g}"


class _IP(Kind[str]):
    allowed = "an IP address, such as 0.0.0.0 or ::"
    metavar = "IP"

    def parse(self, text: str) -> str:
        try:
            ipaddress.ip_address(text)
        except ValueError:
            raise self.refusal() from None
        return text


class _Switches(Kind[Mapping[str, bool]]):
    """As component-base's MapStringBool."""

    allowed = "NAME=true or NAME=false, joined by commas"
    metavar = "NAME=true|false,..."
    repeated = True

    def parse(self, text: str) -> Mapping[str, bool]:
        switches = {}
        for word in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = (part.strip() for part in word.partition("="))
            if not equals:
                raise ValueError(f"must be {self.allowed}; {display(name)} has no value")
            try:
                switches[name] = BOOL.parse(value)
            except ValueError as error:
                raise ValueError(f"the value of {display(name)} {error}") from None
        return switches

    def show(self, value: Mapping[str, bool]) -> str:
        return ",".join(f"{name}={BOOL.show(on)}" for name, on in value.items())


@attrs.frozen
class _Class(Word):
    """A `loadBalancerClass`; the empty text stands for none."""

    def show(self, value: str) -> str:
        return value or '""'


class _Classes(ListOf[str]):
    def parse(self, text: str) -> tuple[str, ...]:
        # A shell makes nothing of the two quotes.
        return super().parse(text) or ("",)


STRING: Final[Kind[str]] = Word("TEXT")
NAME: Final[Kind[str]] = Word("NAME")
PATH: Final[Kind[str]] = Word("PATH")
URL: Final[Kind[str]] = Word("URL")
ADDRESS: Final[Kind[str]] = Word("IP:PORT")
VERSION: Final[Kind[str]] = Word("true|false|raw", bare="true")
INT: Final[Kind[int]] = _Int()
FLOAT: Final[Kind[float]] = _Float()
DURATION: Final[Kind[float]] = Duration()
LIST: Final[Kind[tuple[str, ...]]] = ListOf(NAME, least=0)
CLASSES: Final[Kind[tuple[str, ...]]] = _Classes(_Class("CLASS"), least=0)
INTEGERS: Final[Kind[tuple[int, ...]]] = ListOf(INT, least=0)
IP: Final[Kind[str]] = _IP()
SWITCHES: Final[Kind[Mapping[str, bool]]] = _Switches()
