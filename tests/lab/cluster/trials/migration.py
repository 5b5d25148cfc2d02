"""A cluster goes from Go's cloud-controller-manager to ours and back, while a client sends requests
and machines join."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from attrs import frozen

from tests.lab.cluster.cluster import MANAGER, Cluster
from tests.lab.cluster.staticimages import static_image
from tests.lab.cluster.trials.flow import is_more, lost_in
from tests.lab.cluster.trials.manager import await_another, holder
from tests.lab.cluster.trials.result import Result
from tests.lab.cluster.trials.web import Pair, pair
from tests.lab.cluster.trials.witness import ACCOUNT
from tests.lab.envtest.build import trial_manager
from tests.support.api import EVENTS, NODES
from tests.support.failover.audit import AuditLog, Tail
from tests.support.failover.fencing import judge
from tests.support.services import SERVICES, addresses

TITLE = "From the Go manager to ours and back"
METHOD = (
    "Go's own cloud-controller-manager, with a provider in Go for the same cloud, and ours take turns, as the guide "
    "about migrating says: ours is installed beside the Go manager with the same Lease, which is then scaled to zero; "
    "back, ours is deleted and uninstalled, and the Go manager scaled up. kube-controller-manager gives out the pod "
    "CIDRs meanwhile. In each turn a machine joins. One Service is made under Go, changed under ours, and deleted "
    "under Go. The client is that of the trial of traffic. Under the Go manager only what is lost before a machine "
    "joins is judged: Go makes a node a target of the load balancers before the node is Ready and its kube-proxy "
    "answers, and the requests that are sent there are refused. Under ours every request counts."
)
GO = "go-cloud-controller-manager"
GO_ACCOUNT = f"system:serviceaccount:kube-system:{GO}"
IMAGE = "registry.local/goccm:1"
MOVED = "trial-moved"
PORTS = (80, 8080)
SETTLE = 5.0
"""Seconds of traffic after each step."""
SLACK = 2.0
"""Seconds by which a busy server may notice a request late."""
_POD = "authentication.kubernetes.io/pod-name"
_READ = ["get", "list", "watch"]
_RULES: Sequence[tuple[str, str, Sequence[str]]] = (
    ("", "events", ["create", "patch", "update"]),
    ("", "nodes", ["*"]),
    ("", "nodes/status", ["patch"]),
    ("", "services", [*_READ, "patch", "update"]),
    ("", "services/status", [*_READ, "patch", "update"]),
    ("", "serviceaccounts", ["create"]),
    ("", "persistentvolumes", [*_READ, "update"]),
    ("", "configmaps", _READ),
    ("coordination.k8s.io", "leases", [*_READ, "create", "update"]),
)
"""What Kubernetes' documentation gives a cloud-controller-manager."""

JSON = Mapping[str, Any]


@frozen
class Turn:
    """One manager's time: how it takes over, and what is done to the Service meanwhile."""

    name: str
    take_over: Callable[[Cluster], None]
    service: Callable[[Cluster, Result], None]
    ours: bool
    """Whether the manager that takes over is ours."""


def run(cluster: Cluster) -> Result:
    result = Result()
    journal = Tail(cluster.cloud.layout.folder / "localcloud.log")
    with _with_go(cluster), pair(cluster) as both:
        before = State.of(cluster)
        journal.read()
        audit = AuditLog(cluster.control_plane.server.audit_log, _who)
        spares = iter(cluster.options.spares)
        for turn in TURNS:
            _take_turn(cluster, both, turn, next(spares, None), result)
        time.sleep(1)  # the audit log is written in batches
        requests = audit.read()
        made = changes(line.decode(errors="replace") for line in journal.read())
        after = State.of(cluster)
    both.tell(result)
    managers = {one.who: one.who for one in requests if one.who}
    verdict = judge(requests, (), managers, MANAGER, SLACK)
    result.add("processes of both managers that asked the API server", len(managers))
    gaps = [later.began - earlier.over for earlier, later in zip(verdict.holds, verdict.holds[1:], strict=False)]
    result.add("terms of leadership", len(verdict.holds))
    result.add("longest time without a leader", max(0.0, *gaps))
    result.add("writes to the API server", len(verdict.acts))
    result.add("by one that did not lead, or whose time was over", len(verdict.intruders) + len(verdict.late))
    result.check(not verdict.intruders and not verdict.late, str(verdict))
    result.check(len(verdict.holds) >= len(TURNS), f"the judge saw too little: {verdict}")
    compare(before, after, made, result)
    return result


