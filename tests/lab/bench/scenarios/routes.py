"""500 nodes with pod CIDRs get their routes, and the condition that says so."""

from __future__ import annotations

from tests.lab.bench.cluster import JSON, BenchCluster, known_nodes, names
from tests.lab.bench.contenders import Contender, beside_go
from tests.lab.bench.scenario import Figure, Figures, Goal, Scenario, alone
from tests.lab.bench.trial import Unfinished, trial

LATENCY_MS = 50
FLAGS = ("--allocate-node-cidrs=true", "--configure-cloud-routes=true", "--cluster-cidr=10.128.0.0/9")


def routes(scale: float) -> Scenario:
    """The scenario with so many times its nodes."""
    count = max(1, round(500 * scale))
    return Scenario(
        "routes",
        f"{count} routes, cloud {LATENCY_MS} ms",
        "The nodes are there, with their pod CIDRs, before the process. From the beginning of a contender's first call "
        "to the cloud (the listing) to the last route made or the answer to the last NetworkUnavailable=False, "
        "whichever is later; and the same from the start of its process. All contenders get --cluster-cidr, "
        "--allocate-node-cidrs and --configure-cloud-routes.",
        (
            Figure("done", "routes and conditions, s"),
            Figure("routes", "routes alone, s"),
            Figure("from_start", "from process start, s"),
            Figure("calls", "cloud calls", 0),
            Figure("writes", "writes of nodes", 0),
        ),
        beside_go("ours", "route", LATENCY_MS, flags=FLAGS),
        alone(lambda contender: _measure(contender, count)),
        (Goal("ours", "from_start", 0.8, of="Go uncapped"),),
    )


def _nodes(count: int) -> list[JSON]:
    nodes = known_nodes(names("node", count))
    for number, node in enumerate(nodes):
        cidr = f"10.{128 + (number >> 8)}.{number & 255}.0/24"
        node["spec"] |= {"podCIDR": cidr, "podCIDRs": [cidr]}
    return nodes


def _measure(contender: Contender, count: int) -> Figures:
    with BenchCluster(_nodes(count)) as cluster:
        with trial(contender, cluster) as run:

            def done() -> bool:
                made = {call.keys[0] for call in run.journal.of("create_route")}
                told = {write.name for write in run.audit.of("nodes/status", "patch")}
                return len(made) == count and len(told) == count

            run.wait(done, "every route was made and told")
            calls, told = run.journal.read(), run.audit.of("nodes/status", "patch")
        for name in (names("node", count)[number] for number in (0, count // 2, count - 1)):
            conditions = {one["type"]: one["status"] for one in cluster.node(name)["status"]["conditions"]}
            if conditions.get("NetworkUnavailable") != "False":
                raise Unfinished(f"node {name} has no network: {conditions}")
    first = min(call.began for call in calls)
    last_route = max(call.ended for call in calls if call.method == "create_route")
    last = max(last_route, *(write.ended for write in told))
    return {
        "done": last - first,
        "routes": last_route - first,
        "from_start": last - run.started,
        "calls": len(calls),
        "writes": len(told),
    }
