"""Go's command-line syntax: from argv to raw values, with every problem collected.

Stage: before the first one, no I/O. Data comes from `sys.argv` by way of `options.py`, which owns the table of
flags; it goes back there as one `Parsed`. argparse is not used for parsing because it stops at the first problem
and reads `--controllers -route` as two flags; `cli.py` uses it for the help text.

The syntax is that of spf13/pflag, which every Kubernetes component uses: `--flag=value` and `--flag value`;
booleans `--flag` and `--flag=false`; one-letter shorthands `-v2`, `-v=2`, `-v 2`; underscores equal dashes in
names; the last value of a repeated flag wins, except for lists, which grow; `--` ends the flags. One deviation: a
value that begins with `--` must be joined with `=`, so that a forgotten value cannot swallow the next flag.
"""

from __future__ import annotations

import csv
import difflib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import attrs
import durationpy

T = TypeVar("T")

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_INT32 = range(-(2**31), 2**31)
_DURATION = re.compile(r"[+-]?(0|((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)", re.ASCII)
_NUMBER = re.compile(r"[+-]?[0-9a-zA-Z_.+-]+")


@attrs.frozen
class Kind(Generic[T]):
    """How one type of value is written: `parse` raises ValueError with a sentence, `show` is its inverse."""

    metavar: str
    parse: Callable[[str], T]
    show: Callable[[T], str]
    bare: str | None = None
    """What the flag means when it is given without a value; None: a value is required."""
    repeated: bool = False
    """True: a second occurrence adds to the first one's value instead of replacing it."""


@attrs.frozen
class Flag(Generic[T]):
    """One row of the table of flags. `check` returns what is wrong with a well-formed value, or None."""

    name: str
    kind: Kind[T]
    default: T
    section: str
    help: str
    check: Callable[[T], str | None] | None = None
    shorthand: str = ""
    deprecated: str = ""
    refused: str = ""
    """Not empty: the flag is known, this version does not take it, and this says why."""


@attrs.frozen
class Parsed:
    """What `parse` found: values by flag name (defaults included), flags given well and ill, and the problems."""

    values: dict[str, Any]
    given: frozenset[str]
    failed: frozenset[str]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def parse(flags: Iterable[Flag[Any]], argv: Sequence[str]) -> Parsed:
    """Read `argv` (without the program's name) against the table.

    Never raises for bad input: each problem becomes one line that begins with the flag as the user wrote it, in the
    order of argv. Pure; may be called from any thread.
    """
    return _Parser(flags).run(list(argv))


class _Parser:
    def __init__(self, flags: Iterable[Flag[Any]]) -> None:
        self._flags = {flag.name: flag for flag in flags}
        self._short = {flag.shorthand: flag for flag in self._flags.values() if flag.shorthand}
        self._values = {name: flag.default for name, flag in self._flags.items() if not flag.refused}
        self._given: set[str] = set()
        self._failed: set[str] = set()
        self._problems: list[str] = []
        self._warnings: list[str] = []

    def run(self, argv: list[str]) -> Parsed:
        rest = iter(argv)
        pending: str | None = next(rest, None)
        while pending is not None:
            word, following = pending, next(rest, None)
            if word == "--":
                for extra in (following, *rest):
                    self._positional(extra)
                break
            if word.startswith("--"):
                used = self._long(word, following)
            elif word.startswith("-") and len(word) > 1:
                used = self._letters(word, following)
            else:
                used = self._positional(word)
            pending = next(rest, None) if used else following
        return Parsed(
            self._values,
            frozenset(self._given),
            frozenset(self._failed),
            tuple(self._problems),
            tuple(self._warnings),
        )

    def _positional(self, word: str | None) -> bool:
        if word:  # an empty word, from an unset shell variable say, is let pass as in Go
            self._problems.append(f"{display(word)}: this program takes flags only, no other arguments")
        return False

    def _long(self, word: str, following: str | None) -> bool:
        written, joined, value = word.partition("=")
        flag = self._flags.get(written[2:].replace("_", "-"))
        if flag is None:
            self._unknown(written)
            # Most flags take a value: the next word is this one's, and not worth a second complaint.
            return not joined and following is not None and not following.startswith("-")
        return self._take(flag, written, value if joined else None, following)

    def _letters(self, word: str, following: str | None) -> bool:
        letters, joined, value = word[1:].partition("=")
        for position, letter in enumerate(letters):
            flag = self._short.get(letter)
            if flag is None:
                long = display(f"-{word}")
                hint = f"; flags of more than one letter begin with two dashes: {long}" if letters[1:] else ""
                self._problems.append(f"{display(word)}: there is no flag -{display(letter)}{hint}")
                return False
            attached = letters[position + 1 :]
            if flag.kind.bare is not None and attached:
                self._take(flag, f"-{letter}", None, None)
                continue
            raw = attached + joined + value if attached else (value if joined else None)
            return self._take(flag, f"-{letter}", raw, following)
        self._problems.append(f"{display(word)}: not a flag")
        return False

    def _take(self, flag: Flag[Any], written: str, raw: str | None, following: str | None) -> bool:
        """Store one occurrence; True when the following word was its value."""
        used = False
        shown = written
        if raw is None and flag.kind.bare is not None:
            raw = flag.kind.bare
        elif raw is None:
            if following is None or following.startswith("--"):
                hint = "" if following is None else f" ({display(following.partition('=')[0])} reads as the next flag)"
                return self._fail(flag, f"{written}: needs a value{hint}: {written}={flag.kind.metavar}", used)
            raw, used = following, True
            shown = f"{written}={display(raw)}"
        else:
            shown = f"{written}={display(raw)}"
        if flag.refused:
            return self._fail(flag, f"{written}: {flag.refused}", used)
        try:
            value = flag.kind.parse(raw)
        except ValueError as error:
            return self._fail(flag, f"{shown}: {error}", used)
        if flag.kind.repeated and flag.name in self._given:
            value = self._values[flag.name] + value
        wrong = flag.check(value) if flag.check else None
        if wrong:
            return self._fail(flag, f"{shown}: {wrong}", used)
        if flag.deprecated and flag.name not in self._given:
            self._warnings.append(f"{written} is deprecated: {flag.deprecated}")
        self._values[flag.name] = value
        self._given.add(flag.name)
        return used

    def _fail(self, flag: Flag[Any], problem: str, used: bool) -> bool:
        self._failed.add(flag.name)
        self._problems.append(problem)
        return used

    def _unknown(self, written: str) -> None:
        near = difflib.get_close_matches(written[2:].replace("_", "-"), self._flags, n=1, cutoff=0.75)
        hint = f"; did you mean --{near[0]}?" if near else ""
        self._problems.append(f"{display(written)}: there is no such flag{hint}")


