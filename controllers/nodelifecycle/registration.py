"""cloud-node-lifecycle-controller in the manager: flags, permissions and entry.

--node-monitor-period and --concurrent-node-lifecycle-syncs are Go's (default 1); others ours."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from controllers.options import BOOL, DURATION, INT, between, drain_timeout_option, not_negative, option, positive
from controllers.registration.entry import ControllerEntry, Rule, built, event_rule, informers

_SECTION: Final = "cloud-node-lifecycle-controller"


@frozen(kw_only=True)
class NodeLifecycleOptions:
    """How the controller works. Frozen; raises ValueError on values that make no sense."""

    node_monitor_period: float = option(
        5.0,
        DURATION,
        "node-monitor-period",
        _SECTION,
        "How often the cloud is asked about nodes that are not ready.",
        check=positive,
        configz="NodeLifecycleController.NodeMonitorPeriod",
    )
    breaker: bool = option(
        True,
        BOOL,
        "node-deletion-breaker",
        _SECTION,
        "Delete a node only if the cloud's answers about a sample of the Ready nodes of its zone are right. In a zone "
        "without a Ready node, delete only as many as --node-deletion-limit allows. false: every confirmed deletion is "
        "carried out.",
    )
    limit: int = option(
        10,
        INT,
        "node-deletion-limit",
        _SECTION,
        "Number of deletions per --node-deletion-window that is always allowed in zones without a Ready node; half of "
        "this provider's nodes, if that is more.",
        check=between(0, 1_000_000),
    )
    window: float = option(
        600.0,
        DURATION,
        "node-deletion-window",
        _SECTION,
        "Time window for counting deletions.",
        check=positive,
    )
    uninitialized_grace_period: float = option(
        600.0,
        DURATION,
        "node-uninitialized-grace-period",
        _SECTION,
        "For this time after this process has first seen it, a node that is not initialised yet is not checked.",
        check=not_negative,
    )
    young_grace: float = option(
        120.0,
        DURATION,
        "node-deletion-young-grace",
        _SECTION,
        "For this time after this process has first seen a node, or seen it initialised, the node is not deleted: "
        "the cloud may not list its instance yet.",
        check=not_negative,
    )
    out_of_service_taint: bool = option(
        False,
        BOOL,
        "node-out-of-service-taint",
        _SECTION,
        "Taint nodes that the cloud confirms shut down with node.kubernetes.io/out-of-service="
        "cloud-instance-shut-down:NoExecute, "
        "so that their pods are evicted and their volumes detached, and remove it when they return.",
    )
    """Only for clouds that can be trusted when they say that a machine is switched off."""
    concurrent_node_lifecycle_syncs: int = option(
        16,
        INT,
        "concurrent-node-lifecycle-syncs",
        _SECTION,
        "Workers that delete and taint nodes.",
        check=between(1, 1000),
        configz="NodeLifecycleController.ConcurrentNodeLifecycleSyncs",
    )
    drain_timeout: float = drain_timeout_option()
    unknown_event_after: float = 300.0
    """Seconds without a usable answer about a node that is not ready until there is an Event, and
    from one to the next."""


ENTRY = ControllerEntry(
    name="cloud-node-lifecycle-controller",
    aliases=("cloud-node-lifecycle",),
    client="node-controller",
    construct=built("controllers.nodelifecycle.controller:NodeLifecycleController", NodeLifecycleOptions),
    needs=lambda cloud: cloud.has_instances,
    lacking="offers no instances, so no node is deleted because its machine is gone",
    module="controllers.nodelifecycle.controller",
    informers=informers("NODES"),
    options=(NodeLifecycleOptions,),
    rules=(
        Rule(
            resource="nodes",
            verbs=("get", "list", "watch", "patch", "delete"),
            consequence="nodes whose instance is gone are not deleted, and nodes that are shut down get no taint",
        ),
        event_rule("no Event says which nodes are deleted or held back"),
    ),
)
