"""What is wrong, as people read it: what happened and where, what to do, and which known name a
misspelt one probably means."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from attrs import frozen


@frozen
class Problem:
    """One thing that is wrong: what happened and where, and what to do. No full stops."""

    what: str
    fix: str
    details: tuple[str, ...] = ()
    """What is shown line by line, such as each mistake in a file."""
    fatal: bool = True
    """Whether a program must not start with it."""

    def __str__(self) -> str:
        """For people: one line, or with details several."""
        return sentences(self.what, self.details, self.fix)

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {"what": self.what, "details": list(self.details), "fix": self.fix, "fatal": self.fatal}


def sentences(what: str, details: Sequence[str], fix: str) -> str:
    """A problem as text for people: on one line, or with `details` on a line each. With the fix."""
    if details:
        return "\n".join([f"{what}:", *(f"  {line}" for line in details), *([f"Fix: {fix}."] if fix else [])])
    end = "" if what.endswith(("?", ".")) else "."
    return f"{what}{end} Fix: {fix}." if fix else f"{what}{end}"


def without_words(problem: str) -> str:
    """YAML's problem without the word behind `*` or `!`: a password without quotes may begin so."""
    return re.sub(r"\b(alias|tag|handle) ['\"].*", r"\1", problem, flags=re.DOTALL)


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """The known name that is most like this one; "" where none is like it. `likeness`: from 0, any
    name will do, to 1."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)), "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question to append to a sentence without its full stop; "" where nothing is near."""
    near = nearest(name, known)
    return f". Did you mean {near!r}?" if near else ""
