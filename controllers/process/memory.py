"""Memory that goes back to the system when it is free.

The C library gives each thread a heap of its own and keeps what was freed there. Here almost all of
that are pages of lists: 20 to 30 MB at 5,000 nodes."""

from __future__ import annotations

import os
from typing import Final

_ARENA_MAX: Final = -8  # M_ARENA_MAX of glibc's malloc.h
_VARIABLES: Final = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")


def share_one_heap() -> None:
    """Have all threads share one heap. To be called before a program starts threads.

    Python's own lock lets one thread at a time ask for memory as it is, so none waits for another.
    Nothing happens where an environment variable says how memory is handed out, and with a C
    library other than glibc."""
    # Whoever sets these knows the machine better.
    if any(os.environ.get(name) for name in _VARIABLES):
        return
    import ctypes  # needs 2 ms: not for --help

    try:
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)
    except (OSError, AttributeError):  # no glibc
        return
