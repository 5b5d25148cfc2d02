"""What users of every cloud ask of the host, on real nodes: classes of load balancers in two
managers, a condition to wait for, a machine with a taint, targets that follow pods."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from attrs import evolve

from tests.lab.cluster.cluster import MANAGER, Cluster
from tests.lab.cluster.manifests import DEMO
from tests.lab.cluster.options import MachineSpec
from tests.lab.cluster.traffic import Traffic
from tests.lab.cluster.trials.flow import is_more, lost_in
from tests.lab.cluster.trials.leftovers import CONDITION, all_there, await_same
from tests.lab.cluster.trials.manager import await_leader
from tests.lab.cluster.trials.result import Result
from tests.lab.cluster.trials.watched import Watched
from tests.lab.cluster.trials.web import NAME, Pair, deployment, page_container, pair, unanswered
from tests.support.api import LEASES, MERGE, NODES
from tests.support.services import NOTE, SERVICES, addresses

TITLE = "What users of every cloud ask for"
METHOD = (
    "Two releases of the chart, each with its Lease: one serves Services without a class, the other one those of a "
    "class of its own; nobody serves a third class. `kubectl wait --for=condition=LoadBalancerReady` waits for each. "
    "A machine with a taint and an annotation joins; kubectl watches every version of its Node, and every pod that is "
    "bound to it; it is taken out of the load balancers, then deleted. Pods behind a Service with "
    "externalTrafficPolicy: Local move to another node and back. Meanwhile a client of each load balancer sends a "
    "request every 10 ms, and one of a load balancer that was made by hand and that nobody changes: what that one "
    "loses, the nodes and the machine lost. At the end all is torn down."
)
RELEASE = "trial-second"
SECOND, NOBODYS = "localcloud.example/second", "localcloud.example/nobody"
OTHER, LEFT, REFUSED, LOCAL = "trial-other", "trial-left", "trial-refused", "trial-local"
GUEST, STRANGER = "trial-guest", "trial-stranger"
TAINT = {"key": "localcloud.example/dedicated", "value": "trial", "effect": "NoSchedule"}
RACK = "localcloud.example/rack"
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
DRAIN = 10
"""Seconds that a pod goes on to serve after it was told to end, and that a new one must have been
ready before: targets follow meanwhile."""
LIMIT = 180.0
SETTLE = 5.0
"""Seconds of traffic after each step."""

JSON = Mapping[str, Any]


def run(cluster: Cluster) -> Result:
    result = Result()
    before = all_there(cluster)
    with _two_managers(cluster), pair(cluster) as both, _clients(cluster, result) as clients:
        _refused(cluster, result)
        with _watch_over(both, clients, "a machine with a taint joins and goes", result):
            _machine(cluster, result)
        workers = [spec.name for spec in cluster.options.machines if not spec.control_plane]
        for source, target in ((workers[0], workers[1]), (workers[1], workers[0])):
            with _watch_over(both, clients, f"pods move from {source} to {target}", result):
                _move(cluster, source, target, result)
        _alone(cluster, result)
        both.tell(result)
        for name, client in clients.items():
            report = client.report
            result.add(f"all steps, {name}", f"{report.sent} requests, {len(report.lost)} lost")
    left = await_same(cluster, before)
    result.add("left behind, or gone, after the end", ", ".join(left) or "nothing")
    result.check(not left, f"not as before: {', '.join(left)}")
    return result


# ---- two managers, and what they serve


@contextmanager
def _two_managers(cluster: Cluster) -> Iterator[None]:
    """The cluster's manager and one more, until the with statement ends; then as before."""
    content = json.dumps({"url": cluster.cloud.url, "token": cluster.cloud.token, "local_targets": True})
    flags = {"load-balancer-conditions": True}
    deployed = f"{RELEASE}-{MANAGER}"
    try:
        cluster.install_manager(
            loadBalancerClasses=[""], cloudConfig={"content": content}, rbac={"endpointSlices": True}, flags=flags
        )
        cluster.install_manager(
            release=RELEASE, controllers=["service-lb-controller"], loadBalancerClasses=[SECOND], flags=flags,
            leaderElection={"leaseName": RELEASE}, securePort=10268,
        )  # fmt: skip
        for name in (MANAGER, deployed):
            cluster.wait_for_deployment("kube-system", name)
        await_leader(cluster)
        cluster.wait("the second manager's Lease", lambda: "" if _holder(cluster) else "nobody holds it")
        yield
    finally:
        # Not by helm alone: it takes the permissions away while the pods still give the Lease back.
        away = ("--cascade=foreground", "--wait", "--ignore-not-found")
        cluster.kubectl("--namespace=kube-system", "delete", "deployment", deployed, *away)
        cluster.helm("uninstall", RELEASE, "--namespace=kube-system", "--ignore-not-found")
        cluster.api.delete(f"{LEASES}/{RELEASE}")
        # The permission last: it is needed until no pod with that setting runs.
        for rbac in ({"endpointSlices": True}, {"endpointSlices": False}):
            cluster.install_manager(rbac=rbac)
            cluster.wait_for_deployment("kube-system", MANAGER)
        await_leader(cluster)
        # It stays where the flag is gone, as the guide says.
        cluster.api.patch(f"{SERVICES}/{DEMO}/status", {"status": {"conditions": None}}, MERGE)


