"""The words that the story is written in: acts, deeds, checks. And the one that carries an act out.

`story.py` writes acts as generators that yield these; `perform` does the deeds, keeps the view going, and waits until
the checks hold. A check that holds once is ticked for good.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Protocol

import attrs

from livedemo.scene import Scene
from livedemo.view import View

PATIENCE = 30.0
"""Seconds after which checks that do not hold are a failure."""
LOOK = 0.08
"""Seconds between two looks."""


class Failed(Exception):
    """The demo did not reach its end; the message says why."""


@attrs.frozen
class Do:
    """A deed: what the viewer reads, and what is done."""

    text: str
    action: Callable[[], object]


@attrs.define
class Check:
    """What must come true. `took`: seconds since it was expected, once it is."""

    text: str
    holds: Callable[[Scene], bool]
    expected: float = 0.0
    took: float | None = None


@attrs.frozen
class Expect:
    """From now on the viewer sees these checks; the act goes on."""

    checks: tuple[Check, ...]


def expect(*checks: Check) -> Expect:
    """These checks, as something to yield."""
    return Expect(checks)


@attrs.frozen
class Pause:
    """Let time pass."""

    seconds: float


@attrs.frozen
class Settle:
    """Wait until everything expected so far holds."""


Step = Do | Expect | Pause | Settle


@attrs.frozen
class Act:
    """A part of the story. `watch` tells the viewer what to look at."""

    title: str
    watch: str
    steps: Callable[[], Iterator[Step]]


class Stage(Protocol):
    """What an act plays on."""

    def look(self) -> Scene:
        """The present moment. Raises Failed if a manager ended that should run."""

    def excuse(self) -> str:
        """What may explain a check that does not hold."""


class Player:
    """Carries acts out. `pause`: seconds for reading, before an act's first deed and after its last check."""

    def __init__(self, stage: Stage, view: View, pause: float) -> None:
        self._stage = stage
        self._view = view
        self._pause = pause

    def perform(self, act: Act) -> list[Check]:
        """Raises Failed if a check does not come true in time. Returns the act's checks."""
        checks: list[Check] = []
        self._view.act(act.title, act.watch)
        self._wait(checks, self._pause)
        for step in act.steps():
            match step:
                case Do(text, action):
                    self._view.deed(text)
                    action()
                case Expect(more):
                    for check in more:
                        check.expected = time.monotonic()
                        self._view.expected(check.text)
                    checks += more
                case Pause(seconds):
                    self._wait(checks, seconds)
                case Settle():
                    self._settle(checks)
        self._settle(checks)
        self._view.done()
        self._wait(checks, self._pause)
        return checks

    def _settle(self, checks: list[Check]) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            self._look(checks)
            missing = [check.text for check in checks if check.took is None]
            if not missing:
                return
            if time.monotonic() > deadline:
                raise Failed(f"after {PATIENCE:g} s this is not so: {'; '.join(missing)}{self._stage.excuse()}")
            time.sleep(LOOK)

    def _wait(self, checks: list[Check], seconds: float) -> None:
        until = time.monotonic() + seconds
        self._look(checks)
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(LOOK, left))
            self._look(checks)

    def _look(self, checks: list[Check]) -> None:
        scene = self._stage.look()
        self._view.show(scene)
        for check in checks:
            if check.took is None and check.holds(scene):
                check.took = time.monotonic() - check.expected
                self._view.held(check.text, check.took)
