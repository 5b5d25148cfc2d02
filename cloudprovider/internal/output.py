"""A program's result, whole and alone: on standard output, or in a file; and its tables.

A command that prints a result for machines (a plan, a report as JSON) does its work inside
:func:`results_only`. Meanwhile whatever else writes to standard output lands on standard error:
`print` in plugins, C code that writes to the descriptor, child processes, which inherit it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TextIO

_OUT, _ERR = 1, 2


@contextmanager
def results_only() -> Iterator[TextIO]:
    """Standard output for the caller alone, as the stream that it gets; all other writes go to
    standard error until the end. For the whole process, so for one caller at a time. A program
    without standard output writes to nowhere."""
    original = sys.stdout
    stream: TextIO
    _flush(original)
    with ExitStack() as stack:
        if sys.__stdout__ is None:  # the program was started without one: the descriptor may be another file's already
            stream = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        else:
            saved = fcntl.fcntl(_OUT, fcntl.F_DUPFD_CLOEXEC, _ERR + 1)
            stack.callback(_put_back, saved)
            _divert()
            stack.callback(_flush, original)
            if _descriptor(original) != _OUT:
                stream = original  # another one was put in its place, which has its own way
            else:
                stream = stack.enter_context(
                    open(saved, "w", encoding=original.encoding, errors=original.errors, closefd=False)
                )
        stack.enter_context(redirect_stdout(sys.stderr))
        yield stream


def _divert() -> None:
    """Standard output's descriptor is standard error's from now on."""
    if sys.__stderr__ is not None:
        os.dup2(_ERR, _OUT)
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _OUT)
    os.close(nowhere)


def _put_back(saved: int) -> None:
    os.dup2(saved, _OUT)
    os.close(saved)


def _descriptor(stream: TextIO) -> int:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return -1


def _flush(stream: TextIO | None) -> None:
    """Nothing that was written before must come out afterwards: from Python or C."""
    if stream is not None:
        with suppress(OSError, ValueError):
            stream.flush()
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).fflush(None)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """A table: each row a line, each column as wide as its longest cell, but for the last one."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return "\n".join(
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in rows
    )


def counted(number: int, noun: str) -> str:
    """ "1 item", "2 items"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def write_whole(path: Path, content: bytes, mode: int) -> None:
    """Write a new file with this mode, and put it in the place of the old one. Raises OSError, and
    then leaves the old one as it was."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
