"""From the start of a process to its lease, and to its first write, where nobody leads."""

from __future__ import annotations

from tests.lab.bench.cluster import BenchCluster, new_nodes
from tests.lab.bench.contenders import UNCAPPED, Contender
from tests.lab.bench.scenario import Figure, Figures, Goal, Scenario, alone
from tests.lab.bench.trial import trial

LEASE = "cloud-controller-manager"
ELECTION = ("--leader-elect=true",)


def start(scale: float) -> Scenario:
    """The scenario with so many times its nodes."""
    count = max(1, round(1000 * scale))
    return Scenario(
        "start",
        f"Start with {count:,} new nodes, nobody holds the lease",
        "The nodes are there, uninitialised, before the process, and there is no Lease. From the start of the process "
        "to the answer that made it the leader, and to the arrival of its first write on a node. Default flags of the "
        "election.",
        (
            Figure("leading", "process start to leading, s"),
            Figure("first_write", "process start to first write, s"),
        ),
        (
            Contender("ours", "ours", flags=ELECTION),
            Contender("Go", "go", flags=(*ELECTION, *UNCAPPED)),
        ),
        alone(lambda contender: _measure(contender, count)),
        (Goal("ours", "first_write", 0.45),),
    )


def _measure(contender: Contender, count: int) -> Figures:
    with BenchCluster(new_nodes(count)) as cluster, trial(contender, cluster) as run:
        run.wait(lambda: bool(run.seen.look().nodes), "its first write")
        (took, *_) = [write.ended for write in run.audit.of("leases", "create", "update") if write.name in (LEASE, "")]
        return {"leading": took - run.started, "first_write": run.seen.look().first - run.started}
