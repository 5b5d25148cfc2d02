"""The flags of cloud-node-lifecycle-controller, and what the manager builds from them; its entry is in `catalog.py`.

Stage: before the first one, no I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from controllers.app.goflags import BOOL, DURATION, FLOAT, INT
from controllers.app.options import between, option, positive

if TYPE_CHECKING:
    from controllers.app.catalog import Context, Controller

_SECTION: Final = "cloud-node-lifecycle-controller"


def _from_zero(value: float) -> str | None:
    return None if value >= 0 else "must not be negative"


@attrs.frozen(kw_only=True)
class NodeLifecycleFlags:
    """The flags of cloud-node-lifecycle-controller. --node-monitor-period and
    --concurrent-node-lifecycle-syncs are Go's (there 1 by default, here 16); the others are ours."""

    node_monitor_period: float = option(
        5.0,
        DURATION,
        "node-monitor-period",
        _SECTION,
        "How often nodes that are not ready are looked at, and the cloud is asked about them.",
        check=positive,
    )
    confirmations: int = option(
        2,
        INT,
        "node-deletion-confirmations",
        _SECTION,
        "Fresh answers of the cloud in a row that a node's instance is gone, before the node is deleted. 1: the first "
        "one counts, as in Go.",
        check=between(1, 1000),
    )
    confirmation_period: float = option(
        0.0,
        DURATION,
        "node-deletion-confirmation-period",
        _SECTION,
        "Time between two such answers. 0: --node-monitor-period.",
        check=_from_zero,
    )
    breaker: bool = option(
        True,
        BOOL,
        "node-deletion-breaker",
        _SECTION,
        "Delete nodes of a zone only if the cloud tells the Ready nodes there right, and where there is none, only as "
        "many as the limits below allow. false: every confirmed deletion is carried out.",
    )
    witnesses: int = option(
        300,
        INT,
        "node-deletion-witnesses",
        _SECTION,
        "Ready nodes of a zone, at most, that the cloud is asked about before a node there is deleted. Providers that "
        "answer in batches are asked about so many batches.",
        check=between(1, 1_000_000),
    )
    breaker_limit: int = option(
        10,
        INT,
        "node-deletion-limit",
        _SECTION,
        "Deletions per --node-deletion-window that are always allowed in zones without a Ready node.",
        check=between(0, 1_000_000),
    )
    breaker_share: float = option(
        0.5,
        FLOAT,
        "node-deletion-limit-share",
        _SECTION,
        "Share of this provider's nodes, from 0 to 1, that may be deleted per --node-deletion-window where that is "
        "more.",
        check=between(0, 1),
    )
    breaker_window: float = option(
        600.0,
        DURATION,
        "node-deletion-window",
        _SECTION,
        "Time over which deletions are counted.",
        check=positive,
    )
    breaker_trickle: float = option(
        60.0,
        DURATION,
        "node-deletion-trickle",
        _SECTION,
        "Time between two deletions while the limits are used up. 0: none at all.",
        check=_from_zero,
    )
    breaker_release_after: float = option(
        3600.0,
        DURATION,
        "node-deletion-release-after",
        _SECTION,
        "When the cloud has said for so long that a node held back is gone, and nothing else, the next lot of "
        "deletions is let through. 0: never.",
        check=_from_zero,
    )
    uninitialized_grace_period: float = option(
        600.0,
        DURATION,
        "node-uninitialized-grace-period",
        _SECTION,
        "How long after its creation a node that waits for its initialisation is left alone.",
        check=_from_zero,
    )
    unknown_event_after: float = option(
        300.0,
        DURATION,
        "node-state-unknown-event-after",
        _SECTION,
        "How long the cloud may give no usable answer about a node that is not ready before an Event says so.",
        check=positive,
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
    concurrent_syncs: int = option(
        16,
        INT,
        "concurrent-node-lifecycle-syncs",
        _SECTION,
        "Workers that delete and taint nodes.",
        check=between(1, 1000),
    )


def node_lifecycle_controller(context: Context) -> Controller:
    """The controller as its flags say."""
    from controllers.nodelifecycle import BreakerOptions, NodeLifecycleController, NodeLifecycleOptions

    flags = context.options.of(NodeLifecycleFlags)
    options = NodeLifecycleOptions(
        node_monitor_period=flags.node_monitor_period,
        confirmations=flags.confirmations,
        confirmation_period=flags.confirmation_period,
        uninitialized_grace_period=flags.uninitialized_grace_period,
        unknown_event_after=flags.unknown_event_after,
        out_of_service_taint=flags.out_of_service_taint,
        breaker=BreakerOptions(
            enabled=flags.breaker,
            witnesses=flags.witnesses,
            at_least=flags.breaker_limit,
            share=flags.breaker_share,
            window=flags.breaker_window,
            trickle=flags.breaker_trickle,
            release_after=flags.breaker_release_after,
        ),
        concurrent_node_lifecycle_syncs=flags.concurrent_syncs,
        drain_timeout=context.drain,
    )
    return context.build(NodeLifecycleController, options)
