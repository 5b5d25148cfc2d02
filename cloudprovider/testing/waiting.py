"""Waiting in a test for something that happens in another thread, process or cloud, without blind
sleeps.

Where the test has a clock to move, it moves that instead."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.1


def eventually(
    predicate: Callable[[], T],
    timeout: float = 30.0,
    message: str | Callable[[], object] = "",
    *,
    changed: threading.Condition | None = None,
) -> T:
    """Call `predicate` until it returns something true, and return it; else AssertionError.

    A predicate may also assert: an AssertionError means "not yet", and the last one is the cause of
    the failure. Other exceptions come through at once. `message` says what was awaited; a function
    is called at the end, for the state then. Between two calls the thread waits on `changed`, if
    given, so that news is seen at once (it is held for the wait only, never while the predicate
    runs), and at most for a pause that grows from 5 to 100 ms."""
    __tracebackhide__ = True  # pytest shows the test's own line
    deadline = time.monotonic() + timeout
    news = threading.Condition() if changed is None else changed
    pause = _FIRST_PAUSE
    last: AssertionError | None = None
    value: object = None
    while True:
        try:
            found = predicate()
            if found:
                return found
            last, value = None, found
        except AssertionError as error:
            last = error
        left = deadline - time.monotonic()
        if left <= 0:
            break
        with news:
            news.wait(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)
    what = message if isinstance(message, str) else str(message())
    state = "" if last is not None else f" (last value: {value!r})"
    raise AssertionError(f"not within {timeout:g} s: {what or repr(predicate)}{state}") from last
