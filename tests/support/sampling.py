"""What processes hold over time, and whether it grows. Linux only."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence

from attrs import define, field, frozen

from tests.support.repeating import Repeating
from tests.support.usage import Usage, usage

EVERY = 5.0
"""Seconds between two samples."""
_GROUPS = 12
_T = 2.23
"""Of Student's distribution: 95 % on both sides, ten degrees of freedom."""


@define
class Life:
    """What was seen of one process."""

    at: list[float] = field(factory=list)
    """Unix seconds."""
    used: list[Usage] = field(factory=list)
    more: list[dict[str, float]] = field(factory=list)
    """What else was asked of it, by name."""

    def values(self, what: str) -> list[float]:
        """One kind of what was seen: "memory, MB", "threads", "open files", or a name in `more`."""
        field = {"memory, MB": "memory", "threads": "threads", "open files": "files"}.get(what)
        return [one[what] for one in self.more] if field is None else [float(getattr(one, field)) for one in self.used]


class Sampler(Repeating):
    """Samples these processes while it is entered. `lives` may be read at any time.

    `ask` returns what else there is to note of a process; it may raise OSError.
    """

    def __init__(
        self, processes: Callable[[], Iterable[int]], ask: Callable[[int], dict[str, float]] = lambda _: {}
    ) -> None:
        super().__init__(self._sample, every=EVERY, name="sampler", at_once=True)
        self.lives: dict[int, Life] = {}
        self._processes, self._ask = processes, ask

    def _sample(self) -> None:
        for pid in self._processes():
            try:
                used, more = usage(pid), self._ask(pid)
            except (OSError, ValueError):
                continue  # it is just ending, or starting
            life = self.lives.setdefault(pid, Life())
            life.at.append(time.time())
            life.used.append(used)
            life.more.append(more)


@frozen
class Slope:
    """By what a value grew, and how sure that is: the true growth lies within `error` of it with a
    probability of 95 %."""

    growth: float
    """From the beginning to the end of the time."""
    error: float

    def is_flat(self, allowed: float) -> bool:
        """Whether it did not grow, or by no more than `allowed`."""
        return self.growth <= allowed or self.growth - self.error <= 0

    def __str__(self) -> str:
        return f"{self.growth:+.2f} (error {self.error:.2f})"


def slope(at: Sequence[float], values: Sequence[float]) -> Slope:
    """The straight line through the means of twelve equal parts, so that what follows upon itself
    from sample to sample does not count as many proofs. Raises ValueError with too few. Pure."""
    if len(at) < 2 * _GROUPS:
        raise ValueError(f"{len(at)} samples are too few, {2 * _GROUPS} are needed")
    cuts = [number * len(at) // _GROUPS for number in range(_GROUPS + 1)]
    parts = [slice(a, b) for a, b in itertools.pairwise(cuts)]
    x = [statistics.fmean(at[part]) for part in parts]
    y = [statistics.fmean(values[part]) for part in parts]
    line = statistics.linear_regression(x, y)
    rest = sum((b - line.slope * a - line.intercept) ** 2 for a, b in zip(x, y, strict=True))
    mean = statistics.fmean(x)
    error = math.sqrt(rest / (_GROUPS - 2) / sum((a - mean) ** 2 for a in x))
    span = at[-1] - at[0]
    return Slope(line.slope * span, _T * error * span)
