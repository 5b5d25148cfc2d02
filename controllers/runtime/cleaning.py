"""The one cleaning of every text that leaves the manager: log lines, tracebacks, Events, health
details, last words.

Some of those who read it may not see what the manager may: an Event is read by a tenant. What
happens to a text, and what the process conceals: `cloudprovider.internal.cleaning`."""

from __future__ import annotations

from cloudprovider.internal.cleaning import LONGEST, LONGEST_ERROR, LONGEST_STACK, conceal, of_process
from cloudprovider.internal.masking import secret_values

__all__ = ["conceal", "conceal_config", "one_line", "stack_of", "text_of"]


def conceal_config(data: bytes | None) -> None:
    """Conceal the secrets of a cloud config."""
    if data:
        conceal(secret_values(data))


def one_line(value: object, limit: int = LONGEST) -> str:
    """`Cleaner.line` with all that is to be concealed."""
    return of_process().line(value, limit)


def text_of(error: object) -> str:
    """An exception's message on one line, fit for a log message or an Event. Cleaned before it is
    cut: half a secret is not recognised."""
    return of_process().line(error, LONGEST_ERROR, fold=True)


def stack_of(error: BaseException, limit: int = LONGEST_STACK) -> str:
    """`Cleaner.stack` with all that is to be concealed."""
    return of_process().stack(error, limit)
