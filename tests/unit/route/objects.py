"""Nodes and routes for these tests, and a controller's parts without threads or network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from attrs import define, evolve, field
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import Route
from cloudprovider.internal.backoff import Backoff
from controllers.options.podnetwork import CIDRS
from controllers.route.condition import NetworkCondition
from controllers.route.listing import RouteListing, RouteMetrics
from controllers.route.planning import LIST, LISTING, Planner
from controllers.route.reconcile import RouteReconciler
from controllers.route.registration import RouteOptions
from controllers.route.table import RouteTable
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import WorkQueue
from tests.support.clock import FakeClock
from tests.support.controllers import Calls, Lister, Recorder, Server, take_all

PREFIX = "/api/v1/nodes/"
CREATED, MISSING = ("False", "RouteCreated"), ("True", "NoRouteCreated")
"""Status and reason of the condition, which must never change."""


def raw_node(
    name: str,
    *cidrs: str,
    uid: str = "",
    condition: tuple[str, str] | None = None,
    addresses: Iterable[str] = (),
    ready: str = "True",
    ready_since: str | None = None,
    provider_id: str = "",
) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    if ready_since:
        conditions[0]["lastTransitionTime"] = ready_since
    if condition is not None:
        conditions.append({"type": "NetworkUnavailable", "status": condition[0], "reason": condition[1]})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": "1"},
        "spec": ({"podCIDR": cidrs[0], "podCIDRs": list(cidrs)} if cidrs else {})
        | ({"providerID": provider_id} if provider_id else {}),
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


def addressed(cidr: str, target: str, *ips: str) -> Route:
    """A route to a node with these addresses, of a provider that compares them."""
    return route(cidr, target, enable_node_addresses=True, target_node_addresses=addresses(*ips))


@define
class Cloud(Calls):
    """Routes in the cloud."""

    routes: list[Route] = field(factory=list)
    hints: list[str] = field(factory=list)
    while_listing: Callable[[], object] = field(default=lambda: None)

    def list(self, cluster_name: str, *, priority: int = 0) -> tuple[Route, ...]:
        self.enter("list", cluster_name)
        answer = tuple(self.routes)
        self.while_listing()
        return answer

    def create(self, cluster_name: str, name_hint: str, route: Route, *, priority: int = 0) -> None:
        self.enter("create", route.destination_cidr)
        self.hints.append(name_hint)
        name = f"{cluster_name}-{name_hint}-{route.destination_cidr}"
        self.routes.append(evolve(route, name=name, target_node_addresses=()))

    def delete(self, cluster_name: str, route: Route, *, priority: int = 0) -> None:
        self.enter("delete", route.destination_cidr)
        self.routes = [known for known in self.routes if known != route]


class Bench:
    """A reconciler over stubs. `add` puts a node on the API server and into the cache."""

    def __init__(
        self,
        *routes: Route,
        period: float = 300.0,
        list_interval: float = 10.0,
        mask_sizes: Mapping[int, int] | None = None,
        allocator: str = "RangeAllocator",
        cloud: Cloud | None = None,
        clusters: str = "10.244.0.0/16,fd00:10:244::/56",
    ) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.server, self.recorder = Server(), Recorder()
        self.cloud = cloud or Cloud(routes=[*routes])
        self.lister: Lister[V1Node] = Lister()
        self.table = RouteTable(self.clock)
        self.queue: WorkQueue[str] = WorkQueue(
            "Routes", clock=self.clock, metrics=self.metrics, backoff=Backoff(0.2, 60.0)
        )
        options = RouteOptions(
            cluster_cidrs=CIDRS.parse(clusters),
            node_cidr_mask_size_ipv4=(mask_sizes or {}).get(4, 0),
            node_cidr_mask_size_ipv6=(mask_sizes or {}).get(6, 0),
            cidr_allocator_type=allocator,
            route_reconciliation_period=period,
            list_interval=list_interval,
        )
        server, calls, own_metrics = cast(Any, self.server), cast(Any, self.cloud), RouteMetrics(self.metrics)
        planner = Planner(cast(Any, self.lister), self.table, options, self.clock)
        self.listing = RouteListing(calls, planner, self.queue, options, own_metrics, self.clock)
        condition, recorder = NetworkCondition(server, self.clock), cast(Any, self.recorder)
        self.reconciler = RouteReconciler(server, calls, planner, self.listing, condition, recorder, own_metrics)

    def add(self, name: str, *cidrs: str, **settings: Any) -> None:
        self.server.nodes[name] = raw_node(name, *cidrs, **settings)
        self.lister.objects[name] = node(name, *cidrs, **settings)

    def remove(self, name: str) -> None:
        self.server.nodes.pop(name, None)
        self.lister.objects.pop(name, None)

    def start(self) -> list[str]:
        """The routes are listed, and what that brings up is worked off; returns the keys."""
        self.queue.add(LIST, LISTING)
        return self.work()

    def later(self, seconds: float) -> list[str]:
        """What runs when this time has passed."""
        self.clock.advance(seconds)
        return self.work()

    def waiting(self) -> list[str]:
        """The keys that would run now, taken off the queue."""
        return take_all(self.queue)

    def work(self, *keys: str) -> list[str]:
        """Run these and what waits, until nothing does; returns the keys."""
        for asked in keys:
            self.queue.add(asked)
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
        written = [(path.split("/")[0], body["status"]["conditions"][0]) for path, body in self.server.patches]
        return [(name, one["status"], one["reason"]) for name, one in written]


def with_n1(*routes: Route, **settings: Any) -> Bench:
    """n1, whose condition says that its route is there, and these routes in the cloud."""
    bench = Bench(*routes, **settings)
    bench.add("n1", "10.244.1.0/24", condition=CREATED)
    return bench
