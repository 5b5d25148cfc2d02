"""Memory and CPU of all processes of the manager, sampled over a whole run of trials."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType

from attrs import define, field

from tests.cluster.cluster import Cluster
from tests.cluster.trials.manager import processes
from tests.cluster.trials.result import Result
from tests.support.usage import usage

__all__ = ["METHOD", "TITLE", "Life", "Sampler", "summary"]

TITLE = "Memory and CPU of the run"
METHOD = (
    "The resident memory and the CPU time of every process of the manager, every five seconds from the cluster's first "
    "minute to the end of all trials."
)

EVERY = 5.0
"""Seconds between two samples."""
LIMIT = 512.0
"""MB: the memory limit of the chart's pod, which this cluster's containerd does not enforce."""
FIRST = 30.0
"""Seconds after which a process has started: its caches are filled."""


@define
class Life:
    """What was seen of one process."""

    at: list[float] = field(factory=list)
    """Unix seconds."""
    memory: list[float] = field(factory=list)
    """Resident, in MB."""
    cpu: list[float] = field(factory=list)
    """Seconds of CPU that it had used."""


class Sampler:
    """Samples in a thread of its own while it is entered. `lives` may be read at any time."""

    def __init__(self, cluster: Cluster) -> None:
        self.lives: dict[int, Life] = {}
        self._cluster = cluster
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join(10)

    def _run(self) -> None:
        while True:
            for pid in processes(self._cluster):
                try:
                    used = usage(pid)
                except (OSError, ValueError):
                    continue  # it is just ending
                life = self.lives.setdefault(pid, Life())
                life.at.append(time.time())
                life.memory.append(used.memory)
                life.cpu.append(used.cpu)
            if self._done.wait(EVERY):
                return


def summary(lives: Sequence[Life]) -> Result:
    """Start, peak and end of the one that ran longest, and the peak of all."""
    result = Result()
    seen = [life for life in lives if life.at]
    if not seen:
        result.problems.append("no process of the manager was seen")
        return result
    longest = max(seen, key=lambda life: life.at[-1] - life.at[0])
    took = longest.at[-1] - longest.at[0]
    start = next((m for at, m in zip(longest.at, longest.memory, strict=True) if at - longest.at[0] >= FIRST), None)
    result.add("processes seen (a killed one is followed by another)", len(seen))
    result.add("the one that ran longest", took)
    result.add(f"its memory {FIRST:.0f} s after its start", f"{start:.0f} MB" if start is not None else "not seen")
    result.add("its peak", f"{max(longest.memory):.0f} MB")
    result.add("its memory at the end", f"{longest.memory[-1]:.0f} MB")
    if took > 0:
        used = longest.cpu[-1] - longest.cpu[0]
        result.add("its CPU", f"{used:.0f} s, {1000 * used / took:.0f} millicores on average")
    peak = max(max(life.memory) for life in seen)
    result.add("peak of all", f"{peak:.0f} MB of the limit of {LIMIT:.0f} MB")
    result.check(peak < LIMIT, f"{peak:.0f} MB is above the limit of the chart's pod, {LIMIT:.0f} MB")
    return result