def _take_turn(cluster: Cluster, both: Pair, turn: Turn, spare: Any, result: Result) -> None:
    begun, sent, led = time.time(), both.ours.report.sent, holder(cluster)
    turn.take_over(cluster)
    await_another(cluster, led)
    took = time.time() - begun
    turn.service(cluster, result)
    joined, alone = "", math.inf
    if spare is not None:
        created, alone = time.monotonic(), time.time()
        cluster.create_machine(spare)
        cluster.wait_for_nodes([spare.name])
        joined = f"; a machine joins, Ready and routed after {time.monotonic() - created:.0f} s"
    time.sleep(SETTLE)
    ours, beside = (lost_in(traffic.report, begun, time.time()) for traffic in (both.ours, both.beside))
    before = [one for one in ours if one.at < alone]
    late = len(ours) - len(before)
    lost = f"{len(ours)} of {both.ours.report.sent - sent} lost ({late} since the machine joins), {len(beside)} beside"
    why = sorted({one.why for one in ours})
    result.add(turn.name, f"{lost}; it leads after {took:.0f} s{joined}{'; ' if why else ''}{', '.join(why)}")
    result.check(not is_more(ours if turn.ours else before, beside), f"{turn.name}: {lost}")


@frozen
class State:
    """What must be the same at the end."""

    nodes: Mapping[str, str]
    """UID by name."""
    initialised: Mapping[str, int]
    """How often each node was, by its Events."""
    balancers: Mapping[str, str]
    """Address by name."""
    routes: frozenset[str]

    @classmethod
    def of(cls, cluster: Cluster) -> State:
        owner = cluster.options.name
        counts: dict[str, int] = {}
        for event in cluster.api.items(EVENTS):
            if event["reason"] == "Synced" and event["involvedObject"]["kind"] == "Node":
                name = event["involvedObject"]["name"]
                counts[name] = counts.get(name, 0) + (event.get("count") or 1)
        cloud = cluster.cloud
        listed = cloud.call("GET", f"/v1/loadbalancers?owner={owner}")["loadbalancers"]
        return cls(
            {node["metadata"]["name"]: node["metadata"]["uid"] for node in cluster.api.items(NODES)},
            counts,
            {one["name"]: one["address"] for one in listed},
            frozenset(one["name"] for one in cloud.call("GET", f"/v1/routes?owner={owner}")["routes"]),
        )


def compare(before: State, after: State, made: Mapping[tuple[str, str], list[str]], result: Result) -> None:
    """Judge what is there after all turns, and what was changed in the cloud meanwhile. Pure."""
    lasting = {name: after.nodes.get(name) for name in before.nodes}
    result.check(lasting == before.nodes, f"nodes were replaced: {before.nodes} before, {lasting} after")
    again = {name for name in before.nodes if after.initialised.get(name) != before.initialised.get(name)}
    again |= {name for name in after.nodes.keys() - before.nodes.keys() if after.initialised.get(name) != 1}
    result.add("nodes that joined, each initialised once", len(after.nodes) - len(before.nodes))
    result.add("nodes initialised again", len(again))
    times = {name: after.initialised.get(name, 0) for name in sorted(again)}
    result.check(not again, f"initialised more than once, or not (how often): {times}")
    result.check(after.balancers == before.balancers, f"load balancers: {before.balancers}, then {after.balancers}")
    deleted = [name for name in made.get(("DELETE", "loadbalancers"), []) if name in before.balancers]
    result.add("load balancers that stayed, each with its address", len(before.balancers))
    result.add("load balancers deleted or made anew", len(deleted))
    result.check(not deleted, f"load balancers were deleted: {deleted}")
    touched = [name for name in made.get(("PUT", "loadbalancers"), []) if name in before.balancers]
    result.add("changes of those load balancers (each node that joins is a new target)", len(touched))
    gone = [name for name in made.get(("DELETE", "routes"), []) if name in before.routes]
    result.add("routes deleted", len(gone))
    result.check(not gone and before.routes <= after.routes, f"routes were deleted: {gone}")


