"""Calls of a provider as the host makes them: many at once, with a deadline, or cancelled.

Each call runs in a daemon thread of its own, so that one that never returns fails its scenario and
no more. `TextLog` has what is logged meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Final, Generic, TypeVar

from attrs import define

from cloudprovider.call import Call
from cloudprovider.checks.answers import WrongAnswer
from cloudprovider.errors import InstanceNotFound
from cloudprovider.internal.readonly import ReadOnlyObject
from cloudprovider.threads import Task

R = TypeVar("R")
K = TypeVar("K")
_AGAIN: Final = 3.0


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


@contextmanager
def unchanged(what: str) -> Iterator[None]:
    """AssertionError where the provider changes an argument, which is read-only, as the host's."""
    try:
        yield
    except ReadOnlyObject as error:
        raise AssertionError(f"{what} changes what it is given: {error}") from None


def one_a_line(problems: Iterable[str]) -> str:
    """All problems, one a line."""
    return "\n  ".join(["", *problems])


def right(what: str, check: Callable[..., R], answer: object, **facts: Any) -> R:
    """The answer, as a check of `cloudprovider.checks.answers` passes it on. AssertionError with
    all that is wrong with it."""
    try:
        return check(answer, **facts)
    except WrongAnswer as wrong:
        raise AssertionError(f"{what}:{one_a_line(wrong.problems)}") from None


def exists(method: Callable[[K], object], about: K) -> bool:
    """What the host makes of a method that says whether an instance exists: a raised
    InstanceNotFound means the same as False."""
    try:
        answer = method(about)
    except InstanceNotFound:
        return False
    assert isinstance(answer, bool), f"{method.__name__} answered {answer!r}, not True or False"
    return answer


def at_once(calls: Sequence[Callable[[], R]], *, within: float = 300.0) -> list[Outcome[R]]:
    """Make all calls at the same time, each in a thread of its own; their outcomes in the same
    order.

    Raises AssertionError when one has not ended after `within` seconds.
    """
    # All begin together: threads that start one by one rarely meet in the provider.
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], R]) -> Outcome[R]:
        gate.wait()
        return attempt(call)

    tasks = [Task(partial(run, call), "conformance-call") for call in calls]
    end = time.monotonic() + within
    late = sum(not task.wait(max(0.0, end - time.monotonic())) for task in tasks)
    assert not late, f"{late} of {len(calls)} calls at once never ended"
    return [task.result() for task in tasks]


def limited(
    call: Callable[[], R], *, deadline: float | None = None, grace: float = 1.0, cancelled: bool = False
) -> Outcome[R]:
    """Make a call whose `current_call()` has a deadline, in seconds from now, or is cancelled
    already.

    Raises AssertionError when it has not ended `grace` seconds after its deadline. A call that is
    late once is made again with `_AGAIN` times of both: a busy machine is late by some seconds, a
    client that repeats its requests by a multiple.
    """
    stop = threading.Event()
    if cancelled:
        stop.set()
    given = deadline or 0.0
    # A deadline of 0 is over before the call begins: more time would change nothing.
    for times in (1.0, _AGAIN) if given else (1.0,):
        until = None if deadline is None else time.monotonic() + times * given
        task = Task(lambda: attempt(call), "conformance-call", call=Call(deadline=until, cancelled=stop))
        if task.wait(times * (given + grace)):
            return task.result()
    raise AssertionError(
        f"the call has not ended {grace:g} s after its deadline of {given:g} s. Give each request a time limit, "
        "cloudprovider.helpers.time_limit(); if it has one, your client's own retries multiply it: turn them off "
        "(urllib3, requests: retries=False; boto3: max_attempts), as the host tries again"
    )


def unwell(question: str, call: Callable[[], R], why: str = "the cloud could not answer") -> BaseException:
    """Ask something that cannot be answered now. Returns what was raised.

    Raises AssertionError when it answered, or said that the instance is gone.
    """
    outcome = attempt(call)
    assert outcome.error is not None, f"{question} answered {outcome.value!r} while {why}: it must raise"
    assert not isinstance(outcome.error, InstanceNotFound), (
        f"{question} raised InstanceNotFound while {why}: {_gone_means(question)}"
    )
    return outcome.error


def _gone_means(method: str) -> str:
    """What the host makes of InstanceNotFound from this method."""
    if method.startswith(("instance_", "node_addresses")):
        return "the host would delete the node"
    if method == "create_route":
        return "the host would take the node's machine for gone, and leave it without its route"
    if method.startswith("local_"):
        return "the machine would boot as if it were no instance of this cloud"
    if method.startswith("get_zone"):
        return "the host would take the node's machine for gone, and set no zone"
    return "that is the cloud's word about a machine, which this method is not asked for. Raise CloudProviderError"


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
        # What is shown at the highest verbosity is shown: operators turn it on when something is
        # wrong.
        root.setLevel(logging.DEBUG)
        root.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        root = logging.getLogger()
        root.removeHandler(self)
        root.setLevel(self._level)


@contextmanager
def mended(broken: AbstractContextManager[object]) -> Iterator[None]:
    """The lab's context manager, which may have been written without try and finally."""
    raised: BaseException | None = None
    with broken:
        try:
            yield
        # Raised into the lab's generator, it would skip the line behind `yield` that mends the
        # cloud.
        except BaseException as error:  # noqa: BLE001 - raised again once the cloud is mended
            raised = error
    if raised is not None:
        raise raised
