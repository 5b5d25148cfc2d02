"""Memory and CPU of all processes of the manager, sampled over a whole run of trials."""

from __future__ import annotations

from collections.abc import Sequence

from tests.lab.cluster.trials.result import Result
from tests.support.sampling import Life

TITLE = "Memory and CPU of the run"
METHOD = (
    "The resident memory and the CPU time of every process of the manager, every five seconds from the cluster's first "
    "minute to the end of all trials."
)

LIMIT = 512.0
"""MB: the memory limit of the chart's pod, which this cluster's containerd does not enforce."""
FIRST = 30.0
"""Seconds after which a process has started: its caches are filled."""


def summary(lives: Sequence[Life]) -> Result:
    """Start, peak and end of the one that ran longest, and the peak of all."""
    result = Result()
    seen = [life for life in lives if life.at]
    if not seen:
        result.problems.append("no process of the manager was seen")
        return result
    longest = max(seen, key=lambda life: life.at[-1] - life.at[0])
    took = longest.at[-1] - longest.at[0]
    memory = [one.memory for one in longest.used]
    start = next((m for at, m in zip(longest.at, memory, strict=True) if at - longest.at[0] >= FIRST), None)
    result.add("processes seen (a killed one is followed by another)", len(seen))
    result.add("the one that ran longest", took)
    result.add(f"its memory {FIRST:.0f} s after its start", f"{start:.0f} MB" if start is not None else "not seen")
    result.add("its peak", f"{max(memory):.0f} MB")
    result.add("its memory at the end", f"{memory[-1]:.0f} MB")
    if took > 0:
        used = longest.used[-1].cpu - longest.used[0].cpu
        result.add("its CPU", f"{used:.0f} s, {1000 * used / took:.0f} millicores on average")
    peak = max(one.memory for life in seen for one in life.used)
    result.add("peak of all", f"{peak:.0f} MB of the limit of {LIMIT:.0f} MB")
    result.check(peak < LIMIT, f"{peak:.0f} MB is above the limit of the chart's pod, {LIMIT:.0f} MB")
    return result
