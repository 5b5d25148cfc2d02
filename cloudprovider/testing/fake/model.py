"""What the configuration's models share: strict fields, durations, patterns (read by faults.py and config.py)."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Annotated, Any

import durationpy
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt

__all__ = ["Count", "Duration", "Model", "Patterns", "as_patterns"]


class Model(BaseModel):
    """Base of every section: immutable, and an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _duration(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError('a duration is a number of seconds or a text like "1m30s"')
    if isinstance(value, str):
        try:
            parsed = durationpy.from_str(value)
        except durationpy.DurationError:
            raise ValueError('a duration is a number of seconds or a text like "1m30s"') from None
        assert isinstance(parsed, timedelta)
        value = parsed.total_seconds()
    if isinstance(value, int | float) and not (math.isfinite(value) and value >= 0):
        raise ValueError("a duration must be finite and not negative")
    return value


Duration = Annotated[float, BeforeValidator(_duration)]
"""Seconds; in a file also Go's form, "200ms" or "1m30s"."""

Count = Annotated[StrictInt, Field(ge=0)]

Patterns = str | tuple[str, ...]
"""One or several shell-style patterns."""


def as_patterns(value: Patterns) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value
