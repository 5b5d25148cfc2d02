"""1,000 new nodes are initialised, and 5,000: both writes of each, and an Event."""

from __future__ import annotations

import time
from contextlib import suppress

from tests.lab.bench.cluster import BenchCluster, new_nodes
from tests.lab.bench.contenders import UNCAPPED, Contender
from tests.lab.bench.scenario import Figure, Figures, Goal, Scenario, alone
from tests.lab.bench.trial import Trial, Unfinished, trial
from tests.lab.bench.witness import Seen

LIMIT = "the API server's limit"
BATCH_0, BATCH_50 = "ours, batch, cloud 0 ms", "ours, batch, cloud 50 ms"
NO_BATCH_50 = "ours, no batch, cloud 50 ms"
GO_0, GO_50 = "Go uncapped, cloud 0 ms", "Go uncapped, cloud 50 ms"
_LONG = 300.0
_QUIET = 5.0
"""Seconds without a write after which the Go manager has dropped the Events that are missing."""


def initialise(scale: float) -> Scenario:
    """The scenario with so many times its 1,000 nodes."""
    return _scenario(
        "initialise",
        max(1, round(1000 * scale)),
        ' "The limit" is a Go program that does nothing but send our patches and Event creates over 16 connections.',
        (
            Contender(LIMIT, "limit"),
            Contender(BATCH_0, "ours"),
            Contender(BATCH_50, "ours", latency_ms=50),
            Contender(NO_BATCH_50, "ours", latency_ms=50, batch=False),
            Contender(GO_0, "go", flags=UNCAPPED),
            Contender(GO_50, "go", latency_ms=50, flags=UNCAPPED),
            Contender("Go default, cloud 0 ms", "go", once=True, timeout=_LONG),
            Contender("Go default, cloud 50 ms", "go", latency_ms=50, once=True, timeout=_LONG),
        ),
        (
            *_beside_go(BATCH_0, GO_0, 0.85, 0.9),
            *_beside_go(BATCH_50, GO_50, 0.85, 0.9),
            Goal(BATCH_0, "initialised", 1.25, of=LIMIT),
            Goal(BATCH_0, "events", 1.25, of=LIMIT),
            Goal(BATCH_50, "initialised", 1.25, of=LIMIT),
            Goal(BATCH_50, "events", 1.25, of=LIMIT),
            Goal(NO_BATCH_50, "initialised", 1.0, of=GO_50),
            Goal(NO_BATCH_50, "events", 1.0, of=GO_50),
        ),
    )


def initialise5000(scale: float) -> Scenario:
    """The scenario with so many times its 5,000 nodes."""
    return _scenario(
        "initialise5000",
        max(1, round(5000 * scale)),
        " The Go manager drops Events while a thousand others wait to be sent: it is done when it has written nothing "
        f"for {_QUIET:.0f} s.",
        (
            Contender(BATCH_50, "ours", latency_ms=50, timeout=_LONG),
            Contender(GO_50, "go", latency_ms=50, flags=UNCAPPED, timeout=_LONG),
        ),
        _beside_go(BATCH_50, GO_50, 0.8),
    )


def _beside_go(ours: str, go: str, initialised: float, events: float | None = None) -> tuple[Goal, ...]:
    """From process start so many times Go's, and not more CPU."""
    return (
        Goal(ours, "initialised_from_start", initialised, of=go),
        *(() if events is None else (Goal(ours, "events_from_start", events, of=go),)),
        Goal(ours, "each", 1.0, of=go),
    )


def _scenario(
    name: str, count: int, method: str, contenders: tuple[Contender, ...], goals: tuple[Goal, ...]
) -> Scenario:
    return Scenario(
        name,
        f"{count:,} nodes initialised",
        "The nodes are there before the process. From a contender's first write to its last node initialised and to "
        "its last Event stored, and the same from the start of its process. CPU from the start of the process until "
        f"the last write is seen in the audit log.{method}",
        (
            Figure("initialised", "nodes initialised, s"),
            Figure("events", "Events stored, s"),
            Figure("initialised_from_start", "process start to nodes initialised, s"),
            Figure("events_from_start", "process start to Events stored, s"),
            Figure("writes", "writes of nodes", 0),
            Figure("told", "Events", 0),
            Figure("cpu", "CPU, s"),
            Figure("server_cpu", "kube-apiserver's CPU, s"),
            Figure("each", "CPU of both per node, ms", 1),
        ),
        contenders,
        alone(lambda contender: _measure(contender, count)),
        goals,
    )


def _measure(contender: Contender, count: int) -> Figures:
    with BenchCluster(new_nodes(count)) as cluster:
        with trial(contender, cluster) as run:
            spent = _work(run, count)
        _check(cluster, count)
        found = run.seen.look()
    return {
        "initialised": found.last_node - found.first,
        "events": found.last_event - found.first,
        "initialised_from_start": found.last_node - run.started,
        "events_from_start": found.last_event - run.started,
        "writes": len(found.nodes),
        "told": len(found.events),
        **spent,
    }


def _work(run: Trial, count: int) -> Figures:
    """Wait until all is done; returns the CPU that it took until the last write was seen."""
    spent: Figures = {}

    def done() -> bool:
        nonlocal spent
        found, known = run.seen, run.seen.count
        if found.look().count > known:
            with suppress(OSError, ValueError):  # it has ended, which `wait` tells
                spent = _spent(run, count)
        if not _initialised(found, count):
            return False
        quiet = run.contender.kind == "go" and time.time() - max(found.last_node, found.last_event) > _QUIET
        return quiet or len(found.events) >= count

    run.wait(done, "every node was initialised")
    return spent


def _spent(run: Trial, count: int) -> Figures:
    server = run.spent.by_server()
    if run.contender.kind == "limit":  # it has ended, and nobody knows what it took
        return {"server_cpu": server}
    cpu = run.spent.by_process()
    return {"cpu": cpu, "server_cpu": server, "each": 1000 * (cpu + server) / count}


def _initialised(found: Seen, count: int) -> bool:
    if found.count < 2 * count:
        return False
    addresses = {write.name for write in found.nodes if write.resource == "nodes/status"}
    objects = {write.name for write in found.nodes if write.resource == "nodes"}
    return len(addresses) == count and len(objects) == count


def _check(cluster: BenchCluster, count: int) -> None:
    for number in (0, count // 2, count - 1):
        node = cluster.node(f"node-{number:05d}")
        taints = {taint["key"] for taint in node["spec"].get("taints", ())}
        if "node.cloudprovider.kubernetes.io/uninitialized" in taints or not node["spec"].get("providerID"):
            raise Unfinished(f"node {node['metadata']['name']} was not initialised")
