"""The known name that a misspelt one probably means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """The known name that is most like this one; "" where none is like it. `likeness`: from 0, any
    name will do, to 1."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)), "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question to append to a sentence without its full stop; "" where nothing is near."""
    near = nearest(name, known)
    return f". Did you mean {near!r}?" if near else ""
