"""What an exception says by the exceptions that it was explicitly raised from. Pure.

"Chained errors count" means explicit chains: `raise MyError() from Throttled()` is a Throttled, as
Go's `%w` would have it. An exception that merely happened while another was handled
(`__context__`) says nothing: a lookup that fails with a timeout inside `except InstanceNotFound:`
must never count as "gone"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_MOST: Final = 32


def links(error: BaseException) -> Iterator[BaseException]:
    """The exception and its explicit causes, outermost first; bounded: chains may have loops."""
    link: BaseException | None = error
    for _ in range(_MOST):
        if link is None:
            return
        yield link
        # Not __context__: a timeout while another error was handled must not count as that error.
        link = link.__cause__


def means(error: BaseException, *kinds: type[BaseException]) -> bool:
    """Whether it, or an exception that it was raised from, is one of these."""
    return any(isinstance(link, kinds) for link in links(error))
