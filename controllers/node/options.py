"""The cloud-node controller's options, with their flags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import frozen

from controllers.options import DURATION, INT, between, drain_timeout_option, option, positive

if TYPE_CHECKING:
    from cloudprovider.ips import IPNetwork

_SECTION: Final = "cloud-node-controller"


@frozen(kw_only=True)
class CloudNodeOptions:
    """How the controller works. Frozen; raises ValueError on values that make no sense."""

    concurrent_node_syncs: int = option(
        32,
        INT,
        "concurrent-node-syncs",
        _SECTION,
        "Workers that initialise and update nodes (Go's default is 1).",
        check=between(1, 1000),
        configz="NodeController.ConcurrentNodeSyncs",
    )
    concurrent_node_status_updates: int = option(
        0,
        INT,
        "concurrent-node-status-updates",
        _SECTION,
        "Workers that refresh the addresses and labels of nodes. 0: as many as --concurrent-node-syncs.",
        check=between(0, 1000),
        configz="NodeController.ConcurrentNodeStatusUpdates",
    )
    node_status_update_frequency: float = option(
        300.0,
        DURATION,
        "node-status-update-frequency",
        "misc",
        "How often the addresses and labels of every node are compared with the cloud.",
        check=positive,
        configz="NodeStatusUpdateFrequency",
    )
    drain_timeout: float = drain_timeout_option()
    routed: tuple[IPNetwork, ...] = ()
    """The ranges of pods to which this process makes routes: a new node with a part of them begins
    with NetworkUnavailable=True, until the route controller has made its route."""
