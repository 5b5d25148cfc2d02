"""A controller of the vendor's own: counts the nodes of each pool, as the metric
samplecloud_pool_nodes.

It runs in the manager beside the others: started and stopped with them, on the same cache of nodes,
with its own flags, its health in /healthz and its permissions in the RBAC manifest.
"""

from __future__ import annotations

from collections import Counter

from cloudprovider import StopSignal
from cloudprovider.helpers import labels_of
from controllers.app import Context, Controller, ControllerEntry, Rule
from controllers.cloudcalls import CloudCalls
from controllers.runtime.api import ClientBuilder
from controllers.runtime.cache import NODES, InformerFactory
from controllers.runtime.clock import Clock
from controllers.runtime.metrics import Metrics
from samplecloud_provider.options import PoolOptions


class PoolController:
    """Has the constructor that every controller of the manager has."""

    def __init__(
        self,
        clients: ClientBuilder,
        informers: InformerFactory,
        cloud: CloudCalls,
        *,
        options: PoolOptions,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._options = options
        self._nodes = informers.informer(NODES)
        self._counted = metrics.gauge("samplecloud_pool_nodes", "Nodes by the label of their pool.", ("pool",))
        self._pools: set[str] = set()

    def run(self, stop: StopSignal) -> None:
        """Count until it is time to stop."""
        while True:
            self._count()
            if stop.wait(self._options.period):
                return

    def health(self) -> list[tuple[str, bool, str]]:
        """Nothing here can be stuck."""
        return [("pools", True, f"{len(self._pools)} pools")]

    def _count(self) -> None:
        found = Counter(labels_of(node).get(self._options.label, "") for node in self._nodes.lister.list())
        self._pools |= found.keys()
        for pool in self._pools:  # those that lost their last node go to 0
            self._counted.labels(pool=pool).set(found[pool])


def _construct(context: Context) -> Controller:
    return context.build(PoolController, PoolOptions)


ENTRY = ControllerEntry(
    name="samplecloud-pool-controller",
    aliases=("samplecloud-pool",),
    construct=_construct,
    options=(PoolOptions,),
    rules=(Rule(resource="nodes", verbs=("list", "watch"), consequence="the nodes of pools are not counted"),),
)
