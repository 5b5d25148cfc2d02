"""An hour in which Services and machines come and go: what the manager's pods hold and use."""

from __future__ import annotations

import bisect
import time

from tests.lab.cluster.cluster import MANAGER, Cluster
from tests.lab.cluster.trials.kills import MachineChurn, agree, clean
from tests.lab.cluster.trials.manager import await_leader, holder, processes
from tests.lab.cluster.trials.result import Result
from tests.support.sampling import Life, Sampler

TITLE = "An hour of churn"
METHOD = (
    "For an hour, an act a second: Services are made, changed and deleted; every 20 s a machine is powered off or on, "
    "deleted or made again. Every five seconds the memory, the threads and the open files of both pods are read. The "
    "first ten minutes fill the caches; from then on a line is laid through the values, which must not rise by more "
    "than 10 MB, 3 threads or 5 files by the end. It runs on its own: make trials TRIALS=hour."
)
SECONDS = 3600.0
WARM_UP = 600.0
ALLOWED = {"memory, MB": 10.0, "threads": 3.0, "open files": 5.0}
RATE = 1.0


def run(cluster: Cluster, sampler: Sampler, seconds: float = SECONDS, seed: int = 22) -> Result:
    result = Result()
    cluster.wait_for_deployment("kube-system", MANAGER)
    await_leader(cluster)
    led, begun = holder(cluster), time.time()
    with MachineChurn(cluster, seed=seed, rate=RATE) as churn:
        time.sleep(seconds)
    result.add("duration", f"{(time.time() - begun) / 60:.0f} min")
    result.add("acts on Services", churn.acts - churn.machine_acts)
    result.add("acts on machines", churn.machine_acts)
    lives = [sampler.lives[pid] for pid in processes(cluster) if pid in sampler.lives]
    busiest = sorted(lives, key=lambda life: life.used[-1].cpu - life.used[0].cpu, reverse=True)
    for role, life in zip(("leader", "standby"), busiest, strict=False):
        judge(result, role, life, begun, begun + seconds)
    result.check(len(lives) == 2, f"{len(lives)} processes of the manager ran at the end, not two")
    result.check(all(life.at[0] <= begun + WARM_UP / 2 for life in lives), "a process was replaced meanwhile")
    result.check(holder(cluster) == led, f"{led} led at the beginning, {holder(cluster)} at the end")
    agree(cluster, churn, result)
    clean(cluster.api)
    return result


def judge(result: Result, role: str, life: Life, begun: float, ended: float) -> None:
    """What this process held every ten minutes, its CPU, and whether anything grew after the first
    ten minutes. Pure."""
    first, last = bisect.bisect_left(life.at, begun), bisect.bisect_right(life.at, ended)
    at, used = life.at[first:last], life.used[first:last]
    if not at:
        result.problems.append(f"{role}: no sample")
        return
    marks = [bisect.bisect_left(at, begun + minute) for minute in range(0, round(ended - begun) + 1, 600)]
    memory = [f"{used[min(mark, len(used) - 1)].memory:.0f}" for mark in marks]
    result.add(f"{role}: memory every ten minutes", f"{', '.join(memory)} MB")
    result.add(f"{role}: most at once", f"{max(one.memory for one in used):.0f} MB")
    cores = (used[-1].cpu - used[0].cpu) / max(1.0, at[-1] - at[0])
    result.add(f"{role}: CPU", f"{1000 * cores:.0f} millicores on average")
    kept = Life(at, used, life.more[first:last])
    result.check_growth(kept, bisect.bisect_left(at, begun + WARM_UP), ALLOWED, f"{role}: ", ", after ten minutes")