def _holder(cluster: Cluster) -> str:
    lease = cluster.api.find(f"{LEASES}/{RELEASE}") or {}
    return str(lease.get("spec", {}).get("holderIdentity") or "")


@contextmanager
def _clients(cluster: Cluster, result: Result) -> Iterator[Mapping[str, Traffic]]:
    """The Services, and clients of those that are served; all of it goes at the end."""
    workers = [spec.name for spec in cluster.options.machines if not spec.control_plane]
    begun = time.monotonic()
    cluster.apply(services(workers[0]))
    try:
        for name, who in ((NAME, "no class"), (OTHER, f"class {SECOND}"), (LOCAL, "policy Local")):
            cluster.kubectl("wait", f"--for=condition={CONDITION}", f"service/{name}", f"--timeout={LIMIT:.0f}s")
            result.add(f"kubectl wait returns, {who}", time.monotonic() - begun)
        note = _service(cluster, OTHER)["metadata"]["annotations"].get(NOTE, "")
        result.check(f"class={SECOND}" in note, f"the note of {OTHER} has no class: {note!r}")
        clients = {name: Traffic(next(iter(addresses(_service(cluster, name)))), 80) for name in (OTHER, LOCAL)}
        for client in clients.values():
            cluster.wait("first answers", lambda client=client: unanswered(client))  # type: ignore[misc]
        with ExitStack() as stack:
            yield {name: stack.enter_context(client) for name, client in clients.items()}
        for name in (OTHER, LOCAL):
            result.check(_condition(cluster, name).get("status") == "True", f"{name}: {_condition(cluster, name)}")
    finally:
        began, names = time.monotonic(), (OTHER, LEFT, REFUSED, LOCAL)
        cluster.kubectl("delete", "service", *names, "--ignore-not-found", f"--timeout={LIMIT:.0f}s")
        result.add("its Services deleted, with their load balancers", time.monotonic() - began)
        ours = set(names) & set(_balancers(cluster))
        result.check(not ours, f"load balancers are left of {sorted(ours)}")
        cluster.kubectl("delete", "deployment", LOCAL, "--ignore-not-found", "--cascade=foreground")


