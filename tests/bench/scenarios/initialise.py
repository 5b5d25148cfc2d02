"""1,000 new nodes are initialised: both writes of each, and an Event (issue 4's rows)."""

from __future__ import annotations

from tests.bench.cluster import BenchCluster, new_nodes
from tests.bench.contenders import UNCAPPED, Contender
from tests.bench.scenario import Figure, Figures, Goal, Scenario, alone
from tests.bench.trial import Unfinished, trial
from tests.bench.witness import seen
from tests.support.failover.audit import Request

LIMIT = "the API server's limit"
BATCH_0, BATCH_50 = "ours, batch, cloud 0 ms", "ours, batch, cloud 50 ms"
NO_BATCH_50 = "ours, no batch, cloud 50 ms"
GO_0, GO_50 = "Go uncapped, cloud 0 ms", "Go uncapped, cloud 50 ms"
_GO_DEFAULT_TIMEOUT = 300.0


def initialise(scale: float) -> Scenario:
    """The scenario with so many times its nodes."""
    count = max(1, round(1000 * scale))
    return Scenario(
        "initialise",
        f"{count:,} nodes initialised",
        "The nodes are there before the process. From a contender's first write to its last node initialised, to its "
        'last Event stored, and to the same from the start of its process. "The limit" is a Go program that does '
        "nothing but send our patches, PUTs and Event creates over 16 connections.",
        (
            Figure("initialised", "nodes initialised, s"),
            Figure("events", "Events stored, s"),
            Figure("from_start", "from process start, s"),
            Figure("writes", "writes", 0),
        ),
        (
            Contender(LIMIT, "limit"),
            Contender(BATCH_0, "ours"),
            Contender(BATCH_50, "ours", latency_ms=50),
            Contender(NO_BATCH_50, "ours", latency_ms=50, batch=False),
            Contender(GO_0, "go", flags=UNCAPPED),
            Contender(GO_50, "go", latency_ms=50, flags=UNCAPPED),
            Contender("Go default, cloud 0 ms", "go", once=True, timeout=_GO_DEFAULT_TIMEOUT),
            Contender("Go default, cloud 50 ms", "go", latency_ms=50, once=True, timeout=_GO_DEFAULT_TIMEOUT),
        ),
        alone(lambda contender: _measure(contender, count)),
        (
            Goal(BATCH_0, "initialised", 1.25, of=LIMIT),
            Goal(BATCH_0, "events", 1.25, of=LIMIT),
            Goal(BATCH_0, "initialised", 1.0, of=GO_0),
            Goal(BATCH_0, "events", 1.0, of=GO_0),
            Goal(BATCH_50, "initialised", 1.25, of=LIMIT),
            Goal(BATCH_50, "events", 1.25, of=LIMIT),
            Goal(BATCH_50, "initialised", 1.0, of=GO_50),
            Goal(BATCH_50, "events", 1.0, of=GO_50),
            Goal(NO_BATCH_50, "initialised", 1.0, of=GO_50),
            Goal(NO_BATCH_50, "events", 1.0, of=GO_50),
        ),
    )


def _measure(contender: Contender, count: int) -> Figures:
    with BenchCluster(new_nodes(count)) as cluster:
        with trial(contender, cluster) as run:
            run.wait(lambda: _complete(run.audit.read(), count), "every node was initialised")
        _check(cluster, count)
        found = seen(run.audit.read())
    return {
        "initialised": found.last_node - found.first,
        "events": found.last_event - found.first,
        "from_start": found.last_event - run.started,
        "writes": len(found.nodes) + len(found.events),
    }


def _complete(requests: list[Request], count: int) -> bool:
    found = seen(requests)
    addresses = {write.name for write in found.nodes if write.resource == "nodes/status"}
    objects = {write.name for write in found.nodes if write.resource == "nodes"}
    return len(addresses) == count and len(objects) == count and len(found.events) >= count


def _check(cluster: BenchCluster, count: int) -> None:
    for number in (0, count // 2, count - 1):
        node = cluster.node(f"node-{number:05d}")
        taints = {taint["key"] for taint in node["spec"].get("taints", ())}
        if "node.cloudprovider.kubernetes.io/uninitialized" in taints or not node["spec"].get("providerID"):
            raise Unfinished(f"node {node['metadata']['name']} was not initialised")
