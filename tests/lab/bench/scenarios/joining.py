"""50 nodes join within 10 s while 200 Services have load balancers: how often is the cloud
troubled?"""

from __future__ import annotations

import time

from tests.lab.bench.cluster import BenchCluster, known_nodes, names
from tests.lab.bench.contenders import Contender, beside_go
from tests.lab.bench.scenario import Figure, Figures, Goal, Scenario, alone
from tests.lab.bench.scenarios.services import await_addresses, create
from tests.lab.bench.trial import Trial, trial
from tests.lab.bench.witness import Call, per_key
from tests.support.api import NODES

LATENCY_MS = 50
FIRST_NODES = 10
JOIN_SECONDS = 10.0
QUIET_SECONDS = 3.0
JOINING = "join"
TOUCHING = ("ensure_load_balancer", "update_load_balancer")


def joining(scale: float) -> Scenario:
    """The scenario with so many times its Services; the nodes stay as many."""
    count, joins = max(1, round(200 * scale)), 50
    return Scenario(
        "joining",
        f"{count} Services while {joins} nodes join within {JOIN_SECONDS:.0f} s, cloud {LATENCY_MS} ms",
        f"The Services have their load balancers, over {FIRST_NODES} nodes, when the first node joins; the others "
        "follow at even intervals, each created ready and initialised. Counted by the cloud, from the first one's "
        "creation: calls that update or ensure a load balancer, until every load balancer has all nodes and no such "
        f"call has come for {QUIET_SECONDS:.0f} s. The last column is the time from the last creation until the cloud "
        "has given every load balancer all nodes.",
        (
            Figure("most", "cloud updates of one Service, at most", 0),
            Figure("mean", "on average", 1),
            Figure("calls", "cloud calls", 0),
            Figure("lag", "last node joined to all updated, s"),
        ),
        beside_go("ours", "service", LATENCY_MS, timeout=240.0),
        alone(lambda contender: _measure(contender, count, joins)),
        (Goal("ours", "most", 3),),
    )


def _measure(contender: Contender, count: int, joins: int) -> Figures:
    wanted = names("service", count)
    with BenchCluster(known_nodes(names("node", FIRST_NODES))) as cluster, trial(contender, cluster) as run:
        create(cluster, wanted)
        await_addresses(cluster, run, wanted)
        _quiet(run)
        began = time.time()
        _join(cluster, joins)
        run.wait(lambda: len(_reached(run, began, FIRST_NODES + joins)) == count, "every load balancer had all nodes")
        _quiet(run)
        joined = max(write.ended for write in run.audit.of("nodes", "create") if write.name.startswith(JOINING))
        calls = _since(run, began)
        counts = per_key(calls)
        return {
            "most": max(counts.values()),
            "mean": sum(counts.values()) / count,
            "calls": len(calls),
            "lag": max(_reached(run, began, FIRST_NODES + joins).values()) - joined,
        }


def _join(cluster: BenchCluster, joins: int) -> None:
    start = time.monotonic()
    for number, node in enumerate(known_nodes(names(JOINING, joins))):
        time.sleep(max(0.0, start + number * JOIN_SECONDS / joins - time.monotonic()))
        cluster.api.create(NODES, node)


def _quiet(run: Trial) -> None:
    def quiet() -> bool:
        return time.time() - max(call.ended for call in run.journal.of(*TOUCHING)) > QUIET_SECONDS

    run.wait(quiet, "the cloud was left in peace")


def _since(run: Trial, began: float) -> list[Call]:
    return [call for call in run.journal.of(*TOUCHING) if call.began >= began]


def _reached(run: Trial, began: float, total: int) -> dict[str, float]:
    """When each load balancer was first given all nodes."""
    found: dict[str, float] = {}
    for call in _since(run, began):
        if call.nodes == total:
            found.setdefault(call.keys[0], call.ended)
    return found
