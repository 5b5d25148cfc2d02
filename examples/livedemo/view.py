"""How the demo is shown: what a view can do, and which one is chosen.

`live.py` fills a table on a terminal, `plain.py` prints lines. Both get scenes and what the story says; neither decides
anything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Protocol

from livedemo.plain import PlainView
from livedemo.scene import Scene


class View(Protocol):
    """What the demo does with a view. All from one thread."""

    def act(self, title: str, watch: str) -> None:
        """An act begins; `watch` says what to look at."""

    def deed(self, text: str) -> None:
        """This is done now."""

    def expected(self, text: str) -> None:
        """This is to come true."""

    def held(self, text: str, took: float) -> None:
        """It came true, after so many seconds."""

    def done(self) -> None:
        """The act has ended well."""

    def show(self, scene: Scene) -> None:
        """The present moment; called several times a second."""

    def close(self) -> None:
        """Nothing moves any more; what is printed from now on stands below. May be called twice."""

    def block(self, title: str, lines: Sequence[str]) -> None:
        """A titled block of text, after `close`."""


def choose(title: str, acts: Sequence[str] = (), *, log: bool = False) -> View:
    """The live table where a person watches and `rich` is installed, else plain lines.

    `log`: the live table ends with the manager's last log lines, in place of the cluster's Events.
    """
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR") and not os.environ.get("CI"):
        try:
            from rich.console import Console
        except ImportError:
            print("(install the extra `demo` for a live table)")
        else:
            from livedemo.live import LiveView

            return LiveView(Console(), title, acts, log=log)
    return PlainView(acts)