def changes(log: Any) -> dict[tuple[str, str], list[str]]:
    """The names of what was changed in the cloud, by (method, kind), from the lines of its log."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in log:
        words = line.split('"')
        method, _, rest = words[1].partition(" ") if len(words) > 2 else ("", "", "")
        path = rest.split(" ")[0].partition("?")[0].removeprefix("/v1/")
        kind, _, name = path.partition("/")
        if method in ("PUT", "DELETE") and words[2].split()[0] < "400":
            found.setdefault((method, kind), []).append(name)
    return found


def _who(event: JSON) -> str:
    user = event["user"]
    mine = user.get("username") in (ACCOUNT, GO_ACCOUNT)
    return str(user.get("extra", {}).get(_POD, [""])[0]) if mine else ""


# ---- the two managers


@contextmanager
def _with_go(cluster: Cluster) -> Iterator[None]:
    """Ours gives out no pod CIDRs, and the Go manager is there with no replicas; at the end all is
    as before."""
    archive = cluster.folder / "images" / "goccm.tar"
    static_image(archive, IMAGE, trial_manager(build=True), ["/bin/goccm"])
    cluster.import_image(archive, [spec.name for spec in cluster.options.machines if spec.control_plane])
    plane, layout = cluster.control_plane, cluster.cloud.layout
    _install(cluster)
    cluster.wait_for_deployment("kube-system", MANAGER)
    plane.give_out_pod_cidrs(str(layout.pods_network), str(layout.services_network))
    config = json.dumps({"url": cluster.cloud.url, "token": cluster.cloud.token})
    cluster.apply(go_manager(cluster.options.name, str(layout.pods_network), config))
    try:
        yield
    finally:
        cluster.kubectl("--namespace=kube-system", "delete", "deployment", GO, "--wait", "--ignore-not-found")
        for spare in cluster.options.spares:
            if machine := cluster.cloud.machines().get(spare.name):
                cluster.cloud.call("DELETE", f"/v1/machines/{machine['id']}")
            if cluster.api.find(f"{NODES}/{spare.name}"):
                cluster.api.delete(f"{NODES}/{spare.name}")
        plane.stop_pod_cidrs()
        cluster.install_manager()
        cluster.wait_for_deployment("kube-system", MANAGER)


def _install(cluster: Cluster) -> None:
    cluster.install_manager(controllers=["*"])


def _to_go(cluster: Cluster) -> None:
    # Not by helm alone: it takes the permissions away while the pods still give the Lease back.
    cluster.kubectl("--namespace=kube-system", "delete", "deployment", MANAGER, "--cascade=foreground", "--wait")
    cluster.helm("uninstall", MANAGER, "--namespace=kube-system")
    cluster.kubectl("--namespace=kube-system", "scale", f"deployment/{GO}", "--replicas=2")


def _to_ours(cluster: Cluster) -> None:
    _install(cluster)
    cluster.wait_for_deployment("kube-system", MANAGER)  # beside the Go manager, which leads
    cluster.kubectl("--namespace=kube-system", "scale", f"deployment/{GO}", "--replicas=0")


def _make_service(cluster: Cluster, result: Result) -> None:
    spec = {"type": "LoadBalancer", "selector": {"app": "none"}, "ports": [{"port": PORTS[0], "targetPort": 8080}]}
    cluster.apply([{"apiVersion": "v1", "kind": "Service", "metadata": {"name": MOVED, "namespace": "default"},
                    "spec": spec}])  # fmt: skip
    cluster.wait("the Service of Go", lambda: "" if _address(cluster) else "it has no address")


def _change_service(cluster: Cluster, result: Result) -> None:
    address = _address(cluster)
    cluster.api.patch(f"{SERVICES}/{MOVED}", {"spec": {"ports": [{"port": PORTS[1], "targetPort": 8080}]}})

    def lacking() -> str:
        listed = cluster.cloud.call("GET", f"/v1/loadbalancers?owner={cluster.options.name}")["loadbalancers"]
        own = [one for one in listed if one["labels"].get("kubernetes.io/service") == f"default/{MOVED}"]
        return "" if [[port["port"] for port in one["ports"]] for one in own] == [[PORTS[1]]] else "the old port"

    cluster.wait("the Service's other port", lacking)
    result.check(_address(cluster) == address, f"the Service had {address} and has {_address(cluster)} now")


def _delete_service(cluster: Cluster, result: Result) -> None:
    cluster.api.delete(f"{SERVICES}/{MOVED}")
    cluster.wait("the Service's end", lambda: "its finalizer" if cluster.api.find(f"{SERVICES}/{MOVED}") else "")


def _no_service(cluster: Cluster, result: Result) -> None:
    pass


def _address(cluster: Cluster) -> str:
    return next(iter(addresses(cluster.api.get(f"{SERVICES}/{MOVED}"))), "")


TURNS: Sequence[Turn] = (
    Turn("ours uninstalled, the Go manager takes over", _to_go, _make_service, ours=False),
    Turn("ours beside the Go manager, then in its place", _to_ours, _change_service, ours=True),
    Turn("back to the Go manager", _to_go, _delete_service, ours=False),
    Turn("to ours again", _to_ours, _no_service, ours=True),
)


def go_manager(cluster_name: str, pods: str, config: str) -> list[dict[str, Any]]:
    """The Go manager as vendors ship it: two replicas on the control plane, none at first. Pure."""
    kept = {"name": GO, "namespace": "kube-system"}
    flags = (
        "--cloud-provider=localcloud", "--cloud-config=/config/cloud.conf", f"--cluster-name={cluster_name}",
        f"--cluster-cidr={pods}", "--allocate-node-cidrs=true", "--configure-cloud-routes=true",
        f"--leader-elect-resource-name={MANAGER}", "--leader-elect-resource-namespace=kube-system",
        "--authentication-skip-lookup=true", "--secure-port=10268", "--v=2",
    )  # fmt: skip
    pod = {
        "serviceAccountName": GO,
        "hostNetwork": True,
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "containers": [
            {
                "name": "manager",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["/bin/goccm", *flags],
                "volumeMounts": [{"name": "config", "mountPath": "/config"}],
            }
        ],
        "volumes": [{"name": "config", "secret": {"secretName": GO}}],
    }
    labels = {"app": GO}
    spec = {
        "replicas": 0,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    rbac = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [group], "resources": [one], "verbs": list(verbs)} for group, one, verbs in _RULES]
    subject = {"kind": "ServiceAccount", **kept}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": kept},
        {"apiVersion": "v1", "kind": "Secret", "metadata": kept, "stringData": {"cloud.conf": config}},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": GO}, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": GO},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": GO},
            "subjects": [subject],
        },
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": kept, "spec": spec},
    ]
