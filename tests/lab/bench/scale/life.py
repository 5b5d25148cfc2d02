"""The life of one cluster of some size, phase by phase, over a real API server.

Three processes of the manager take turns, with their default flags: one initialises the cluster,
the second is started anew in it, the third stands by and takes over from the second.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from attrs import field, frozen

from tests.lab.bench.ccm import NAME, zone_of
from tests.lab.bench.cluster import BenchCluster, names, new_nodes
from tests.lab.bench.contenders import Contender
from tests.lab.bench.scale.span import BALANCING, Span
from tests.lab.bench.scenario import Figures
from tests.lab.bench.trial import Trial, Unfinished, trial
from tests.lab.bench.witness import per_key
from tests.lab.envtest.server import Identity
from tests.support.api import NODES, STRATEGIC, each
from tests.support.failover.audit import AuditLog
from tests.support.services import SERVICES, lb_service

LATENCY_MS = 50
ZONES = 3
ROLLS = 20
"""Batches in which all nodes are replaced."""
IDLE_SECONDS = 30.0
PHASES = ("start", "refresh", "idle", "failover", "restart", "rolling", "zone")
WINDOW = 60
"""Seconds, in place of ten minutes: so long after its start a process lets few nodes go of a zone
in which none is Ready."""
_LIMIT = 3600.0
"""Seconds that a process of the manager may live."""
_SMALL, _BIG = 10, 50
"""Images of a node where there are many of them, and elsewhere: 4.2 KB and 12.8 KB."""


@frozen
class Size:
    """Of a cluster."""

    nodes: int

    @property
    def services(self) -> int:
        return max(1, self.nodes // 10)

    @property
    def images(self) -> int:
        return _BIG if self.nodes <= 5000 else _SMALL

    @property
    def name(self) -> str:
        return f"{self.nodes:,} nodes"


@frozen
class _Cluster:
    size: Size
    cluster: BenchCluster
    audit: AuditLog
    contender: Contender
    identities: Sequence[Identity]
    gone_zone: Path
    say: Callable[[str], None]
    _stack: ExitStack = field()

    def start(self, number: int, until: ExitStack) -> Trial:
        return until.enter_context(trial(self.contender, self.cluster, identity=self.identities[number]))

    def span(self, run: Trial, number: int) -> Span:
        return Span(run, self.identities[number].uid, self.audit, self.cluster.server)

    def add(self, prefix: str, count: int = 1) -> list[str]:
        found = new_nodes(count, prefix, images=self.size.images)
        self.cluster.create(NODES, found)
        return [node["metadata"]["name"] for node in found]


def live(size: Size, say: Callable[[str], None], flags: Sequence[str] = ()) -> Iterator[tuple[str, Figures]]:
    """Each phase and its figures, as it ends; the manager gets these flags too. Raises Unfinished,
    RuntimeError."""
    identities = [Identity("admin", f"manager-{number}", ("system:masters",)) for number in range(3)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scale-")))
        (folder / "balancers").mkdir()
        cloud = {"zones": ZONES, "goneZone": str(folder / "gone"), "balancers": str(folder / "balancers")}
        flags = ("--leader-elect=true", f"--node-deletion-window={WINDOW}s", "--node-deletion-young-grace=0s", *flags)
        contender = Contender(size.name, "ours", "*", LATENCY_MS, flags=flags, timeout=_LIMIT, cloud=cloud)
        began = time.monotonic()
        nodes = new_nodes(size.nodes, images=size.images)
        cluster = stack.enter_context(BenchCluster(nodes, identities))
        cluster.create(SERVICES, [lb_service(name) for name in names("service", size.services)])
        say(f"{size.name}: made in {time.monotonic() - began:.0f} s")
        audit = AuditLog(cluster.server.audit_log)
        one = _Cluster(size, cluster, audit, contender, identities, folder / "gone", say, stack)
        with ExitStack() as first:
            yield "start", _start(one, one.start(0, first))
        second = stack.enter_context(closing(ExitStack()))
        run = one.start(1, second)
        yield "refresh", _refresh(one, run)
        yield "idle", _idle(one, run)
        last, figures = _fail_over(one, run, stack)
        second.close()
        yield "failover", figures
        yield "restart", _restart(one, last)
        yield "rolling", _rolling(one, last)
        yield "zone", _zone(one, last)


def _start(one: _Cluster, run: Trial) -> Figures:
    """From the start of the process until every node is initialised and every Service has an
    address."""
    size, span = one.size, one.span(run, 0)
    span.wait(lambda: len(span.initialised()) >= size.nodes, "every node was initialised")
    nodes = max(span.initialised().values())
    span.wait(lambda: len(span.written("services/status", "patch", "update")) >= size.services, "all addresses")
    services = max(span.written("services/status", "patch", "update").values())
    span.settle()
    done = max(nodes, services)
    return _with_hosts(span, span.figures(done - run.started, nodes=nodes - run.started), size)


def _refresh(one: _Cluster, run: Trial) -> Figures:
    """A process starts in a cluster in which all is done, refreshes all nodes, and one joins."""
    span = one.span(run, 1)
    while not span.calls("instances_metadata"):
        span.wait(lambda: True, "the refresh")
        time.sleep(0.005)  # at a thousand nodes the refresh is over soon
    (name,) = one.add("joined")
    joined = time.time()
    span.wait(lambda: name in span.initialised(), "the new node was initialised")
    span.settle()
    calls = span.calls("instances_metadata")
    took = max(call.ended for call in calls) - min(call.began for call in calls)
    return span.figures(span.initialised()[name] - joined, refresh=took)


def _idle(one: _Cluster, run: Trial) -> Figures:
    span = one.span(run, 1)
    time.sleep(IDLE_SECONDS)
    return span.figures(time.time() - span.began)


def _fail_over(one: _Cluster, leader: Trial, stack: ExitStack) -> tuple[Trial, Figures]:
    """The leader is killed with a node waiting: until the other one's first write."""
    run = one.start(2, stack)
    before = one.span(run, 2)
    before.wait(lambda: _has_asked(before), "the second process had its caches")
    before.settle()
    span = one.span(run, 2)
    leader.process.send_signal(signal.SIGKILL)
    killed = time.time()
    (name,) = one.add("orphan")
    span.wait(lambda: name in span.initialised(), "the second process led")
    span.look()
    assert span.first_write is not None
    led = span.first_write.began
    lists = len([request for request in span.whole if request.began <= span.initialised()[name]])
    span.settle()
    return run, span.figures(led - killed, lists=lists)


