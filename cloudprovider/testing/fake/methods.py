"""The methods of the fake cloud by name, and what the gate and the call log know of each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache
from typing import Final

from attrs import frozen

Patterns = str | tuple[str, ...]
"""One or several shell-style patterns."""


@frozen
class Method:
    """One method: whether it changes the cloud, or takes many nodes."""

    name: str
    changes: bool = False
    batch: bool = False


METHODS: Final[dict[str, Method]] = {"initialize": Method("initialize")}
"""By name, which the contract never repeats across capabilities. `gate.carried` fills it."""


@lru_cache(maxsize=512)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{translate(pattern)})" for pattern in patterns))


def matches(patterns: Patterns, names: Iterable[str]) -> bool:
    """Whether any of the names matches any of the shell-style patterns, case and all. Empty names
    never match."""
    # One expression for all patterns, kept: every call of a large test asks here.
    pattern = _compiled((patterns,) if isinstance(patterns, str) else tuple(patterns))
    return any(name and pattern.match(name) for name in names)
