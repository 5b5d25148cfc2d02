"""The one cleaning of every text that leaves the process, so that nothing of ours shows a secret or
forges a line: log lines, tracebacks, Events (a tenant reads them), health details.

A text is cut to what will be looked at, so that megabytes cost no more than a line; the values of
the cloud config are masked (`masking.py`), what looks like a credential is redacted
(`redaction.py`), line breaks and control characters are escaped. Pure, but for what the process
conceals."""

from __future__ import annotations

import re
import threading
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final

from cloudprovider.internal.masking import Mask, forms, secret_values
from cloudprovider.internal.redaction import redact

LONGEST: Final = 4096
"""Characters of a log message."""
LONGEST_ERROR: Final = 1000
"""Characters of an exception's message, which is a part of a log message or an Event."""
LONGEST_STACK: Final = 16384
"""Characters of a traceback, its whole chain."""
WINDOW: Final = 12
"""So long a piece of a secret gives it away."""

_MOST_LOADED: Final = 16  # sets of values; a secret that rotates each hour must not fill the memory

_CHAIN: Final = 8  # exceptions of one chain
_FRAMES: Final = 24  # of one exception, the innermost
_MEMBERS: Final = 4  # of an exception group, and notes of one exception
_MARGIN: Final = 1024  # looked at beyond the bound, so that a secret across it is recognised
_LEFT: Final = 24  # of that, what is left of a secret across its own end may be too short to be recognised
_ELSEWHERE: Final = re.compile(r"[^ -~]")  # what is not plain ASCII, and has to be looked at


class Cleaner:
    """Cleans texts, hiding one set of values, but for what stands within a text of `keep`.
    Immutable; for any thread."""

    def __init__(self, values: Iterable[str] = (), *, window: int = WINDOW, keep: Iterable[str] = ()) -> None:
        self.values = frozenset(values)
        self._mask = Mask((form for value in self.values for form in forms(value)), window=window, keep=keep)

    def line(self, value: object, limit: int = LONGEST, *, fold: bool = False) -> str:
        """Any object's text on one line of at most `limit` characters, even if its ``str`` raises.

        With `fold`, each run of blanks and line breaks is shown as one blank."""
        text = _text(value)
        shown = redact(self._mask.apply(text[: limit + _MARGIN]))
        if len(text) > limit + _MARGIN:
            shown = shown[:-_LEFT]
        shown = _escaped(" ".join(shown.split()) if fold else shown)
        if len(text) <= limit + _MARGIN and len(shown) <= limit:
            return shown
        return f"{shown[: limit - 3]}..."

    def stack(self, error: BaseException, limit: int = LONGEST_STACK) -> str:
        """The traceback of `error` and of what it is chained to, as Python prints it, cleaned.

        Every line begins with a space, so none can pass for a log line; a message is one line, so
        none can pass for a frame. The outermost exceptions and the innermost frames are kept where
        there are too many."""
        lines: list[str] = []
        length = 0
        for part in _parts(error):
            line = "  " + self.line(part)
            length += len(line) + 1
            if length > limit:
                lines.append("  ... (cut)")
                break
            lines.append(line)
        return "\n".join(lines)


_lock = threading.Lock()
_always: frozenset[str] = frozenset()
_loaded: deque[frozenset[str]] = deque(maxlen=_MOST_LOADED)
_of_process = Cleaner()


def of_process() -> Cleaner:
    """The cleaner that hides all that is to be concealed."""
    return _of_process


def conceal(values: Iterable[str], *, loaded: bool = False) -> None:
    """From now on nothing of this process shows these values, at any boundary. Calls add up.

    `loaded`: of a configuration, which may be loaded again with others; the latest are kept."""
    global _always, _of_process
    new = frozenset(values)
    with _lock:
        if loaded:
            if new in _loaded:
                _loaded.remove(new)
            _loaded.append(new)
        else:
            _always |= new
        known = _always.union(*_loaded)
        if known != _of_process.values:
            _of_process = Cleaner(known)


def conceal_config(data: bytes | None) -> None:
    """Conceal the secrets of a cloud config."""
    if data:
        conceal(secret_values(data))


def one_line(value: object, limit: int = LONGEST) -> str:
    """`Cleaner.line` with all that the process conceals."""
    return _of_process.line(value, limit)


def text_of(error: object) -> str:
    """An exception's message on one line, fit for a log message or an Event. Cleaned before it is
    cut: half a secret is not recognised."""
    return _of_process.line(error, LONGEST_ERROR, fold=True)


def stack_of(error: BaseException, limit: int = LONGEST_STACK) -> str:
    """`Cleaner.stack` with all that the process conceals."""
    return _of_process.stack(error, limit)


def _text(value: object) -> str:
    try:
        return str(value)
    except (Exception, SystemExit) as broken:  # noqa: BLE001 - foreign classes; a message that fails costs no more
        return f"(its message cannot be shown: {type(broken).__name__})"


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return _ELSEWHERE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    letter = match[0]
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()


def _parts(error: BaseException) -> Iterator[str]:
    """The chain from the cause to the error, line by line; bounded in links, frames and members."""
    links: list[tuple[BaseException, str]] = []
    seen: set[int] = set()
    link: BaseException | None = error
    how = ""
    while link is not None and id(link) not in seen and len(links) < _CHAIN:
        seen.add(id(link))
        links.append((link, how))
        if link.__cause__ is not None:
            link, how = link.__cause__, "The above exception was the direct cause of the following exception:"
        elif link.__context__ is not None and not link.__suppress_context__:
            link, how = link.__context__, "During handling of the above exception, another exception occurred:"
        else:
            link = None
    if link is not None:
        yield "(earlier exceptions of this chain are left out)"
    for number, (one, how) in enumerate(reversed(links)):
        if number:
            yield ""
        yield from _one(one)
        if how:
            yield ""
            yield how


def _one(error: BaseException, depth: int = 0) -> Iterator[str]:
    frames = _frames(error.__traceback__)
    if frames:
        yield "Traceback (most recent call last):"
        yield from frames
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    text = _text(error)
    yield f"{name}: {text}" if text else name
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list | tuple):
        yield from (_text(note) for note in notes[:_MEMBERS])
    if isinstance(error, BaseExceptionGroup) and depth < 2:
        for number, member in enumerate(error.exceptions[:_MEMBERS], 1):
            yield f"--- {number} of {len(error.exceptions)} in this group:"
            yield from _one(member, depth + 1)


def _frames(trace: TracebackType | None) -> list[str]:
    formatted = traceback.format_list(traceback.extract_tb(trace, limit=-_FRAMES))
    return [line for entry in formatted for line in entry.rstrip("\n").split("\n")]
