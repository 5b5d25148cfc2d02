"""The one cleaning of every text that leaves the manager: log lines, tracebacks, Events, health
details, last words.

Some of those who read it may not see what the manager may: an Event is read by a tenant. What
happens to a text: `cloudprovider.internal.cleaning`. What must not be shown is known to the process
as a whole (`conceal`), as logging is the process's."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from cloudprovider.internal.cleaning import LONGEST, LONGEST_ERROR, LONGEST_STACK, Cleaner
from cloudprovider.internal.masking import secret_values

_lock = threading.Lock()
_cleaner = Cleaner()


def conceal(values: Iterable[str]) -> None:
    """From now on nothing of this process shows these values, at any boundary. Calls add up."""
    global _cleaner
    with _lock:
        known = _cleaner.values
        added = known.union(values)
        if added != known:
            _cleaner = Cleaner(added)


def conceal_config(data: bytes | None) -> None:
    """Conceal the secrets of a cloud config."""
    if data:
        conceal(secret_values(data))


def one_line(value: object, limit: int = LONGEST) -> str:
    """`Cleaner.line` with all that is to be concealed."""
    return _cleaner.line(value, limit)


def text_of(error: object) -> str:
    """An exception's message on one line, fit for a log message or an Event. Cleaned before it is
    cut: half a secret is not recognised."""
    return _cleaner.line(error, LONGEST_ERROR, fold=True)


def stack_of(error: BaseException, limit: int = LONGEST_STACK) -> str:
    """`Cleaner.stack` with all that is to be concealed."""
    return _cleaner.stack(error, limit)
