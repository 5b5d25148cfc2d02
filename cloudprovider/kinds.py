"""The kinds of values that a text can stand for, one class each: for flags, annotations of
Services and a provider's configuration. Pure, and light to import.

Comes in: what a user wrote. Goes out: the value, or a sentence that says what is allowed. A
vendor's own kind is a subclass of `Kind`.

Follows: Go's strconv.ParseBool; the lists of pflag.
"""

from __future__ import annotations

import csv
import enum
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar

from attrs import field, frozen

from cloudprovider.internal.durations import DESCRIBED, parse_duration, show_duration
from cloudprovider.ips import IPNetwork, parse_network

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
    "Number",
    "OneOf",
    "Text",
    "parse_duration",
    "show_duration",
]

T = TypeVar("T")
E = TypeVar("E", bound=enum.Enum)
N = TypeVar("N", bound=float)

_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


class Kind(ABC, Generic[T]):
    """One kind of value. Immutable.

    It is given to `annotation` and to `option`, and is a type for pydantic: a field of type
    `Annotated[float, Duration(least=1)]` reads what an annotation of that kind reads.
    """

    bare: str | None = None
    """What a flag means that is given without a value; None: it needs one."""
    repeated: bool = False
    """True: a flag that is given again adds to its value, a tuple or a dict."""

    @property
    @abstractmethod
    def allowed(self) -> str:
        """What may be written, as the end of the sentences "allowed: ..." and "must be ...", and as
        a column of the docs' table."""

    @property
    def metavar(self) -> str:
        """What stands for the value of a flag in --help."""
        return "VALUE"

    @abstractmethod
    def parse(self, text: str) -> T:
        """The value of a text without blanks around it. Raises ValueError, which says what must be,
        as in "must be true or false"."""

    def show(self, value: T) -> str:
        """The value as a user would write it. Default: `str`."""
        return str(value)

    def problem(self, value: object) -> str | None:
        """What is wrong with a value that a program or a file gives instead of a text, or None."""
        return None

    def read(self, value: Any) -> Any:
        """A text's value, or the value itself where it is no text. Raises ValueError."""
        if isinstance(value, str):
            return self.parse(value.strip())
        if problem := self.problem(value):
            raise ValueError(problem)
        return value

    def refusal(self) -> ValueError:
        """What `parse` raises."""
        return ValueError(f"must be {self.allowed}")

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core.core_schema import no_info_before_validator_function  # not for --help

        return no_info_before_validator_function(self.read, handler(source))


class _Bool(Kind[bool]):
    """true or false, in any of the spellings that Go reads. Write `BOOL`."""

    allowed = "true or false"
    metavar = "true|false"
    bare = "true"

    def parse(self, text: str) -> bool:
        # "yes" and "on" are none in Go, so that one manifest means one thing in both programs.
        if text not in _BOOLS:
            raise self.refusal()
        return _BOOLS[text]

    def show(self, value: bool) -> str:
        return "true" if value else "false"

    def problem(self, value: object) -> str | None:
        return None if isinstance(value, bool) else f"must be {self.allowed}"


@frozen
class Number(Kind[N]):
    """A number, from `least` to `most` where they are given. Base of the kinds of numbers."""

    least: N | None = None
    most: N | None = None
    described: ClassVar[str]

    @property
    def allowed(self) -> str:
        least, most = ("" if end is None else self.show(end) for end in (self.least, self.most))
        if least and most:
            return f"{self.described}, from {least} to {most}"
        return self.described + (f", at least {least}" if least else f", at most {most}" if most else "")

    def parse(self, text: str) -> N:
        value = self.number(text)
        if problem := self.problem(value):
            raise ValueError(problem)
        return value

    @abstractmethod
    def number(self, text: str) -> N:
        """The number, whether it is in the range or not. Raises ValueError."""

    def problem(self, value: object) -> str | None:
        # True is an int in Python; NaN compares false, so that every range would let it through.
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < math.inf:
            return "must be a finite number"
        outside = (self.least is not None and value < self.least) or (self.most is not None and value > self.most)
        return f"must be {self.allowed}" if outside else None


class Integer(Number[int]):
    """A whole number, from `least` to `most` where they are given."""

    described = "a whole number"
    metavar = "INT"

    def number(self, text: str) -> int:
        # Python's int takes 1_000 and digits of other scripts, which nobody means.
        if not _INTEGER.fullmatch(text):
            raise self.refusal()
        return int(text)

    def problem(self, value: object) -> str | None:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return super().problem(value) if whole else "must be a whole number"


class Duration(Number[float]):
    """A duration as Go writes it, in seconds, from `least` to `most` seconds where they are
    given."""

    described = DESCRIBED
    metavar = "DURATION"

    def number(self, text: str) -> float:
        return parse_duration(text)

    def show(self, value: float) -> str:
        return show_duration(value)


@frozen
class Text(Kind[str]):
    """A text that is not empty. With a `pattern` (a regular expression) all of it must match;
    `described` says in words what that means."""

    pattern: str = ""
    described: str = ""

    metavar = "TEXT"

    @property
    def allowed(self) -> str:
        return self.described or (f"a text that matches {self.pattern}" if self.pattern else "a text")

    def parse(self, text: str) -> str:
        if not text or self.problem(text):
            raise self.refusal()
        return text

    def problem(self, value: object) -> str | None:
        if not isinstance(value, str):
            return "must be a text"
        wrong = value and self.pattern and not re.fullmatch(self.pattern, value)  # "": none, as a default
        return f"must be {self.allowed}" if wrong else None