def services(node: str) -> list[dict[str, Any]]:
    """Services of each kind, and the pods of the one with policy Local, on that node."""
    hold = {"preStop": {"sleep": {"seconds": DRAIN}}}
    pod = {
        "containers": [{**page_container(), "lifecycle": hold}],
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": DRAIN + 2,
    }
    whole = {"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}
    return [
        deployment(LOCAL, pod, replicas=2, strategy=whole, minReadySeconds=DRAIN),
        _lb(LOCAL, LOCAL, externalTrafficPolicy="Local"),
        _lb(OTHER, NAME, loadBalancerClass=SECOND),
        _lb(LEFT, NAME, loadBalancerClass=NOBODYS),
        _lb(REFUSED, NAME, annotations={"localcloud.example/mode": "teleport"}),
    ]


def _lb(name: str, app: str, annotations: Mapping[str, str] | None = None, **spec: object) -> dict[str, Any]:
    wanted = {"type": "LoadBalancer", "selector": {"app": app}, "ports": [{"port": 80, "targetPort": 8080}], **spec}
    about = {"name": name, "namespace": "default", "annotations": {**(annotations or {})}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": wanted}


def _alone(cluster: Cluster, result: Result) -> None:
    """The Service of the third class is as its owner made it: no controller has written it."""
    service = _service(cluster, LEFT)
    writers = {one["manager"] for one in service["metadata"].get("managedFields", ())}
    result.add(f"class {NOBODYS}", f"written by {', '.join(sorted(writers))}; {len(_balancers(cluster))} others built")
    for wrong, what in (
        (writers - {"kubectl-client-side-apply"}, f"written by {sorted(writers)}"),
        (service["status"].get("conditions"), "has conditions"),
        (service["metadata"].get("finalizers"), "has a finalizer"),
        (service["status"].get("loadBalancer"), "has a status"),
        (cluster.api.events_of(LEFT), "has Events"),
        (LEFT in _balancers(cluster), "has a load balancer in the cloud"),
    ):
        result.check(not wrong, f"{LEFT}, of a class that nobody serves, {what}")


def _refused(cluster: Cluster, result: Result) -> None:
    """A mistake is in the condition, and its end is waited for."""
    path = f"{{.status.conditions[?(@.type=='{CONDITION}')].reason}}"
    cluster.kubectl("wait", f"--for=jsonpath={path}=Refused", f"service/{REFUSED}", f"--timeout={LIMIT:.0f}s")
    result.add("condition of a Service with a mistake", _condition(cluster, REFUSED).get("message", ""))
    begun = time.monotonic()
    cluster.kubectl("annotate", "service", REFUSED, "localcloud.example/mode-")
    cluster.kubectl("wait", f"--for=condition={CONDITION}", f"service/{REFUSED}", f"--timeout={LIMIT:.0f}s")
    result.add("kubectl wait returns, the mistake mended", time.monotonic() - begun)


def _condition(cluster: Cluster, name: str) -> JSON:
    conditions = _service(cluster, name)["status"].get("conditions") or ()
    return next((one for one in conditions if one["type"] == CONDITION), {})


def _service(cluster: Cluster, name: str) -> dict[str, Any]:
    return cluster.api.get(f"{SERVICES}/{name}")


# ---- a machine with a taint and an annotation


def _machine(cluster: Cluster, result: Result) -> None:
    spare = cluster.options.spares[0]
    mark = f"{TAINT['key']}={TAINT['value']}:{TAINT['effect']}"
    spec = evolve(spare, taints=[mark], annotations={RACK: "rack 7"})
    cluster.apply(wanting(spec.name))
    try:
        nodes = Watched(cluster, "nodes", f"--field-selector=metadata.name={spec.name}")
        pods = Watched(cluster, "pods", "--all-namespaces", f"--field-selector=spec.nodeName={spec.name}")
        with nodes, pods:
            begun = time.monotonic()
            cluster.create_machine(spec)
            cluster.wait_for_nodes([spec.name])
            result.add("the machine's node is Ready", time.monotonic() - begun)
            cluster.wait_for_deployment("default", GUEST)
            result.add("a pod that tolerates the taint is ready on it", time.monotonic() - begun)
            time.sleep(SETTLE)
        told, problems = joined(nodes.versions, pods.versions)
        result.figures += told
        result.problems += problems
        begun = time.monotonic()
        cluster.kubectl("taint", "node", spec.name, f"{TAINT['key']}-")
        cluster.wait_for_deployment("default", STRANGER)
        result.add("the taint removed by hand: the other pod is ready on it", time.monotonic() - begun)
        result.check(not _own_taints(cluster.api.get(f"{NODES}/{spec.name}")), "the taint was set again")
    finally:
        _remove(cluster, spec, result)


def wanting(node: str) -> list[dict[str, Any]]:
    """Two pods that can run on this node alone, only one of which tolerates its taint."""
    pod = {
        "containers": [page_container()],
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": 1,
    }
    guest = {**pod, "tolerations": [{**TAINT, "operator": "Equal"}]}
    return [deployment(GUEST, guest, replicas=1), deployment(STRANGER, pod, replicas=1)]


def joined(nodes: Sequence[JSON], pods: Sequence[JSON]) -> tuple[list[tuple[str, str]], list[str]]:
    """Figures and problems, from all versions of the Node and of the pods that were bound to it.
    Pure."""
    open_to_pods = [one for one in nodes if UNINITIALIZED not in _taints(one)]
    bare = [one for one in open_to_pods if _own_taints(one) != [TAINT]]
    unmarked = [one for one in open_to_pods if one["metadata"].get("annotations", {}).get(RACK) != "rack 7"]
    bound = {one["metadata"]["name"]: one for one in pods}
    strangers = sorted(name for name, pod in bound.items() if not _tolerates(pod))
    figures = [
        ("versions of its Node, of which open to pods", f"{len(nodes)}, {len(open_to_pods)}"),
        ("of these without the taint, without the annotation", f"{len(bare)}, {len(unmarked)}"),
        ("pods that were bound to it, of which do not tolerate the taint", f"{len(bound)}, {len(strangers)}"),
    ]
    problems = [
        text
        for wrong, text in (
            (not open_to_pods, "no version of the Node is open to pods"),
            (bare, f"{len(bare)} versions of the Node are open to pods and have not the taint alone"),
            (unmarked, f"{len(unmarked)} versions of the Node are open to pods and have not the annotation"),
            (strangers, f"pods ran there without a toleration: {', '.join(strangers)}"),
            (not bound, "no pod was bound to the node: the watch saw nothing"),
        )
        if wrong
    ]
    return figures, problems


def _remove(cluster: Cluster, spec: MachineSpec, result: Result) -> None:
    cluster.kubectl("delete", "deployment", GUEST, STRANGER, "--ignore-not-found", "--cascade=foreground")
    machine = cluster.cloud.machines().get(spec.name)
    if machine is None:
        return
    # A machine that ends with open connections loses them: first no load balancer sends to it.
    cluster.kubectl("label", "node", spec.name, f"{EXCLUDED}=")
    cluster.wait("it to be no target", lambda: "it is one" if machine["id"] in _all_targets(cluster) else "")
    time.sleep(SETTLE)
    begun = time.monotonic()
    cluster.cloud.call("DELETE", f"/v1/machines/{machine['id']}")
    cluster.wait("the Node to go", lambda: f"{spec.name} is there" if cluster.api.find(f"{NODES}/{spec.name}") else "")
    result.add("the machine deleted: its Node is gone", time.monotonic() - begun)
    cluster.wait("the route to go", lambda: "it is there" if machine["id"] in _routed(cluster) else "")


def _all_targets(cluster: Cluster) -> set[str]:
    return {target for one in _balancers(cluster).values() for target in one["targets"]}


def _routed(cluster: Cluster) -> set[str]:
    return {one["machine"] for one in cluster.cloud.call("GET", "/v1/routes")["routes"]}


def _taints(node: JSON) -> set[str]:
    return {taint["key"] for taint in node["spec"].get("taints", ())}


def _own_taints(node: JSON) -> list[JSON]:
    return [taint for taint in node["spec"].get("taints", ()) if taint["key"] == TAINT["key"]]


def _tolerates(pod: JSON) -> bool:
    """Of the taint: by its key, or all of them, as a DaemonSet may."""
    return any(one.get("key") in (None, TAINT["key"]) for one in pod["spec"].get("tolerations", ()))


# ---- targets that follow pods


def _move(cluster: Cluster, source: str, target: str, result: Result) -> None:
    """Set the pods' node, and see the targets follow."""
    title = f"pods move from {source} to {target}"
    begun, seen, ready = time.monotonic(), [(0.0, _targets(cluster))], None
    place = {"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": target}}}}}
    cluster.api.patch(f"/apis/apps/v1/namespaces/default/deployments/{LOCAL}", place, MERGE)
    while seen[-1][1] != (target,) and (at := time.monotonic() - begun) < LIMIT:
        now = _targets(cluster)
        if ready is None and _ready_on(cluster, target):
            ready = at
        if now != seen[-1][1]:
            seen.append((at, now))
        time.sleep(0.1)
    cluster.wait_for_deployment("default", LOCAL)
    followed = ", ".join(f"{'+'.join(names)} after {at:.1f} s" for at, names in seen[1:])
    result.add(f"{title}: targets", followed or "the same")
    result.check(seen[0][1] == (source,), f"{title}: targets were {seen[0][1]} before")
    result.check(seen[-1][1] == (target,), f"{title}: targets are {seen[-1][1]} after {LIMIT:.0f} s")
    first = next((at for at, names in seen if target in names), None)
    if first is not None and ready is not None:
        result.add(f"{title}: from the first ready pod to its node a target", max(0.0, first - ready))
    strangers = {name for _, names in seen for name in names} - {source, target}
    result.check(not strangers, f"{title}: targets without a pod: {sorted(strangers)}")


