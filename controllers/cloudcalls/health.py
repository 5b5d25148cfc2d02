"""How the calls to the cloud are doing (stage 5, cloud call): for health checks and last words."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from attrs import frozen

from controllers.cloudcalls.call import CloudCall
from controllers.cloudcalls.outage import Outage
from controllers.cloudcalls.pool import CallPool

_TROUBLE_AFTER = 5.0  # seconds of failures without one answer until health says so


@frozen
class OverdueCall:
    """A call that was given up and still runs."""

    method: str
    key: str
    """What it is about: the parked key, or a description of the batch."""
    seconds: float
    """Since it began."""


@frozen
class CallHealth:
    """How the calls to the cloud are doing."""

    ok: bool
    """False while any call is overdue, or the cloud has answered none for a while."""
    fatal: bool
    """More threads are lost than allowed: the process should end with 1. Never turns back."""
    message: str
    overdue: tuple[OverdueCall, ...] = ()
    """The longest first."""


def health_of(pool: CallPool, outage: Outage, usual_timeout: float, now: float) -> CallHealth:
    """Cheap."""
    calls = sorted(pool.overdue(), key=lambda call: call.started)
    overdue = tuple(overdue_of(call, now) for call in calls)
    trouble = outage.trouble()
    if trouble is not None and now - trouble.since < _TROUBLE_AFTER:
        trouble = None
    if fatal := pool.fatal():
        return CallHealth(False, True, fatal, overdue)
    problems: list[str] = []
    if overdue:
        blamed = sorted(calls, key=lambda call: not call.key)[:3]  # of a batch, hardly anyone is to blame
        shown = ", ".join(f"{call.method} for {call.shown} since {now - call.started:.0f} s" for call in blamed)
        problems.append(f"overdue: {shown}{_and_more(overdue)}")
    slow = sorted(
        f"{call.method} for {call.key} since {now - call.started:.0f} of at most {call.timeout:.0f} s"
        for call in pool.running()
        if call.key and now - call.started >= usual_timeout
    )
    if slow:
        problems.append(f"slow: {', '.join(slow[:3])}{_and_more(slow)}")
    if trouble is not None:
        problems.append(
            f"every call has failed for {now - trouble.since:.0f} s ({trouble.calls} calls), the last one:"
            f" {trouble.last}"
        )
    return CallHealth(not overdue and trouble is None, False, "; ".join(problems) or "ok", overdue)


def overdue_of(call: CloudCall[Any], now: float) -> OverdueCall:
    """The call, for those who ask how it is."""
    return OverdueCall(call.method, call.shown, now - call.started)


def _and_more(shown: Sized) -> str:
    """What is said after the first three."""
    return f" and {len(shown) - 3} more" if len(shown) > 3 else ""
