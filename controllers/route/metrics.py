"""The route controller's metrics.

A comparison is "periodic" when a periodic listing asked for it, and "changed" when its work changed
the cloud, in any run of the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from controllers.runtime.metrics import Metrics

PERIODIC: Final = "periodic"
NODE_CHANGE: Final = "node_change"


class RouteMetrics:
    """What the comparisons with the cloud's routes came to. Thread-safe: a key has one thread."""

    def __init__(self, metrics: Metrics) -> None:
        self._syncs = metrics.counter(
            "route_controller_route_sync_total",
            "Comparisons with the cloud's routes: of one node, or of all when that failed or found nothing to do, "
            "by outcome (changed, noop, error) and trigger (periodic, node_change).",
            ("outcome", "trigger"),
        )
        for trigger in (PERIODIC, NODE_CHANGE):
            self._syncs.labels(outcome="error", trigger=trigger)  # at 0, or increase() misses the first
        self.left_alone = metrics.gauge(
            "route_controller_routes_left_alone",
            "Listed routes inside the cluster CIDRs that lead to no node of the cluster and stay, for "
            "now or for good. The log says why: --node-cidr-mask-size is not given, for example.",
        )
        self._periodic: set[str] = set()  # keys that the last periodic listings queued
        self._changed: set[str] = set()  # keys whose work under way has changed the cloud

    def queued(self, key: str, trigger: str) -> None:
        """A listing has brought up the key."""
        if trigger == PERIODIC:
            self._periodic.add(key)

    def trigger_of(self, key: str) -> str:
        """Why the key is worked on."""
        return PERIODIC if key in self._periodic else NODE_CHANGE

    def changed(self, key: str) -> None:
        """The key's work has changed the cloud."""
        self._changed.add(key)

    def failed(self, key: str, trigger: str) -> None:
        """The key's work failed, and comes again."""
        self._changed.discard(key)
        self.count("error", trigger)

    def finished(self, key: str, trigger: str) -> None:
        """The key's work is done."""
        self._periodic.discard(key)
        self.count("changed" if key in self._changed else "noop", trigger)
        self._changed.discard(key)

    def count(self, outcome: str, trigger: str) -> None:
        """One comparison."""
        self._syncs.labels(outcome=outcome, trigger=trigger).inc()
