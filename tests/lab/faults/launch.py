"""Our program with a clock that can be wrong, or with one guard taken out:
`python -m tests.lab.faults.launch [--clock FILE] [--without MUTANT] FLAGS`.

The file holds the seconds by which `time.time` is wrong, and is read at each call; the monotonic
clocks are the machine's, as they are where somebody sets a clock.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

CLOCK: Final = "clock"
"""The name of the file in a candidate's folder."""


def set_clock(folder: Path, seconds: float) -> None:
    """Put the clock of the candidate with this folder wrong by so much."""
    new = folder / "clock.new"
    new.write_text(str(seconds))
    new.rename(folder / CLOCK)


def bend(file: Path) -> None:
    """From now on `time.time` of this process is wrong by what the file says."""
    right = time.time

    def wrong() -> float:
        return right() + float(file.read_text())

    time.time = wrong


def _main(arguments: list[str]) -> int:
    while arguments[0] in ("--clock", "--without"):
        option, value, *arguments = arguments
        if option == "--clock":
            bend(Path(value))
        else:
            from tests.lab.faults.mutants import MUTANTS

            MUTANTS[value].apply()
    from controllers.app import main  # after the clock was bent: modules keep its functions

    return main(arguments)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
