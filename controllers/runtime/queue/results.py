"""What a reconcile returns or raises (stage 4). What follows from it says `outcomes.py`."""

import math
from concurrent.futures import Future
from typing import Any, TypeGuard

from attrs import field, frozen

from cloudprovider.internal.cleaning import text_of


def _seconds(instance: object, attribute: object, value: float | None) -> None:
    if value is not None and not _is_delay(value):
        raise ValueError(f"requeue_after must be a number of seconds from 0, or None, got {value!r}")


@frozen
class Result:
    """What a reconcile that succeeded returns. `requeue_after` (seconds) has the key run again
    without an event, with `priority`; None keeps the priority of this run."""

    requeue_after: float | None = field(default=None, validator=_seconds)
    priority: int | None = None
    routine: bool = False
    """Nothing is left to do: it runs again only because time passes."""
    early: bool = False
    """What failed before was not tried again, as it is not time yet: it counts as failing still."""


DONE = Result()


class TerminalError(Exception):
    """Not retried: the key rests until its next event. Logged and counted as an error."""


class AskAgain(Exception):
    """The answer that came with the key is about another object than is there now. Nothing failed:
    the key goes through its fetch again at once."""


class Parked(Exception):
    """The work on the key goes on elsewhere, in a call that nobody waits for any longer.

    `until` ends, in whatever way, when that call does. Until then no worker gets the key."""

    def __init__(self, until: Future[Any], message: str = "") -> None:
        super().__init__(message or "the work goes on in a call that has not ended")
        self.until = until


class Aborted(Exception):
    """A run ended with something meant to end a thread or the process (SystemExit ...)."""


def aborted(error: BaseException) -> Aborted:
    """What a BaseException is to its key: one more failure."""
    wrapped = Aborted(f"the run ended with {type(error).__name__}: {text_of(error)}")
    wrapped.__cause__ = error
    return wrapped


def retry_after_of(error: BaseException) -> float | None:
    """The seconds that an exception asks for, None where it has no usable `retry_after`."""
    value: object = getattr(error, "retry_after", None)
    return float(value) if _is_delay(value) else None


def _is_delay(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
