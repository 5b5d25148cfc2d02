"""The route controller: for every pod CIDR of every node, a route in the cloud that leads to the node.

Wires the stages: informer (2) -> triggers -> queue (3) -> reconcile (4) -> cloud call (5) -> patch (6). Runs in the
manager, or alone in a program of your own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import Attribute, field, frozen, validators

from cloudprovider.helpers.ips import IPNetwork
from controllers.cloudcalls import CloudCallError
from controllers.route.changes import check_cluster_cidrs
from controllers.route.reconcile import RouteConflict, RouteReconciler
from controllers.route.table import RouteTable
from controllers.route.triggers import LIST, LISTING, RouteTriggers
from controllers.runtime.cache import NODES
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Backoff, FailureHandling, Worker, WorkQueue
from controllers.runtime.run import run_until
from controllers.runtime.write import EventRecorder

if TYPE_CHECKING:
    from cloudprovider.host import StopSignal
    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.cache import InformerFactory

COMPONENT = "route_controller"
IDENTITY = "route-controller"
_BACKOFF = Backoff(base=0.2, cap=60.0)


def _cluster_cidrs(_: object, __: Attribute[Any], nets: Sequence[IPNetwork]) -> None:
    if not nets:
        raise ValueError("the cluster CIDR must be given (--cluster-cidr)")
    check_cluster_cidrs(nets)


def _mask_sizes(options: RouteOptions, _: Attribute[Any], sizes: Mapping[int, int]) -> None:
    for version, size in sizes.items():
        cluster = next((net for net in options.cluster_cidrs if net.version == version), None)
        if cluster is None:
            raise ValueError(f"a mask size for IPv{version} needs a cluster CIDR of that family (--cluster-cidr)")
        if not cluster.prefixlen <= size <= cluster.max_prefixlen:
            raise ValueError(
                f"a node's pod CIDR of mask size {size} does not fit into the cluster CIDR {cluster}: the size must be "
                f"between {cluster.prefixlen} and {cluster.max_prefixlen}"
            )


@frozen(kw_only=True)
class RouteOptions:
    """How the controller works. Frozen; raises ValueError on values that make no sense."""

    cluster_cidrs: tuple[IPNetwork, ...] = field(validator=_cluster_cidrs)
    """The ranges of the cluster's pods, one or two of different families (`--cluster-cidr`). Nothing outside of them is
    ever deleted. `parse_cluster_cidrs` makes them from text."""

    cluster_name: str = field(default="kubernetes", validator=validators.min_len(1))
    """Handed to the provider (`--cluster-name`)."""

    mask_sizes: Mapping[int, int] = field(factory=dict, validator=_mask_sizes)
    """Prefix length of nodes' pod CIDRs by IP version, as kube-controller-manager allocates them
    (`--node-cidr-mask-size`); sizes seen on nodes are added to it. A route of another size is never deleted. Where
    neither this nor a node says it: 24 for IPv4, 64 for IPv6."""

    route_reconciliation_period: float = field(default=300.0, validator=validators.gt(0))
    """Seconds between two listings when no event asks for one (`--route-reconciliation-period`). Nodes that join,
    change or leave are served at once; this is how soon a route changed by hand is repaired."""

    list_interval: float = field(default=10.0, validator=validators.ge(0))
    """Seconds between two listings that events ask for, at least; and the age of a listing on which routes are still
    deleted. Creating needs no new listing."""

    concurrent_route_syncs: int = field(default=48, validator=validators.ge(1))
    """Nodes worked on at once. The calls to the cloud among them are bounded by the gateway, for all controllers."""

    drain_timeout: float = field(default=30.0, validator=validators.ge(0))
    """Seconds that the work under way may take to end when the controller stops."""


class RouteController:
    """Keeps the cloud's routes as the nodes' pod CIDRs ask for, and each node's NetworkUnavailable condition.

    Takes what every controller takes: clients, shared informers, the gateway to one provider; and `options`, which name
    the cluster's CIDRs. It does not start the informers. `run` may be called once.

    Raises ValueError at construction when the provider offers no routes.

    Follows: controllers/route/route_controller.go of k8s.io/cloud-provider, and KEP-5237.
    """

    def __init__(
        self,
        clients: ClientBuilder,
        informers: InformerFactory,
        cloud: CloudCalls,
        *,
        options: RouteOptions,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        routes = cloud.routes
        if routes is None:
            raise ValueError(f"cloud provider {cloud.provider_name!r} offers no routes")
        self._options = options
        self._clock = clock
        metrics = metrics or Metrics()
        rest = clients.rest(IDENTITY)
        self._informer = informers.informer(NODES)
        self._recorder = EventRecorder(rest, COMPONENT, clock=clock, metrics=metrics)
        self._queue: WorkQueue[str] = WorkQueue("Routes", clock=clock, metrics=metrics, backoff=_BACKOFF)
        self._triggers = RouteTriggers(self._queue)
        reconciler = RouteReconciler(
            rest,
            self._informer.lister,
            routes,
            RouteTable(clock),
            self._queue,
            self._recorder,
            cluster_name=options.cluster_name,
            cluster_cidrs=options.cluster_cidrs,
            mask_sizes=options.mask_sizes,
            period=options.route_reconciliation_period,
            list_interval=options.list_interval,
            metrics=metrics,
            clock=clock,
        )
        self._worker = Worker(
            self._queue,
            reconciler.reconcile,
            threads=options.concurrent_route_syncs,
            failures=FailureHandling(expected=(CloudCallError, RouteConflict), noun="route", recall=cloud.outage),
            metrics=metrics,
            clock=clock,
        )

    def run(self, stop: StopSignal) -> None:
        """Work until `stop` is set, then finish what is under way and return. Blocks; to be called once.

        Waits for the informer's first listing before it begins. Keys that still wait when it stops are worked off in
        the drain time; the next manager finds the rest by listing.
        """
        triggers = self._triggers
        run_until(
            stop,
            component=COMPONENT,
            registrations=lambda: [self._informer.add_handler(triggers.on_add, triggers.on_update, triggers.on_delete)],
            workers=[self._worker],
            recorder=self._recorder,
            drain_timeout=self._options.drain_timeout,
            clock=self._clock,
            begin=lambda: self._queue.add(LIST, LISTING),
        )

    def health(self) -> list[tuple[str, bool, str]]:
        """(name, healthy, detail) of the worker; see `Worker.health`. Thread-safe."""
        return [self._worker.health()]
