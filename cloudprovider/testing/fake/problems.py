"""How problems of a configuration are told: one line each, "path: what is wrong", without quoting unknown values."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

__all__ = ["dotted", "pydantic_problems"]

_ACTIONS = frozenset({"raise", "throttle", "hang", "wrong", "partial", "expired-credentials", "half-built"})
_NO_FIELDS = _ACTIONS | {"str", "tuple[str, ...]", "[key]"}
"""What pydantic puts into a path though it is no field: members of unions, and keys of mappings."""


def dotted(path: Sequence[str | int]) -> str:
    """The way to a field: ``instances[3].addresses.InternalIP``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def pydantic_problems(error: ValidationError, *prefix: str | int) -> list[str]:
    """A line for each error, in the order of the fields."""
    lines: dict[str, None] = {}
    for detail in error.errors(include_url=False, include_context=False, include_input=False):
        path = [part for part in detail["loc"] if not (isinstance(part, str) and part in _NO_FIELDS)]
        message = detail["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
        if detail["type"] == "extra_forbidden":
            message = "no such field"
        elif detail["type"] == "string_pattern_mismatch":
            message = "should consist of small letters, digits, dashes and dots, with a letter or digit at both ends"
        elif detail["type"] == "missing":
            message = "is required"
        elif detail["type"] == "union_tag_not_found":
            path.append("action")
            message = "is required"
        elif detail["type"] == "union_tag_invalid":
            path.append("action")
            message = "no such action; there are " + ", ".join(sorted(_ACTIONS))
        where = dotted([*prefix, *path])
        lines[f"{where}: {message}" if where else message] = None
    return list(lines)
