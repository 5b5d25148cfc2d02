"""100 Services of type LoadBalancer get their addresses."""

from __future__ import annotations

from tests.lab.bench.cluster import BenchCluster, known_nodes, names
from tests.lab.bench.contenders import Contender, beside_go
from tests.lab.bench.scenario import Figure, Figures, Goal, Scenario, alone
from tests.lab.bench.trial import Trial, Unfinished, trial
from tests.support.failover.audit import Request
from tests.support.services import SERVICES, lb_service

LATENCY_MS = 200
NODE_COUNT = 10


def services(scale: float) -> Scenario:
    """The scenario with so many times its Services."""
    count = max(1, round(100 * scale))
    return Scenario(
        "services",
        f"{count} Services of type LoadBalancer, cloud {LATENCY_MS} ms",
        "Two lots of as many Services. The first is there before the process: from a contender's first act (a write of "
        "a Service, or a call to the cloud) to the answer to the last status with an address, and to the same from the "
        "start of the process. When all of them are served, the second is created over 8 connections: from the arrival "
        "of the first creation at the API server to the answer to the last status; creating them takes as long as the "
        "column beside it says. Calls and writes of both lots.",
        (
            Figure("created", "created while it runs, s"),
            Figure("creating", "creating them took, s"),
            Figure("waiting", "there before, s"),
            Figure("from_start", "from process start, s"),
            Figure("calls", "cloud calls", 0),
            Figure("writes", "writes of Services", 0),
        ),
        beside_go("ours", "service", LATENCY_MS),
        alone(lambda contender: _measure(contender, count)),
        (Goal("ours", "created", 1.6), Goal("ours", "from_start", 1.1, of="Go uncapped")),
    )


def create(cluster: BenchCluster, wanted: list[str]) -> None:
    """Create these Services."""
    cluster.create(SERVICES, [lb_service(name) for name in wanted])


def await_addresses(cluster: BenchCluster, run: Trial, wanted: list[str]) -> float:
    """Wait until each of these Services has an address; returns when the last one had it. Raises
    `Unfinished`."""
    run.wait(lambda: set(_addressed(run)) >= set(wanted), "every Service had an address")
    for name in (wanted[0], wanted[len(wanted) // 2], wanted[-1]):
        if not cluster.api.get(f"{SERVICES}/{name}")["status"]["loadBalancer"].get("ingress"):
            raise Unfinished(f"service {name} has no address")
    addressed = _addressed(run)
    return max(addressed[name] for name in wanted)


def _measure(contender: Contender, count: int) -> Figures:
    before, later = names("before", count), names("later", count)
    with BenchCluster(known_nodes(names("node", NODE_COUNT))) as cluster:
        create(cluster, before)
        with trial(contender, cluster) as run:
            waited = await_addresses(cluster, run, before)
            create(cluster, later)
            done = await_addresses(cluster, run, later)
            created = [write for write in run.audit.of("services", "create") if write.name in later]
            writes = run.audit.of("services", "patch", "update") + _statuses(run)
            calls = run.journal.read()
        first = min(write.began for write in created)
        return {
            "created": done - first,
            "creating": max(write.ended for write in created) - first,
            "waiting": waited - min(*(write.began for write in writes), *(call.began for call in calls)),
            "from_start": waited - run.started,
            "calls": len(calls),
            "writes": len(writes),
        }


def _addressed(run: Trial) -> dict[str, float]:
    """When each Service's first status after its load balancer was built was written.

    The Go controller also writes its finalizer by way of the status, before that.
    """
    built: dict[str, float] = {}
    for call in run.journal.of("ensure_load_balancer"):
        built.setdefault(call.keys[0].removeprefix("default/"), call.ended)
    found: dict[str, float] = {}
    for write in _statuses(run):
        if write.began >= built.get(write.name, float("inf")):
            found.setdefault(write.name, write.ended)
    return found


def _statuses(run: Trial) -> list[Request]:
    return run.audit.of("services/status", "patch", "update")
