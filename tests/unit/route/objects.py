"""Nodes and routes for these tests, and a controller's parts without threads or network."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import define, field
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import Route
from controllers.route import RouteOptions, parse_cluster_cidrs
from controllers.route.reconcile import RouteReconciler
from controllers.route.table import RouteTable
from controllers.runtime.api import Response, from_status
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Backoff, WorkQueue
from tests.support.clock import FakeClock

PREFIX = "/api/v1/nodes/"


def raw_node(
    name: str, *cidrs: str, uid: str = "", condition: tuple[str, str] | None = None, addresses: Iterable[str] = ()
) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True"}]
    if condition is not None:
        conditions.append({"type": "NetworkUnavailable", "status": condition[0], "reason": condition[1]})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": "1"},
        "spec": {"podCIDR": cidrs[0], "podCIDRs": list(cidrs)} if cidrs else {},
        "status": {
            "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": address} for address in addresses],
        },
    }


def node(name: str, *cidrs: str, **settings: Any) -> V1Node:
    made = V1Node.from_dict(raw_node(name, *cidrs, **settings))
    assert made is not None
    return made


def route(cidr: str, target: str = "", name: str = "", **settings: Any) -> Route:
    return Route(name=name or f"kubernetes-{cidr}", target_node=target, destination_cidr=cidr, **settings)


def addresses(*ips: str) -> tuple[V1NodeAddress, ...]:
    return tuple(V1NodeAddress(type="InternalIP", address=ip) for ip in ips)


@define
class Rest:
    """The API server's nodes; what is asked and written is noted."""

    nodes: dict[str, dict[str, Any]] = field(factory=dict)
    gets: list[tuple[str, dict[str, Any]]] = field(factory=list)
    patches: list[tuple[str, Any]] = field(factory=list)
    proxy_404: bool = False

    def get(self, path: str, **settings: Any) -> Any:
        self.gets.append((path, settings))
        name = path.removeprefix(PREFIX)
        if name in self.nodes and not self.proxy_404:
            return json.loads(json.dumps(self.nodes[name]))
        details = {} if self.proxy_404 else {"name": name, "kind": "nodes"}
        body = {"kind": "Status", "reason": "NotFound", "code": 404, "details": details}
        raise from_status(404, {}, json.dumps(body).encode(), method="GET", path=path)

    def request(self, method: str, path: str, *, body: Any, **_: Any) -> Response:
        assert method == "PATCH"
        self.patches.append((path.removeprefix(PREFIX), body))
        return Response(200, {}, b'{"metadata": {"resourceVersion": "2"}}')


@define
class Cloud:
    """Routes in the cloud; `fail` names methods, or (method, destination) pairs, that raise."""

    routes: list[Route] = field(factory=list)
    calls: list[tuple[str, str]] = field(factory=list)
    hints: list[str] = field(factory=list)
    fail: dict[object, Exception] = field(factory=dict)
    while_listing: Callable[[], object] = field(default=lambda: None)

    def _call(self, method: str, about: str) -> None:
        self.calls.append((method, about))
        error = self.fail.get(method) or self.fail.get((method, about))
        if error is not None:
            raise error

    def list(self, cluster_name: str, *, priority: int = 0) -> tuple[Route, ...]:
        self._call("list", cluster_name)
        answer = tuple(self.routes)
        self.while_listing()
        return answer

    def create(self, cluster_name: str, name_hint: str, route: Route, *, priority: int = 0) -> None:
        self._call("create", route.destination_cidr)
        self.hints.append(name_hint)
        name = f"{cluster_name}-{name_hint}-{route.destination_cidr}"
        self.routes.append(Route(name, route.target_node, route.destination_cidr))

    def delete(self, cluster_name: str, route: Route, *, priority: int = 0) -> None:
        self._call("delete", route.destination_cidr)
        self.routes = [known for known in self.routes if known != route]

    def count(self, method: str) -> int:
        return sum(called == method for called, _ in self.calls)


@define
class Recorder:
    events: list[tuple[str, str, str]] = field(factory=list)

    def event(self, obj: Any, type: str, reason: str, message: str) -> None:
        self.events.append((type, reason, message))


@define
class Lister:
    nodes: dict[str, V1Node] = field(factory=dict)

    def get(self, key: str) -> V1Node | None:
        return self.nodes.get(key)

    def list(self) -> list[V1Node]:
        return list(self.nodes.values())


class Bench:
    """A reconciler over stubs. `add` puts a node on the API server and into the cache."""

    def __init__(
        self,
        *routes: Route,
        period: float = 300.0,
        list_interval: float = 10.0,
        mask_sizes: Mapping[int, int] | None = None,
    ) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.rest, self.cloud, self.recorder, self.lister = Rest(), Cloud([*routes]), Recorder(), Lister()
        self.table = RouteTable(self.clock)
        self.queue: WorkQueue[str] = WorkQueue(
            "Routes", clock=self.clock, metrics=self.metrics, backoff=Backoff(0.2, 60.0)
        )
        self.reconciler = RouteReconciler(
            self.rest,  # type: ignore[arg-type]  # stubs
            self.lister,  # type: ignore[arg-type]
            self.cloud,  # type: ignore[arg-type]
            self.table,
            self.queue,
            self.recorder,  # type: ignore[arg-type]
            options=RouteOptions(
                cluster_cidrs=parse_cluster_cidrs("10.244.0.0/16,fd00:10:244::/56"),
                node_cidr_mask_size_ipv4=(mask_sizes or {}).get(4, 0),
                node_cidr_mask_size_ipv6=(mask_sizes or {}).get(6, 0),
                route_reconciliation_period=period,
                list_interval=list_interval,
            ),
            metrics=self.metrics,
            clock=self.clock,
        )

    def add(self, name: str, *cidrs: str, **settings: Any) -> None:
        self.rest.nodes[name] = raw_node(name, *cidrs, **settings)
        self.lister.nodes[name] = node(name, *cidrs, **settings)

    def remove(self, name: str) -> None:
        self.rest.nodes.pop(name, None)
        self.lister.nodes.pop(name, None)

    def waiting(self) -> list[str]:
        """The keys that would run now, taken off the queue."""
        keys = []
        while (key := self.queue.get(timeout=0)) is not None:
            keys.append(key)
            self.queue.done(key)
        return keys

    def work(self) -> list[str]:
        """Run what waits until nothing does; returns the keys."""
        ran = []
        while (key := self.queue.get(timeout=0)) is not None:
            ran.append(key)
            try:
                result = self.reconciler.reconcile(key)
            finally:
                self.queue.done(key)
            if result.requeue_after is not None:
                self.queue.add_after(key, result.requeue_after)
        return ran

    def conditions(self) -> list[tuple[str, str, str]]:
        """(node, status, reason) as written."""
        written = [(path.split("/")[0], body["status"]["conditions"][0]) for path, body in self.rest.patches]
        return [(name, one["status"], one["reason"]) for name, one in written]
