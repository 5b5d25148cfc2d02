"""A sweep of 5,000 nodes: the lifecycle controller learns how the 500 are that are not ready."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.lab.bench.cluster import BenchCluster, known_nodes, names
from tests.lab.bench.contenders import Contender, beside_go
from tests.lab.bench.scenario import Figure, Figures, Goal, Measure, Scenario
from tests.lab.bench.trial import trial
from tests.lab.bench.witness import learnt

CONTROLLERS = "cloud-node-lifecycle"
LATENCY_MS = 50
BATCH, NO_BATCH = "ours, batch", "ours, no batch"


def sweep(scale: float) -> Scenario:
    """The scenario with so many times its nodes."""
    ready, lost = names("node", max(1, round(4500 * scale))), names("lost", max(1, round(500 * scale)))

    @contextmanager
    def session() -> Iterator[Measure]:
        with BenchCluster(known_nodes(ready) + known_nodes(lost, ready=False)) as cluster:
            yield lambda contender: _measure(contender, cluster, lost)

    _, uncapped, default = beside_go("", CONTROLLERS, LATENCY_MS, uncapped_once=True)
    return Scenario(
        "sweep",
        f"Sweep of {len(ready) + len(lost):,} nodes, {len(lost)} of them NotReady, cloud {LATENCY_MS} ms",
        "All of them run. The first sweep of a fresh process: from the beginning of its first call to the cloud until "
        "the cloud has told the state of the last NotReady node. Nothing is written, so all contenders share one "
        "cluster. The Go controller asks node by node, uncapped 32 at a time.",
        (
            Figure("sweep", "state of all known, s"),
            Figure("from_start", "from process start, s"),
            Figure("calls", "cloud calls", 0),
        ),
        (
            Contender(BATCH, "ours", CONTROLLERS, LATENCY_MS),
            Contender(NO_BATCH, "ours", CONTROLLERS, LATENCY_MS, batch=False),
            uncapped,
            default,
        ),
        session,
        (Goal(BATCH, "sweep", 1.0), Goal(NO_BATCH, "sweep", 4.0)),
    )


def _measure(contender: Contender, cluster: BenchCluster, lost: list[str]) -> Figures:
    with trial(contender, cluster) as run:
        run.wait(lambda: set(lost) <= set(learnt(run.journal.read())), "every state was known")
        calls = run.journal.read()
    found = learnt(calls)
    last, first = max(found[name] for name in lost), min(call.began for call in calls)
    return {
        "sweep": last - first,
        "from_start": last - run.started,
        "calls": sum(call.ended <= last for call in calls),
    }
