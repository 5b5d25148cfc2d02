"""What a benchmark is: contenders, the figures taken of each, and the goals; and how it is run.

`scenarios/` holds one module for each; `report.py` makes the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from attrs import frozen

from tests.lab.bench.contenders import Contender
from tests.lab.bench.trial import Unfinished

Figures = Mapping[str, float]
"""By `Figure.key`; what a contender has no figure for is left out."""
Measure = Callable[[Contender], Figures]


@frozen
class Figure:
    """A column of the table."""

    key: str
    heading: str
    digits: int = 2


@frozen
class Goal:
    """A contender's figure is to be at most so much, or so many times that of another one."""

    contender: str
    figure: str
    at_most: float
    of: str = ""


@frozen
class Scenario:
    """One benchmark."""

    name: str
    """As it is named on the command line."""
    title: str
    method: str
    """What is done, and what the clock shows: for the reader of the table."""
    figures: tuple[Figure, ...]
    contenders: tuple[Contender, ...]
    session: Callable[[], AbstractContextManager[Measure]]
    """What the measurements share: a cluster, or nothing."""
    goals: tuple[Goal, ...] = ()


@frozen
class Outcome:
    """What came of one contender."""

    contender: Contender
    runs: tuple[Figures, ...] = ()
    failure: str = ""
    """Why there are no more runs."""


def alone(measure: Measure) -> Callable[[], AbstractContextManager[Measure]]:
    """A session in which the measurements share nothing."""

    @contextmanager
    def session() -> Iterator[Measure]:
        yield measure

    return session


def run(
    scenario: Scenario, contenders: Sequence[Contender], repetitions: int, tell: Callable[[str], None]
) -> list[Outcome]:
    """Measure these of a scenario's contenders, alternating; `tell` hears of every measurement.

    A contender that did not finish is not run again. Those that are run once come in the first
    round.
    """
    runs: dict[str, list[Figures]] = {one.name: [] for one in contenders}
    failures: dict[str, str] = {}
    with scenario.session() as measure:
        for repetition in range(repetitions):
            for one in contenders:
                if one.name in failures or (one.once and repetition):
                    continue
                label = f"{scenario.name} {repetition + 1}/{1 if one.once else repetitions}: {one.name}"
                tell(f"{label} ...")
                try:
                    figures = measure(one)
                except Unfinished as error:
                    failures[one.name] = error.short
                    tell(f"{label}: {error}")
                    continue
                runs[one.name].append(figures)
                tell(f"{label}: " + ", ".join(f"{key} {value:.3f}" for key, value in figures.items()))
    return [Outcome(one, tuple(runs[one.name]), failures.get(one.name, "")) for one in contenders]
