"""200 of 700 nodes have lost their instances and are deleted."""

from __future__ import annotations

from attrs import evolve

from tests.lab.bench.cluster import BenchCluster, known_nodes, names
from tests.lab.bench.contenders import GONE, Contender, beside_go
from tests.lab.bench.scenario import Figure, Figures, Goal, Scenario, alone
from tests.lab.bench.trial import Unfinished, trial
from tests.lab.bench.witness import confirmed

LATENCY_MS = 50
MONITOR_PERIOD = 5.0
CONFIRMATIONS = {"ours": 2, "go": 1}


def leaving(scale: float) -> Scenario:
    """The scenario with so many times its nodes."""
    left, gone = names("node", max(1, round(500 * scale))), names(GONE, max(1, round(200 * scale)))
    ours, *go = beside_go("ours", "cloud-node-lifecycle", LATENCY_MS)
    return Scenario(
        "leaving",
        f"{len(gone)} gone of {len(left) + len(gone)} nodes deleted, cloud {LATENCY_MS} ms",
        "The instances vanish, and the nodes are NotReady, before the process starts: the time since they are gone is "
        "that from the start of the process to the answer to the last deletion. (The Go controller does not wait for "
        "its cache and looks at an empty one first, so that its work begins a monitor period later.) The time since "
        "the confirmation begins with the cloud's answer that confirms the first of them: for ours the second word "
        f"that a node is gone, asked for a monitor period ({MONITOR_PERIOD:.0f} s) after the first one; for the Go "
        "controller, which deletes at once, the first. The last column is the longest that a single node waited from "
        "its own confirming answer. Before it deletes, ours also asks about the Ready nodes of the zone, to see if the "
        "cloud tells the truth there; --node-deletion-young-grace is 0, as no node is known to it before it starts.",
        (
            Figure("since_gone", "since gone, s"),
            Figure("since_confirmation", "since the first confirmation, s"),
            Figure("each", "one node's confirmation to deletion, at most, s"),
            Figure("calls", "cloud calls", 0),
        ),
        (evolve(ours, flags=("--node-deletion-young-grace=0s",)), *go),
        alone(lambda contender: _measure(contender, left, gone)),
        (Goal("ours", "since_confirmation", 2.0),),
    )


def _measure(contender: Contender, left: list[str], gone: list[str]) -> Figures:
    with BenchCluster(known_nodes(left) + known_nodes(gone, ready=False)) as cluster:
        with trial(contender, cluster) as run:
            run.wait(lambda: len(run.audit.of("nodes", "delete")) >= len(gone), "every node was deleted")
            calls = run.journal.read()
        deleted = {write.name: write.ended for write in run.audit.of("nodes", "delete")}
        remaining = {node["metadata"]["name"] for node in cluster.api.items("/api/v1/nodes")}
    if set(deleted) != set(gone) or remaining != set(left):
        raise Unfinished("other nodes were deleted than those that are gone")
    known = confirmed(calls, CONFIRMATIONS[contender.kind], MONITOR_PERIOD)
    if set(known) != set(gone):
        raise Unfinished(f"only {len(known)} of the deleted nodes were confirmed gone")
    last = max(deleted.values())
    return {
        "since_gone": last - run.started,
        "since_confirmation": last - min(known.values()),
        "each": max(ended - known[name] for name, ended in deleted.items()),
        "calls": len(calls),
    }
