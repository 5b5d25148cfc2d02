"""How long the scenarios of a class wait for a cloud that builds, and what is said meanwhile.

After ten seconds a line says what is waited for. Where one wait ran out, those that follow last ten
seconds at most: a provider that waits for what never comes costs minutes otherwise, in each
scenario.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from cloudprovider.testing.conformance.lab import Lab

SILENT: Final = 10.0
"""Seconds of a wait of which nothing is said."""
SHORT: Final = 10.0
"""Seconds that a wait lasts at most after one that ran out."""


class Patience:
    """Shared by the scenarios of a class. Used from many threads at once."""

    def __init__(self, lab: Lab, clock: Callable[[], float] = time.monotonic) -> None:
        self.scenario = ""
        """The ID of the scenario that runs."""
        self.tell: Callable[[str], object] = logging.getLogger(__name__).warning
        """Gets the line that says what is waited for."""
        self.clock = clock
        self._lab = lab
        self._ran_out = False

    @property
    def seconds(self) -> float:
        """How long a wait that begins now may last."""
        # A provider that never finishes fails a dozen scenarios: five minutes for each are an hour.
        return min(self._lab.patience, SHORT) if self._ran_out else self._lab.patience

    def wait(self, what: str) -> Wait:
        """Begin to wait for this, in words."""
        return Wait(self, what)

    def run_out(self) -> None:
        """A wait ended without what it was for."""
        self._ran_out = True


class Wait:
    """One wait."""

    def __init__(self, patience: Patience, what: str) -> None:
        self.seconds = patience.seconds
        self._patience = patience
        self._what = what
        self._began = patience.clock()
        self._told = False

    def goes_on(self, pause: float, why: str = "") -> bool:
        """Whether there is time for a pause of so many seconds; `why` is what the last look
        said."""
        waited = self._patience.clock() - self._began
        # Before the pause, which could not change the answer any more.
        if waited + pause > self.seconds:
            self._patience.run_out()
            return False
        self.tell(pause, self.seconds, why)
        return True

    def tell(self, pause: float, limit: float, why: str = "") -> None:
        """Say once what is waited for, if the pause does not end within `SILENT`."""
        waited = self._patience.clock() - self._began
        # Once: whoever watches wants to know that it is not stuck, and not every second.
        if self._told or waited + pause < SILENT:
            return
        self._told = True
        said = f": {why}" if why else ""
        self._patience.tell(
            f"{self._patience.scenario or 'conformance'} waits until {self._what}, for up to {limit - waited:.0f} s "
            f"more (Lab.patience){said}"
        )
