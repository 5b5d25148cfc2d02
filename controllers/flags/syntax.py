"""Go's command-line syntax: from argv to raw values, all problems collected. No I/O. argparse stops
at the first problem and reads `--controllers -route` as two flags, so it writes the help alone.

The syntax is that of spf13/pflag: `--flag=value` and `--flag value`; booleans `--flag` and
`--flag=false`; shorthands `-v2`, `-v=2`, `-v 2`; underscores equal dashes in names; the last value
of a repeated flag wins, except for lists, which grow; `--` ends the flags. One deviation: a value
that begins with `--` must be joined with `=`, so that a forgotten value does not take a flag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from cloudprovider.internal.problem import nearest
from controllers.options.declare import CLASSIFIED, Flag
from controllers.options.kinds import INT, IP, STRING, display, is_octal


@attrs.frozen
class Parsed:
    """Values by flag name (defaults included), valid and invalid flags, and the problems."""

    values: dict[str, Any]
    given: frozenset[str]
    failed: frozenset[str]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def parse(flags: Iterable[Flag[Any]], argv: Sequence[str], removed: Mapping[str, str] | None = None) -> Parsed:
    """Read `argv` (without the program's name) against the table. `removed`: what to do about flags
    that are gone.

    Never raises for bad input: each problem becomes one line that begins with the flag as the user
    wrote it, in the order of argv. Pure; may be called from any thread.
    """
    return _Parser(flags, removed or {}).run(list(argv))


def read(flag: Flag[Any], raw: str) -> Any:
    """One value as it is typed; raises ValueError in a sentence, as `parse` would list it."""
    value = flag.kind.parse(raw)
    wrong = flag.check(value) if flag.check else None
    if wrong:
        raise ValueError(f"{CLASSIFIED if flag.secret else display(raw)}: {wrong}")
    return value


class _Parser:
    def __init__(self, flags: Iterable[Flag[Any]], removed: Mapping[str, str]) -> None:
        self._flags = {flag.name: flag for flag in flags}
        self._removed = removed
        self._short = {flag.shorthand: flag for flag in self._flags.values() if flag.shorthand}
        self._values = {name: flag.default for name, flag in self._flags.items()}
        self._given: dict[str, None] = {}  # in the order of argv
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
        self._add_notes()
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
            # Most flags take a value: the next word is this one's, and not worth a second
            # complaint.
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
            # As pflag: letters of switches may stand together, and the last may have a value.
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
        shown, hide = written, CLASSIFIED if flag.secret else ""
        if raw is None and flag.kind.bare is not None:
            raw = flag.kind.bare
        elif raw is None:
            # A forgotten value must not swallow the next flag. Here pflag would take it.
            if following is None or following.startswith("--"):
                hint = "" if following is None else f" ({display(following.partition('=')[0])} reads as the next flag)"
                return self._fail(flag, f"{written}: needs a value{hint}: {written}={flag.kind.metavar}", used)
            raw, used = following, True
            shown = f"{written}={hide or display(raw)}"
        else:
            shown = f"{written}={hide or display(raw)}"
        # Of a template, say. Not a name, which says whose something is; nor a number, as in Go.
        if not raw and flag.default and flag.kind in (STRING, IP):
            raw = flag.kind.show(flag.default)
            self._warnings.append(f"{written}: is empty, so its default counts: {display(raw)}")
        try:
            value = flag.kind.parse(raw)
        except ValueError as error:
            return self._fail(flag, f"{shown}: {error}", used)
        if flag.kind is INT and is_octal(raw) and value != int(raw):
            self._warnings.append(f"{shown}: is read as octal, as in Go: {display(flag.kind.show(value))}")
        # As pflag: lists grow, of all others the last one counts.
        if flag.kind.repeated and flag.name in self._given:
            before = self._values[flag.name]
            value = {**before, **value} if isinstance(value, dict) else before + value
        wrong = flag.check(value) if flag.check else None
        if wrong:
            return self._fail(flag, f"{shown}: {wrong}", used)
        if flag.deprecated and flag.name not in self._given:
            self._warnings.append(f"{written} is deprecated: {flag.deprecated}")
        self._values[flag.name] = value
        self._given[flag.name] = None
        return used

    def _add_notes(self) -> None:
        """At the end, when it is known which of several values of a flag counts."""
        for name in self._given:
            flag, value = self._flags[name], self._values[name]
            note = flag.note(value) if flag.note and name not in self._failed else None
            if note:
                shown = "" if flag.kind.bare == flag.kind.show(value) else f"={display(flag.kind.show(value))}"
                self._warnings.append(f"--{name}{shown}: {note}")

    def _fail(self, flag: Flag[Any], problem: str, used: bool) -> bool:
        self._failed.add(flag.name)
        self._problems.append(problem)
        return used

    def _unknown(self, written: str) -> None:
        name = written[2:].replace("_", "-")
        if name in self._removed:
            self._problems.append(f"{display(written)}: this flag was removed; {self._removed[name]}")
            return
        # Close ones alone: a wrong guess in a manifest costs more than none.
        near = nearest(name, self._flags, 0.75)
        hint = f"; did you mean --{near}?" if near else ""
        self._problems.append(f"{display(written)}: there is no such flag{hint}")
