"""The threads of a manager share one heap of the C library."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import ctypes, sys, threading
from controllers.process.startup import share_one_heap

if "share" in sys.argv:
    share_one_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
together = threading.Barrier(4)
def take():
    together.wait()
    for _ in range(100):
        libc.malloc(50_000)
    together.wait()
threads = [threading.Thread(target=take) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
libc.fdopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.fflush.argtypes = [ctypes.c_void_p]
out = libc.fdopen(1, b"w")
libc.malloc_info(0, out)
libc.fflush(out)
"""

pytestmark = pytest.mark.skipif(
    "glibc" not in (os.confstr("CS_GNU_LIBC_VERSION") or "" if "CS_GNU_LIBC_VERSION" in os.confstr_names else ""),
    reason="another C library",
)


def heaps(*words: str, **environ: str) -> int:
    usual = {name: value for name, value in os.environ.items() if name not in ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")}
    done = subprocess.run(
        [sys.executable, "-c", CODE, *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**usual, **environ},
    )
    return done.stdout.count("<heap nr=")


def test_all_threads_share_one_heap_unless_the_environment_says_otherwise() -> None:
    assert heaps("share") == 1
    assert heaps() > 1  # the test can fail
    assert heaps("share", MALLOC_ARENA_MAX="3") == 3
