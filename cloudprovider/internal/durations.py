"""Durations as Go writes them. Pure.

Follows: Go's time.ParseDuration and time.Duration.String."""

from __future__ import annotations

import math
import re
from typing import Final

DESCRIBED: Final = "a duration such as 300ms, 10s or 1m30s"

# Possessive: strangers and users write them, and digits divided in many ways take minutes.
_DIGITS = r"[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++"
_DURATION = re.compile(rf"[+-]?(?:0|(?:(?:{_DIGITS})(?:ns|us|µs|μs|ms|s|m|h))++)")
_PART = re.compile(rf"({_DIGITS})(ns|us|µs|μs|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST = 2**63 / 1e9  # Go counts nanoseconds in 64 bits


def parse_duration(text: str) -> float:
    """Seconds from a duration as Go writes it: "300ms", "10s", "1m30s". Raises ValueError, which
    names the form."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"must be {DESCRIBED}")
    seconds = math.fsum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if seconds > _LONGEST:
        raise ValueError("must be less than 292 years")
    return -seconds if text.startswith("-") else seconds


def show_duration(seconds: float) -> str:
    """Seconds as Go prints them: "1h0m0s", "1m30s", "1.5s", "300ms", "0s". `parse_duration` reads
    it back."""
    if seconds < 0:
        return "-" + show_duration(-seconds)
    nanoseconds = round(seconds * 1e9)
    if 0 < nanoseconds < 10**9:
        return f"{_decimal(nanoseconds, 10**6)}ms"
    minutes, rest = divmod(nanoseconds, 60 * 10**9)
    hours, minute = divmod(minutes, 60)
    last = f"{_decimal(rest, 10**9)}s"
    if hours:
        return f"{hours}h{minute}m{last}"
    return f"{minute}m{last}" if minute else last


def _decimal(number: int, unit: int) -> str:
    """The number in units of a power of ten, exactly."""
    whole, rest = divmod(number, unit)
    return f"{whole}.{rest:0{len(str(unit)) - 1}}".rstrip("0") if rest else str(whole)
