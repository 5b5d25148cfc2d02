"""The leader is told to end: how soon the other one writes, and what it asks the API server for
until then."""

from __future__ import annotations

import itertools
import signal
import time

from tests.lab.bench.cluster import BenchCluster, initialised, names
from tests.lab.bench.contenders import Contender
from tests.lab.bench.scenario import Figure, Figures, Goal, Scenario, alone
from tests.lab.bench.scenarios.start import ELECTION, LEASE
from tests.lab.bench.trial import Trial, trial
from tests.lab.envtest.server import Identity
from tests.support.api import NODES
from tests.support.failover.audit import AuditLog, Request
from tests.support.failover.fencing import holds
from tests.support.nodes import big_node
from tests.support.repeating import Repeating

STANDBY_SECONDS = 15.0
JOIN_SECONDS = 0.05


def takeover(scale: float) -> Scenario:
    """The scenario with so many times its nodes."""
    count = max(1, round(5000 * scale))
    return Scenario(
        "takeover",
        f"Takeover after SIGTERM, {count:,} nodes",
        f"Two processes; the second one stands by for {STANDBY_SECONDS:.0f} s. Then the first one gets SIGTERM, while "
        f"a new node joins every {JOIN_SECONDS * 1000:.0f} ms. The first write is the second one's first on a node; it "
        "is timed from the signal, and from the answer to the release of the Lease (the Go manager does not release "
        "it: the other waits until it has run out). Lists are those of nodes and Services that the second one asked "
        "for between the signal and that write. Default flags.",
        (
            Figure("from_signal", "signal to first write, s"),
            Figure("from_release", "release to first write, s"),
            Figure("lists", "lists by the second one", 0),
        ),
        (
            Contender("ours", "ours", "cloud-node,service", flags=ELECTION),
            Contender("Go", "go", "cloud-node,service", flags=ELECTION),
        ),
        alone(lambda contender: _measure(contender, count)),
        (Goal("ours", "from_release", 2.0), Goal("ours", "lists", 0)),
    )


def _measure(contender: Contender, count: int) -> Figures:
    first, second = (Identity("admin", uid, ("system:masters",)) for uid in ("first", "second"))
    with BenchCluster([initialised(big_node(name)) for name in names("node", count)], [first, second]) as cluster:
        audit = AuditLog(cluster.server.audit_log)
        with trial(contender, cluster, identity=first) as leader:
            leader.wait(lambda: bool(holds(audit.read(), LEASE)), "it led")
            with trial(contender, cluster, identity=second) as run, _joining(cluster):
                run.wait(lambda: any(one.who == second.uid for one in audit.read()), "it asked for the lease")
                time.sleep(STANDBY_SECONDS)
                at = time.time()
                leader.process.send_signal(signal.SIGTERM)
                wrote = _first_write(run, audit, second)
            hold = holds(audit.read(), LEASE)[0]
            lists = [one for one in audit.read() if one.who == second.uid and one.lists and one.began >= at]
            figures = {
                "from_signal": wrote.began - at,
                "lists": sum(one.resource in ("nodes", "services") and one.began <= wrote.ended for one in lists),
            }
            return figures | ({"from_release": wrote.began - hold.released} if hold.released < wrote.began else {})


def _first_write(run: Trial, audit: AuditLog, second: Identity) -> Request:
    def found() -> list[Request]:
        return [
            one for one in audit.read() if one.who == second.uid and one.writes and one.resource.startswith("nodes")
        ]

    run.wait(lambda: bool(found()), "its first write")
    return min(found(), key=lambda one: one.began)


def _joining(cluster: BenchCluster) -> Repeating:
    """A new node every `JOIN_SECONDS` while it is entered."""
    numbers = itertools.count()

    def join() -> None:
        cluster.api.create(NODES, big_node(f"late-{next(numbers):05d}"))

    return Repeating(join, every=JOIN_SECONDS, name="joining")
