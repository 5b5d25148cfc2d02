"""Pages to send requests to, behind two load balancers: one of a Service, which the manager looks
after, and one beside it, made by hand and changed by nobody.

Both lead to the same pods over the same nodes. What the second loses, the nodes and this machine
lost; what only the first loses, the manager did.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attrs import frozen

from tests.lab.cluster.cluster import Cluster
from tests.lab.cluster.staticimages import BUSYBOX
from tests.lab.cluster.traffic import Traffic
from tests.lab.cluster.trials.result import Result
from tests.support.services import SERVICES, addresses

NAME = "trial-web"
BESIDE = "trial-beside"
MOVES_AFTER = 10
"""Seconds that a page's pod stays on a node that is lost (the default is 300)."""


@frozen
class Pair:
    """Two clients that send requests at the same time."""

    ours: Traffic
    beside: Traffic

    def tell(self, result: Result) -> None:
        """Note what became of all requests."""
        for name, report in (("ours", self.ours.report), ("beside", self.beside.report)):
            counted = f"{report.sent} requests, {len(report.lost)} lost, slowest answer {1000 * report.slowest:.0f} ms"
            result.add(f"all steps, {name}", counted)
            result.check(report.answered > 0, f"{name}: no request was answered")


def pages() -> list[dict[str, Any]]:
    """Four pods and two Services."""
    labels = {"app": NAME}
    lost = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute",
         "tolerationSeconds": MOVES_AFTER}
        for key in ("not-ready", "unreachable")
    ]  # fmt: skip
    spread = {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": "Honor",  # a node that is lost takes no share
        "labelSelector": {"matchLabels": labels},
        "matchLabelKeys": ["pod-template-hash"],
    }
    pod = {
        "containers": [page_container()],
        "tolerations": lost,
        "topologySpreadConstraints": [spread],
        "terminationGracePeriodSeconds": 1,
    }
    ports = [{"port": 80, "targetPort": 8080}]
    return [
        deployment(NAME, pod, replicas=4),
        _object("v1", "Service", NAME, {"type": "LoadBalancer", "selector": labels, "ports": ports}),
        _object("v1", "Service", BESIDE, {"type": "NodePort", "selector": labels, "ports": ports}),
    ]


def deployment(name: str, pod: dict[str, Any], *, replicas: int, **spec: object) -> dict[str, Any]:
    """A Deployment whose pods have the label app."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod}
    wanted = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **spec}
    return _object("apps/v1", "Deployment", name, wanted)


def page_container() -> dict[str, Any]:
    """Serves a page on port 8080 that says on which node it is."""
    script = "mkdir /tmp/page && echo $POD on $NODE > /tmp/page/index.html && exec httpd -f -p 8080 -h /tmp/page"
    return {
        "name": "web",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        "env": [
            {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for variable, path in (("POD", "metadata.name"), ("NODE", "spec.nodeName"))
        ],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 2},
    }


@contextmanager
def pair(cluster: Cluster) -> Iterator[Pair]:
    """Two clients, sending while the with statement runs; both load balancers go at its end."""
    cluster.apply(pages())
    cluster.wait_for_deployment("default", NAME)
    cluster.wait("the trial's Service", lambda: "" if _address(cluster) else "it has no address")
    name = f"{cluster.options.name}-{BESIDE}"
    path = f"/v1/loadbalancers/{name}"
    try:
        made = cluster.cloud.call("PUT", path, _balancer(cluster))
        ours, beside = Traffic(_address(cluster), 80), Traffic(made["address"], 80)
        cluster.wait("first answers", lambda: unanswered(ours) or unanswered(beside))
        with ours, beside:
            yield Pair(ours, beside)
    finally:
        cluster.cloud.call("DELETE", path)
        # With its pods: the next trial's have the same labels, and garbage collection may be late.
        cluster.kubectl("delete", "service,deployment", NAME, BESIDE, "--ignore-not-found", "--cascade=foreground")


def _balancer(cluster: Cluster) -> dict[str, Any]:
    machines = cluster.cloud.machines()
    workers = [machines[spec.name]["id"] for spec in cluster.options.machines if not spec.control_plane]
    port = cluster.api.get(f"{SERVICES}/{BESIDE}")["spec"]["ports"][0]["nodePort"]
    ports = [{"protocol": "TCP", "port": 80, "targetPort": port}]
    return {"owner": "nobody", "ports": ports, "targets": workers}


def unanswered(traffic: Traffic) -> str:
    """Whether a request gets an answer now: a load balancer's first pods may just be coming."""
    with Traffic(traffic.host, traffic.port, at_most=1, timeout=2.0) as once:
        once.finish()
    return "" if once.report.answered else f"{traffic.host} does not answer"


def _address(cluster: Cluster) -> str:
    return next(iter(addresses(cluster.api.get(f"{SERVICES}/{NAME}"))), "")


def _object(version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}