def _has_asked(span: Span) -> bool:
    span.look()
    return {"nodes", "services"} <= set(span.watches)


def _restart(one: _Cluster, run: Trial) -> Figures:
    """kube-apiserver is killed and started again: until all watches are back, from its first
    answer."""
    before, span = _resources(one), one.span(run, 2)
    one.cluster.server.restart()
    ready = time.time()
    (name,) = one.add("after")
    span.wait(lambda: name in span.initialised(), "a node was initialised after the restart")
    span.wait(lambda: before <= set(span.watches), "all watches were back")
    span.settle()
    lists = len([request for request in span.whole if request.verb == "list"])
    return span.figures(
        max(span.watches[resource] for resource in before) - ready,
        away=ready - span.began,
        initialised=span.initialised()[name] - ready,
        lists=lists,
    )


def _resources(one: _Cluster) -> set[str]:
    uid = one.identities[2].uid
    found = {request.resource for request in one.audit.read() if request.who == uid and request.verb == "watch"}
    return found - {"leases"}


def _rolling(one: _Cluster, run: Trial) -> Figures:
    """All nodes are replaced in batches; each waits until the one before is initialised."""
    span = one.span(run, 2)
    present = [node["metadata"]["name"] for node in _all_nodes(one)]
    batch = -(-len(present) // ROLLS)
    for number in range(ROLLS):
        old = present[number * batch : (number + 1) * batch]
        each(one.cluster.api.delete, [f"{NODES}/{name}" for name in old])
        new = set(one.add(f"roll-{number:02d}", len(old)))
        span.wait(lambda: new <= set(span.initialised()), f"batch {number + 1} was initialised")  # noqa: B023 - called at once
        one.say(f"{one.size.name}: {number + 1} of {ROLLS} batches, {len(span.calls(*BALANCING)):,} host lists")
    done = max(span.initialised().values())

    def complete() -> bool:
        # Not when the manager has been quiet for a while: between two rounds of updates it rests.
        last = {call.keys[0]: call.nodes for call in span.calls(*BALANCING)}
        return len(last) == one.size.services and set(last.values()) == {len(present)}

    span.wait(complete, f"every load balancer had all {len(present)} hosts")
    span.settle()
    return _with_hosts(span, span.figures(done - span.began), one.size)


def _zone(one: _Cluster, run: Trial) -> Figures:
    """The machines of a zone are gone, and their kubelets silent."""
    zone = zone_of("", ZONES)
    gone = [node["metadata"]["name"] for node in _all_nodes(one) if zone_of(node["metadata"]["name"], ZONES) == zone]
    span = one.span(run, 2)
    one.gone_zone.write_text(zone)
    silent = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}
    each(lambda name: one.cluster.api.patch(f"{NODES}/{name}/status", silent, STRATEGIC), gone)
    told = time.time()
    span.wait(lambda: len(span.written("nodes", "delete")) >= len(gone), "every node of the zone was deleted")
    deleted = span.written("nodes", "delete")
    if set(deleted) != set(gone):
        raise Unfinished("other nodes were deleted than those of the zone")
    span.settle()
    asked = len(span.calls("instances_state", "instance_exists"))
    found = span.figures(max(deleted.values()) - told, telling=told - span.began, gone=len(gone), asked=asked)
    return _with_hosts(span, found, one.size)


def _all_nodes(one: _Cluster) -> list[dict[str, dict[str, str]]]:
    return one.cluster.api.items(NODES)


def _with_hosts(span: Span, figures: Figures, size: Size) -> Figures:
    """How often load balancers were given hosts, and how much of them."""
    calls = span.calls(*BALANCING)
    most = max(per_key(calls).values(), default=0)
    return {
        **figures,
        "updates": len(calls),
        "mean": len(calls) / size.services,
        "most": most,
        "megabytes": sum(call.nodes for call in calls) * len(f"{NAME}://node-00000") / 1e6,
    }
