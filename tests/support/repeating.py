"""Something that goes on beside a test: in a thread of its own, while a with statement lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

_PATIENCE = 30.0
"""Seconds for which the end waits before `over` is set."""


class Repeating:
    """Calls `act` again and again, `every` so many seconds, the first time that long after the
    start (`at_once`: at the start).

    An error ends it, and is raised at the end of the with statement. May be entered once.
    """

    def __init__(self, act: Callable[[], object], *, every: float, name: str, at_once: bool = False) -> None:
        self._do, self._every, self._at_once = act, every, at_once
        self._done = threading.Event()
        self.over = threading.Event()
        """Set when an act that is under way should give up."""
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join(_PATIENCE)
        self.over.set()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _run(self) -> None:
        try:
            if self._at_once:
                self._do()
            while not self._done.wait(self._every):
                self._do()
        except Exception as error:  # noqa: BLE001 - raised in the thread of the with statement
            self._error = error
