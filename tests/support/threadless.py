"""A system that has no thread left, for those whose name matches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def no_thread(name: str) -> Iterator[None]:
    """Inside, starting a thread whose name holds `name` fails as it does where the system has none
    left."""
    start = threading.Thread.start

    def fail(self: threading.Thread) -> None:
        if name in self.name:
            raise RuntimeError("can't start new thread")
        start(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        yield