def _ready_on(cluster: Cluster, node: str) -> bool:
    """Whether a ready endpoint of the Service is on this node."""
    slices = cluster.api.items(
        f"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name%3D{LOCAL}"
    )
    endpoints = [end for one in slices for end in one.get("endpoints") or ()]
    return any(one.get("nodeName") == node and one["conditions"].get("ready") for one in endpoints)


def _targets(cluster: Cluster) -> tuple[str, ...]:
    """The names of the machines that the load balancer of the Service with policy Local has."""
    names = {one["id"]: name for name, one in cluster.cloud.machines().items()}
    return tuple(sorted(names.get(one, one) for one in _balancers(cluster)[LOCAL]["targets"]))


@contextmanager
def _watch_over(both: Pair, clients: Mapping[str, Traffic], title: str, result: Result) -> Iterator[None]:
    """Judge what is lost during a step, and for some seconds after it."""
    watched = {"no class": both.ours, **clients}
    begun, sent = time.time(), {name: one.report.sent for name, one in watched.items()}
    yield
    time.sleep(SETTLE)
    ended = time.time()
    beside = lost_in(both.beside.report, begun, ended)
    for name, one in watched.items():
        lost = lost_in(one.report, begun, ended)
        why = f" ({', '.join(sorted({each.why for each in lost}))})" if lost else ""
        told = f"{len(lost)} of {one.report.sent - sent[name]} lost, {len(beside)} beside{why}"
        result.add(f"{title}: {name}", told)
        result.check(not is_more(lost, beside), f"{title}: {name}: {told}")


def _balancers(cluster: Cluster) -> dict[str, JSON]:
    """Those of the cluster's Services in the namespace default, by the Service's name."""
    listed: Iterable[JSON] = cluster.cloud.call("GET", f"/v1/loadbalancers?owner={cluster.options.name}")[
        "loadbalancers"
    ]
    return {one["labels"].get("kubernetes.io/service", "").removeprefix("default/"): one for one in listed}