def display(value: str) -> str:
    """A flag's value as it may be shown: on one line, at most 80 characters, without a URL's user and password."""
    value = re.sub(r"(?<=://)[^/@]*@", "...@", value)
    value = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in value)
    return value if len(value) <= 80 else value[:77] + "..."


def _parse_bool(raw: str) -> bool:
    if raw in _TRUE:
        return True
    if raw in _FALSE:
        return False
    raise ValueError("must be true or false")


def _plain(raw: str) -> str:
    """Python's own parsers also take spaces and digits of other scripts; Go's do not."""
    if not _NUMBER.fullmatch(raw):
        raise ValueError(raw)
    return raw


def _parse_int(raw: str) -> int:
    try:
        value = int(_plain(raw), 0)
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


def _parse_duration(raw: str) -> float:
    # durationpy alone lets "1m,30s" and units that Go lacks pass.
    if not _DURATION.fullmatch(raw):
        raise ValueError("must be a duration such as 300ms, 10s or 1m30s")
    try:
        seconds: float = durationpy.from_str(raw).total_seconds()
    except durationpy.DurationError:
        seconds = math.inf  # well-formed, so out of its range
    if abs(seconds) > 2**63 / 1e9:
        raise ValueError("must be less than 292 years")
    return seconds


def show_duration(seconds: float) -> str:
    """Seconds as Go prints them: 1m30s, 500ms, 5m0s, 0s."""
    if seconds < 0:
        return "-" + show_duration(-seconds)
    whole, fraction = divmod(round(seconds * 1e6), 1_000_000)
    if not whole:
        return f"{fraction / 1000:g}ms" if fraction else "0s"
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    last = f"{second + fraction / 1e6:.6f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minute}m{last}"
    return f"{minute}m{last}" if minute else last


def _parse_list(raw: str) -> tuple[str, ...]:
    """Comma-separated with CSV quoting, as pflag's string slice; spaces around names are not part of them."""
    if not raw:
        return ()
    try:
        rows = list(csv.reader([raw], strict=True))
    except csv.Error:
        raise ValueError("must be a comma-separated list") from None
    return tuple(word.strip() for word in rows[0])


STRING: Kind[str] = Kind("TEXT", str, str)
NAME: Kind[str] = Kind("NAME", str, str)
PATH: Kind[str] = Kind("PATH", str, str)
URL: Kind[str] = Kind("URL", str, str)
ADDRESS: Kind[str] = Kind("IP:PORT", str, str)
VERSION: Kind[str] = Kind("true|false|raw", str, str, bare="true")
INT: Kind[int] = Kind("INT", _parse_int, str)
FLOAT: Kind[float] = Kind("NUMBER", _parse_float, lambda value: f"{value:g}")
BOOL: Kind[bool] = Kind("true|false", _parse_bool, lambda value: "true" if value else "false", bare="true")
DURATION: Kind[float] = Kind("DURATION", _parse_duration, show_duration)
LIST: Kind[tuple[str, ...]] = Kind("NAME,...", _parse_list, ",".join, repeated=True)
