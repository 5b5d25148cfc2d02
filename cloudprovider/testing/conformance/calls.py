"""Calls of a provider as the host makes them: many at once, with a deadline, or cancelled.

Each call runs in a daemon thread of its own, so that one that never returns fails its scenario and no more.
`TextLog` has what is logged meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Generic, TypeVar

from attrs import define

from cloudprovider.call import Call, call_scope
from cloudprovider.errors import InstanceNotFound

__all__ = ["Outcome", "TextLog", "at_once", "attempt", "limited", "unwell"]

R = TypeVar("R")


@define
class Outcome(Generic[R]):
    """How a call ended: with a value, or by raising."""

    value: R | None = None
    error: BaseException | None = None

    def get(self) -> R:
        """The value; raises what the call raised."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # without an error there is a value

    def __str__(self) -> str:
        return f"answered {self.value!r}" if self.error is None else f"raised {shown(self.error)}"


def shown(error: BaseException) -> str:
    """An exception's class and message."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def attempt(call: Callable[[], R]) -> Outcome[R]:
    """Make a call, whatever it raises."""
    try:
        return Outcome(value=call())
    except Exception as error:  # noqa: BLE001 - vendor boundary: the scenario judges whatever was raised
        return Outcome(error=error)


def at_once(calls: Sequence[Callable[[], R]], *, within: float = 300.0) -> list[Outcome[R]]:
    """Make all calls at the same time, each in a thread of its own; their outcomes in the same order.

    Raises AssertionError when one has not ended after `within` seconds.
    """
    outcomes: list[Outcome[R] | None] = [None] * len(calls)
    gate = threading.Barrier(len(calls))

    def run(index: int) -> None:
        gate.wait()
        outcomes[index] = attempt(calls[index])

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    end = time.monotonic() + within
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    ended = [outcome for outcome in outcomes if outcome is not None]
    assert len(ended) == len(calls), f"{len(calls) - len(ended)} of {len(calls)} calls at once never ended"
    return ended


def limited(
    call: Callable[[], R], *, deadline: float | None = None, grace: float = 1.0, cancelled: bool = False
) -> Outcome[R]:
    """Make a call whose `current_call()` has a deadline, in seconds from now, or is cancelled already.

    Raises AssertionError when it has not ended `grace` seconds after its deadline.
    """
    stop = threading.Event()
    if cancelled:
        stop.set()
    until = None if deadline is None else time.monotonic() + deadline
    outcome: Outcome[R] = Outcome()

    def run() -> None:
        with call_scope(Call(deadline=until, cancelled=stop)):
            made = attempt(call)
        outcome.value, outcome.error = made.value, made.error

    context = copy_context()
    thread = threading.Thread(target=lambda: context.run(run), daemon=True)
    thread.start()
    thread.join((deadline or 0.0) + grace)
    assert not thread.is_alive(), (
        f"the call has not ended {grace:g} s after its deadline. Pass current_call().remaining() on as the time "
        "limit of each request"
    )
    return outcome


def unwell(question: str, call: Callable[[], R]) -> BaseException:
    """Ask something that cannot be answered now. Returns what was raised.

    Raises AssertionError when it answered, or said that the instance is gone.
    """
    outcome = attempt(call)
    assert outcome.error is not None, (
        f"{question} answered {outcome.value!r} while the cloud could not answer: it must raise"
    )
    assert not isinstance(outcome.error, InstanceNotFound), (
        f"{question} raised InstanceNotFound while the cloud could not answer: the host would delete the node"
    )
    return outcome.error


class TextLog(logging.Handler):
    """Every record of every logger while the with statement lasts, as text."""

    def __init__(self) -> None:
        super().__init__(level=0)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def __enter__(self) -> TextLog:
        root = logging.getLogger()
        self._level = root.level
        root.setLevel(logging.DEBUG)
        root.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        root = logging.getLogger()
        root.removeHandler(self)
        root.setLevel(self._level)
