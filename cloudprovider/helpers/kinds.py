"""How the values of annotations are written: one class for each kind of value, from text to a
Python value. Pure.

`ServiceAnnotations` (annotations.py) declares with them, reads with `parse`, and its table for the
docs shows `allowed` and `show`. A vendor's own kind is a subclass of `Kind`.

Durations are Go's (`time.ParseDuration`), true and false are those of Go's `strconv.ParseBool`.
"""

from __future__ import annotations

import enum
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

from attrs import field, frozen

from cloudprovider.helpers.ips import IPNetwork, parse_network
from cloudprovider.internal.values import parse_bool, parse_duration, show_bool, show_duration

__all__ = [
    "BOOL",
    "CIDR",
    "JSON_OBJECT",
    "PAIRS",
    "TEXT",
    "Duration",
    "Integer",
    "Kind",
    "ListOf",
    "Member",
    "OneOf",
    "Text",
    "parse_duration",
    "show_duration",
]

T = TypeVar("T")
E = TypeVar("E", bound=enum.Enum)

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


class Kind(ABC, Generic[T]):
    """One kind of value. Immutable."""

    @property
    @abstractmethod
    def allowed(self) -> str:
        """What may be written, as the end of the sentence "allowed: ..." and as a column of the
        docs' table."""

    @abstractmethod
    def parse(self, text: str) -> T:
        """The value of a text without blanks around it. Raises ValueError; its message is not
        shown, `allowed` is."""

    def show(self, value: T) -> str:
        """How a default is shown in the docs' table. Default: `str`."""
        return str(value)


class _Bool(Kind[bool]):
    @property
    def allowed(self) -> str:
        return "true or false"

    def parse(self, text: str) -> bool:
        return parse_bool(text)

    def show(self, value: bool) -> str:
        return show_bool(value)


@frozen
class Integer(Kind[int]):
    """A whole number, from `least` to `most` where they are given."""

    least: int | None = None
    most: int | None = None

    @property
    def allowed(self) -> str:
        return f"a whole number{_range(self.least, self.most, str)}"

    def parse(self, text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ValueError(self.allowed)
        return _within(int(text), self.least, self.most)


@frozen
class Duration(Kind[float]):
    """A duration as Go writes it, in seconds, from `least` to `most` seconds where they are
    given."""

    least: float | None = None
    most: float | None = None

    @property
    def allowed(self) -> str:
        return f"a duration such as 30s or 1m30s{_range(self.least, self.most, show_duration)}"

    def parse(self, text: str) -> float:
        return _within(parse_duration(text), self.least, self.most)

    def show(self, value: float) -> str:
        return show_duration(value)


@frozen
class Text(Kind[str]):
    """A text that is not empty. With a `pattern` (a regular expression) all of it must match;
    `described` says in words what that means."""

    pattern: str = ""
    described: str = ""

    @property
    def allowed(self) -> str:
        return self.described or (f"a text that matches {self.pattern}" if self.pattern else "a text")

    def parse(self, text: str) -> str:
        if not text or (self.pattern and not re.fullmatch(self.pattern, text)):
            raise ValueError(self.allowed)
        return text


@frozen(init=False)
class OneOf(Kind[str]):
    """One of these words, written exactly so."""

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        self.__attrs_init__(words)

    @property
    def allowed(self) -> str:
        return _either(self.words)

    def parse(self, text: str) -> str:
        if text not in self.words:
            raise ValueError(self.allowed)
        return text


@frozen
class Member(Kind[E]):
    """A member of an enum, written as its value."""

    enum: type[E]

    @property
    def allowed(self) -> str:
        return _either([str(one.value) for one in self.enum])

    def parse(self, text: str) -> E:
        for one in self.enum:
            if str(one.value) == text:
                return one
        raise ValueError(self.allowed)

    def show(self, value: E) -> str:
        return str(value.value)


@frozen
class ListOf(Kind[tuple[T, ...]]):
    """Values with commas between them; blanks around each are dropped."""

    kind: Kind[T]
    least: int = field(default=1, kw_only=True)
    """How many there must be; 0 allows the empty text."""
    most: int | None = field(default=None, kw_only=True)

    @property
    def allowed(self) -> str:
        count = "" if self.most is None else f" (at most {self.most})"
        return f"a list with commas{count}, each {self.kind.allowed}"

    def parse(self, text: str) -> tuple[T, ...]:
        parts = [part.strip() for part in text.split(",")] if text else []
        if len(parts) < self.least or (self.most is not None and len(parts) > self.most):
            raise ValueError(self.allowed)
        return tuple(self.kind.parse(part) for part in parts)

    def show(self, value: tuple[T, ...]) -> str:
        return ",".join(self.kind.show(one) for one in value)


class _Pairs(Kind[Mapping[str, str]]):
    @property
    def allowed(self) -> str:
        return "pairs such as team=web,stage=test"

    def parse(self, text: str) -> Mapping[str, str]:
        pairs = [part.strip().partition("=") for part in text.split(",")]
        found = {name.strip(): value.strip() for name, sign, value in pairs if sign and name.strip()}
        if len(found) < len(pairs):  # also for a name that is given twice
            raise ValueError(self.allowed)
        return found

    def show(self, value: Mapping[str, str]) -> str:
        return ",".join(f"{name}={one}" for name, one in value.items())


class _JSONObject(Kind[Mapping[str, Any]]):
    @property
    def allowed(self) -> str:
        return 'a JSON object such as {"name": "value"}'

    def parse(self, text: str) -> Mapping[str, Any]:
        found: object = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError(self.allowed)
        members: dict[str, Any] = found
        return members

    def show(self, value: Mapping[str, Any]) -> str:
        return json.dumps(value)


class _Cidr(Kind[IPNetwork]):
    @property
    def allowed(self) -> str:
        return "an IP range such as 10.0.0.0/24"

    def parse(self, text: str) -> IPNetwork:
        return parse_network(text)


BOOL: Final[Kind[bool]] = _Bool()
"""true or false, in any of the spellings that Go reads."""
TEXT: Final[Kind[str]] = Text()
"""Any text that is not empty."""
CIDR: Final[Kind[IPNetwork]] = _Cidr()
"""A range of IP addresses; host bits are cleared."""
PAIRS: Final[Kind[Mapping[str, str]]] = _Pairs()
"""Names with values, as in "team=web,stage=test"."""
JSON_OBJECT: Final[Kind[Mapping[str, Any]]] = _JSONObject()
"""A JSON object."""


def _either(words: tuple[str, ...] | list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


N = TypeVar("N", int, float)


def _range(least: N | None, most: N | None, show: Any) -> str:
    if least is None and most is None:
        return ""
    if most is None:
        return f", at least {show(least)}"
    return f", at most {show(most)}" if least is None else f", from {show(least)} to {show(most)}"


def _within(value: N, least: N | None, most: N | None) -> N:
    if (least is not None and value < least) or (most is not None and value > most):
        raise ValueError("out of range")
    return value
