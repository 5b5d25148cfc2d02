"""A client through a load balancer's address, while what stands behind the manager is taken away:
its node, its version, its API server, its life."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from attrs import frozen

from tests.lab.cluster.cluster import MANAGER, Cluster
from tests.lab.cluster.traffic import Lost, Report
from tests.lab.cluster.trials.manager import await_another, await_leader, holder, kill
from tests.lab.cluster.trials.result import Result
from tests.lab.cluster.trials.web import Pair, pair
from tests.lab.image.archives import ManagerImage
from tests.support.api import LEASE

TITLE = "Traffic while the manager comes and goes"
METHOD = (
    "A client on the host sends a request every 10 ms to the address of a Service of type LoadBalancer, each on a "
    "connection of its own. Beside it the same to a load balancer that was made by hand over the same nodes and pods, "
    "and that nobody changes: what that one loses, the nodes and the machine lost. A request without a whole answer "
    "in 3 s is lost."
)
SETTLE = 5.0
"""Seconds of traffic after each step."""


@frozen
class Step:
    """Something that is done to the manager; it returns when the manager is whole again."""

    name: str
    act: Callable[[Cluster], None]


def run(cluster: Cluster) -> Result:
    result = Result()
    with pair(cluster) as both:
        for step in STEPS:
            _step(cluster, both, step, result)
    both.tell(result)
    return result


def _step(cluster: Cluster, both: Pair, step: Step, result: Result) -> None:
    begun, sent = time.time(), both.ours.report.sent
    step.act(cluster)
    took = time.time() - begun
    time.sleep(SETTLE)
    ours, beside = (lost_in(traffic.report, begun, time.time()) for traffic in (both.ours, both.beside))
    count = both.ours.report.sent - sent
    reasons = ", ".join(sorted({one.why for one in [*ours, *beside]}))
    lost = f"{len(ours)} of {count} lost, {len(beside)} beside" + (f" ({reasons})" if reasons else "")
    result.add(step.name, f"{lost}; {took:.0f} s until whole again")
    result.check(not is_more(ours, beside), f"{step.name}: {lost}")


def is_more(ours: Sequence[Lost], beside: Sequence[Lost]) -> bool:
    """Whether one client lost more than the other did. Where both lost some, up to twice as many is
    chance: it was the machine."""
    return len(ours) > 2 * len(beside)


def lost_in(report: Report, begun: float, ended: float) -> list[Lost]:
    """The requests that were sent in this time, and lost."""
    return [one for one in report.lost if begun <= one.at <= ended]


def _drain(cluster: Cluster) -> None:
    """The leader's node is drained; another replica leads, and the drained one comes back."""
    before = await_leader(cluster)
    cluster.kubectl("drain", before.node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
    _await_other(cluster, before.node)
    cluster.kubectl("uncordon", before.node)
    _await_whole(cluster)


def _upgrade(cluster: Cluster) -> None:
    """The same image under another tag."""
    image = cluster.image
    assert image is not None
    other = ManagerImage(image.archive, "trial", image.repository)
    for spec in cluster.options.machines:
        if spec.control_plane:
            cluster.run(spec.name, "ctr", "-n", "k8s.io", "images", "tag", "--force", image.reference, other.reference)
    cluster.install_manager(other)
    _await_whole(cluster)


def _flag(cluster: Cluster) -> None:
    """The first tag again, and another flag."""
    cluster.install_manager(flags={"v": 3})
    _await_whole(cluster)


def _restart(cluster: Cluster) -> None:
    cluster.kubectl("--namespace=kube-system", "rollout", "restart", f"deployment/{MANAGER}")
    _await_whole(cluster)


def _kill_leader(cluster: Cluster) -> None:
    replica, before = await_leader(cluster), holder(cluster)
    kill(cluster, replica)
    await_another(cluster, before)
    _await_whole(cluster)


def _kill_server(cluster: Cluster) -> None:
    """The API server ends at once and is away for ten seconds."""
    server = cluster.control_plane.server
    server.stop_apiserver(kill=True)
    time.sleep(10)
    server.start_apiserver()
    _await_renewed(cluster)
    _await_whole(cluster)


def _await_other(cluster: Cluster, node: str) -> None:
    def lacking() -> str:
        now = holder(cluster).partition("_")[0]
        return "" if now not in ("", node) else f"{now or 'nobody'} leads"

    cluster.wait("another leader", lacking)


def _await_renewed(cluster: Cluster) -> None:
    """Until somebody has written the Lease since."""
    before = cluster.api.get(LEASE)["spec"].get("renewTime")
    cluster.wait(
        "the Lease", lambda: "" if cluster.api.get(LEASE)["spec"].get("renewTime") != before else "not renewed"
    )


def _await_whole(cluster: Cluster) -> None:
    cluster.wait_for_deployment("kube-system", MANAGER)
    await_leader(cluster)


STEPS: Sequence[Step] = (
    Step("kubectl drain of the leader's node", _drain),
    Step("helm upgrade to another image tag", _upgrade),
    Step("helm upgrade with another flag", _flag),
    Step("rolling restart of the Deployment", _restart),
    Step("leader killed (-9)", _kill_leader),
    Step("API server killed (-9), back after 10 s", _kill_server),
)