@frozen(init=False)
class OneOf(Kind[str]):
    """One of these words, written exactly so."""

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        self.__attrs_init__(words)

    @property
    def allowed(self) -> str:
        return _either(self.words)

    @property
    def metavar(self) -> str:
        return "|".join(self.words)

    def parse(self, text: str) -> str:
        if text not in self.words:
            raise self.refusal()
        return text

    def problem(self, value: object) -> str | None:
        return None if value in self.words else f"must be {self.allowed}"


@frozen
class Member(Kind[E]):
    """A member of an enum, written as its value."""

    enum: type[E]

    @property
    def allowed(self) -> str:
        return _either([self.show(one) for one in self.enum])

    @property
    def metavar(self) -> str:
        return "|".join(self.show(one) for one in self.enum)

    def parse(self, text: str) -> E:
        for one in self.enum:
            if self.show(one) == text:
                return one
        raise self.refusal()

    def show(self, value: E) -> str:
        return str(value.value)

    def problem(self, value: object) -> str | None:
        return None if isinstance(value, self.enum) else f"must be a member of {self.enum.__name__}"


@frozen
class ListOf(Kind[tuple[T, ...]]):
    """Values with commas between them; blanks around each are dropped. One that holds a comma
    stands in double quotes, as in CSV."""

    kind: Kind[T]
    least: int = field(default=1, kw_only=True)
    """How many there must be; 0 allows the empty text."""
    most: int | None = field(default=None, kw_only=True)
    repeated: bool = field(default=True, kw_only=True)

    @property
    def allowed(self) -> str:
        count = "" if self.most is None else f" (at most {self.most})"
        return f"a comma-separated list{count}, each {self.kind.allowed}"

    @property
    def metavar(self) -> str:
        return f"{self.kind.metavar},..."

    def parse(self, text: str) -> tuple[T, ...]:
        return self.read(self.parts(text))

    @staticmethod
    def parts(text: str) -> list[str]:
        """The texts between the commas; none in a blank text. Raises ValueError for quotes that do
        not close."""
        try:
            # On one line: a list in YAML may be folded over several.
            rows = list(csv.reader([" ".join(text.splitlines())], strict=True)) if text.strip() else [[]]
        except csv.Error:
            raise ValueError("must be a comma-separated list") from None
        return [part.strip() for part in rows[0]]

    def read(self, value: Any) -> tuple[T, ...]:
        if not isinstance(value, list | tuple):
            found: tuple[T, ...] = super().read(value)
            return found
        if len(value) < self.least or (self.most is not None and len(value) > self.most):
            raise self.refusal()
        return tuple(self.kind.read(one) for one in value)

    def problem(self, value: object) -> str | None:
        if not isinstance(value, list | tuple):
            return "must be a list or a tuple"
        return next(filter(None, map(self.kind.problem, value)), None)

    def show(self, value: tuple[T, ...]) -> str:
        return ",".join(self.kind.show(one) for one in value)


class _Pairs(Kind[Mapping[str, str]]):
    """Names with values, as in "team=web,stage=test". Write `PAIRS`."""

    allowed = "pairs such as team=web,stage=test"
    metavar = "NAME=VALUE,..."
    repeated = True

    def parse(self, text: str) -> Mapping[str, str]:
        pairs = [part.strip().partition("=") for part in text.split(",")]
        found = {name.strip(): value.strip() for name, sign, value in pairs if sign and name.strip()}
        if len(found) < len(pairs):  # also for a name that is given twice
            raise self.refusal()
        return found

    def show(self, value: Mapping[str, str]) -> str:
        return ",".join(f"{name}={one}" for name, one in value.items())

    def problem(self, value: object) -> str | None:
        texts = isinstance(value, Mapping) and all(isinstance(one, str) for pair in value.items() for one in pair)
        return None if texts else "must be a mapping of texts to texts"


class _JSONObject(Kind[Mapping[str, Any]]):
    """A JSON object. Write `JSON_OBJECT`."""

    allowed = 'a JSON object such as {"name": "value"}'
    metavar = "JSON"

    def parse(self, text: str) -> Mapping[str, Any]:
        try:
            found: object = json.loads(text)
        except (ValueError, RecursionError):  # json nests without end
            raise self.refusal() from None
        if not isinstance(found, dict):
            raise self.refusal()
        return found

    def show(self, value: Mapping[str, Any]) -> str:
        return json.dumps(value)

    def problem(self, value: object) -> str | None:
        return None if isinstance(value, Mapping) else "must be a mapping"


class _Cidr(Kind[IPNetwork]):
    """A range of IP addresses; host bits are cleared. Write `CIDR`."""

    allowed = "an IP range such as 10.0.0.0/24"
    metavar = "CIDR"

    def parse(self, text: str) -> IPNetwork:
        return parse_network(text)

    def problem(self, value: object) -> str | None:
        return None if isinstance(value, IPNetwork) else "must be an IPv4Network or an IPv6Network"


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
