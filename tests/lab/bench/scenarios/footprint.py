"""What one manager costs: memory with many nodes, cloud calls for a start and a refresh, time to
its first write."""

from __future__ import annotations

import re
import time
import urllib.request

from tests.lab.bench.cluster import BenchCluster, new_nodes
from tests.lab.bench.contenders import Contender
from tests.lab.bench.scenario import Figure, Figures, Goal, Scenario, alone
from tests.lab.bench.trial import trial
from tests.support.https import free_port
from tests.support.usage import usage

REFRESH_SECONDS = 20
LATENCY_MS = 50


def footprint(scale: float) -> Scenario:
    """The scenario with so many times its nodes."""
    small, large = max(1, round(1000 * scale)), max(1, round(5000 * scale))
    counts = {f"{small:,} nodes": small, f"{large:,} nodes": large}
    few, many = counts
    return Scenario(
        "footprint",
        f"What our manager costs, batch, cloud {LATENCY_MS} ms",
        "The nodes are there, uninitialised, before the process. First write from the start of the process; calls as "
        f"the gateway counts them: to initialise the smaller cluster, and of a refresh of the larger one, every "
        f"{REFRESH_SECONDS} s in place of five minutes; resident memory at the end, and the greatest.",
        (
            Figure("first_write", "process start to first write, s"),
            Figure("initialising", "cloud calls to initialise", 0),
            Figure("refreshing", "cloud calls of a refresh", 0),
            Figure("writes", "writes of a refresh", 0),
            Figure("memory", "resident memory, MB", 0),
            Figure("peak", "peak, MB", 0),
        ),
        tuple(Contender(name, "ours", latency_ms=LATENCY_MS, once=True, timeout=300.0) for name in counts),
        alone(lambda contender: _measure(contender, counts[contender.name], contender.name == many)),
        (
            Goal(few, "initialising", 20),
            Goal(many, "refreshing", 50),
            Goal(many, "writes", 0),
            Goal(many, "memory", 120),
        ),
    )


def _measure(contender: Contender, count: int, refresh: bool) -> Figures:
    port = free_port()
    flags = (f"--health-bind-address=127.0.0.1:{port}", f"--node-status-update-frequency={REFRESH_SECONDS}s")
    with BenchCluster(new_nodes(count)) as cluster, trial(contender, cluster, *flags) as run:
        run.wait(lambda: len(run.seen.look().events) >= count, "every node was initialised")
        figures, written = {"first_write": run.seen.first - run.started}, len(run.seen.nodes)
        if not refresh:
            figures["initialising"] = _calls(port)
        else:
            time.sleep(REFRESH_SECONDS - (time.time() - run.started) % REFRESH_SECONDS + REFRESH_SECONDS / 2)
            before = _calls(port)
            time.sleep(REFRESH_SECONDS)  # exactly one refresh lies in it
            figures["refreshing"] = _calls(port) - before
            figures["writes"] = len(run.seen.look().nodes) - written
        used = usage(run.process.pid)
        return figures | {"memory": used.memory, "peak": used.peak}


def _calls(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(r'^cloudprovider_api_requests_total\{.*method="instances?_metadata".*\} (\S+)$', text, re.M)
    return int(sum(map(float, found)))
