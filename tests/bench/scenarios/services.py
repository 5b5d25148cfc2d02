"""100 Services of type LoadBalancer get their addresses."""

from __future__ import annotations

from tests.bench.cluster import SERVICES, BenchCluster, known_nodes, names, service
from tests.bench.contenders import Contender, beside_go
from tests.bench.scenario import Figure, Figures, Goal, Scenario, alone
from tests.bench.trial import Trial, trial
from tests.bench.witness import Write

LATENCY_MS = 200
NODE_COUNT = 10
FIRST = "warm-up"


def services(scale: float) -> Scenario:
    """The scenario with so many times its Services."""
    count = max(1, round(100 * scale))
    return Scenario(
        "services",
        f"{count} Services of type LoadBalancer, cloud {LATENCY_MS} ms",
        "The manager runs and has served one Service; then the Services are created over 8 connections. From the "
        "arrival of the first creation at the API server to the answer to the last status with an address, for all "
        "contenders alike; creating them takes as long as the second column says. Calls are those that the cloud "
        "counted for these Services.",
        (
            Figure("done", "all have an address, s"),
            Figure("creating", "created in, s"),
            Figure("calls", "cloud calls", 0),
            Figure("writes", "writes of Services", 0),
        ),
        beside_go("ours", "service", LATENCY_MS),
        alone(lambda contender: _measure(contender, count)),
        (Goal("ours", "done", 1.6),),
    )


def serve(cluster: BenchCluster, run: Trial, wanted: list[str]) -> None:
    """Create Services and wait until each has had its status written. Raises RuntimeError if one has no address."""
    cluster.create(SERVICES, [service(name) for name in wanted])
    run.wait(lambda: set(_addressed(run)) >= set(wanted), "every Service had an address")
    for name in (wanted[0], wanted[len(wanted) // 2], wanted[-1]):
        if not cluster.api.get(f"{SERVICES}/{name}")["status"]["loadBalancer"].get("ingress"):
            raise RuntimeError(f"service {name} has no address")


def _measure(contender: Contender, count: int) -> Figures:
    wanted = names("service", count)
    with BenchCluster(known_nodes(names("node", NODE_COUNT))) as cluster, trial(contender, cluster) as run:
        serve(cluster, run, [FIRST])
        serve(cluster, run, wanted)
        created = [write for write in run.audit.of("services", "create") if write.name in wanted]
        keys = {f"default/{name}" for name in wanted}
        calls = [call for call in run.journal.read() if keys & set(call.keys)]
        writes = run.audit.of("services", "patch", "update") + _statuses(run)
        addressed = _addressed(run)
        first = min(write.began for write in created)
        return {
            "done": max(addressed[name] for name in wanted) - first,
            "creating": max(write.ended for write in created) - first,
            "calls": len(calls),
            "writes": sum(write.name in wanted for write in writes),
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


def _statuses(run: Trial) -> list[Write]:
    return run.audit.of("services/status", "patch", "update")
