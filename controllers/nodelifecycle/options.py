"""What can be set about the cloud-node-lifecycle controller, with its flags.

--node-monitor-period and --concurrent-node-lifecycle-syncs are Go's (default 1); others ours."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from controllers.options import (
    BOOL,
    DURATION,
    FLOAT,
    INT,
    between,
    drain_timeout_option,
    group,
    not_negative,
    option,
    positive,
)
from controllers.options.podnetwork import CLOUD_ALLOCATOR, cidr_allocator_type_option

_SECTION: Final = "cloud-node-lifecycle-controller"


@frozen(kw_only=True)
class BreakerOptions:
    """How many nodes may be deleted. Frozen; raises ValueError on values that make no sense."""

    enabled: bool = option(
        True,
        BOOL,
        "node-deletion-breaker",
        _SECTION,
        "Delete nodes of a zone only if the cloud's answers about the Ready nodes there are right. In a zone without a "
        "Ready node, delete only as many as the limits below allow. false: every confirmed deletion is carried out.",
    )
    ready_grace: float = option(
        60.0,
        DURATION,
        "node-deletion-ready-grace",
        _SECTION,
        "For this time the Node of a terminated machine may stay Ready. After it, a Ready node that the cloud says is "
        "gone counts as a wrong answer. Longer than kube-controller-manager's --node-monitor-grace-period (50s).",
        check=positive,
    )
    witnesses: int = option(
        300,
        INT,
        "node-deletion-witnesses",
        _SECTION,
        "Maximum number of a zone's Ready nodes that the cloud is asked about before a node there is deleted. If "
        "the provider has InstancesBatch: number of batches.",
        check=between(1, 1_000_000),
    )
    at_least: int = option(
        10,
        INT,
        "node-deletion-limit",
        _SECTION,
        "Number of deletions per --node-deletion-window that is always allowed in zones without a Ready node.",
        check=between(0, 1_000_000),
    )
    share: float = option(
        0.5,
        FLOAT,
        "node-deletion-limit-share",
        _SECTION,
        "Share of this provider's nodes, from 0 to 1, that may be deleted per --node-deletion-window, if that is "
        "more than --node-deletion-limit.",
        check=between(0, 1),
    )
    window: float = option(
        600.0,
        DURATION,
        "node-deletion-window",
        _SECTION,
        "Time window for counting deletions.",
        check=positive,
    )
    trickle: float = option(
        60.0,
        DURATION,
        "node-deletion-trickle",
        _SECTION,
        "Time between two deletions after the limit is reached. 0: no further deletion.",
        check=not_negative,
    )
    release_after: float = option(
        3600.0,
        DURATION,
        "node-deletion-release-after",
        _SECTION,
        "When the cloud has said for this time, without a break, that a node held back is gone, the deletions that "
        "wait are carried out, up to the limit. 0: never.",
        check=not_negative,
    )


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
    confirmations: int = option(
        2,
        INT,
        "node-deletion-confirmations",
        _SECTION,
        "Number of consecutive answers from the cloud that a node's instance is gone, before the node is deleted."
        " 1: delete after the first answer, as Go does.",
        check=between(1, 1000),
    )
    """Also of answers "shut down", before the out-of-service taint."""
    confirmation_period: float = option(
        0.0,
        DURATION,
        "node-deletion-confirmation-period",
        _SECTION,
        "Time between two such answers. 0: --node-monitor-period.",
        check=not_negative,
    )
    breaker: BreakerOptions = group(BreakerOptions)
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
    unknown_event_after: float = option(
        300.0,
        DURATION,
        "node-state-unknown-event-after",
        _SECTION,
        "If the cloud gives no usable answer about a node that is not ready for this time, there is an Event.",
        check=positive,
    )
    """The Event comes again each time that as many seconds have passed."""
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
    cidr_allocator_type: str = cidr_allocator_type_option()
    drain_timeout: float = drain_timeout_option()

    @property
    def cloud_chooses(self) -> bool:
        """Whether the cloud chooses the nodes' pod CIDRs."""
        return self.cidr_allocator_type == CLOUD_ALLOCATOR

    @property
    def answer_period(self) -> float:
        """Seconds between two answers that count."""
        return self.confirmation_period or self.node_monitor_period
