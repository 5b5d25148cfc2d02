"""Options that make no sense are refused, by name."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.cloudcalls import CloudCallOptions
from controllers.node.registration import CloudNodeOptions
from controllers.nodelifecycle.registration import NodeLifecycleOptions
from controllers.service.registration import ServiceOptions

NONSENSE: dict[type[Any], dict[str, float | str]] = {
    CloudCallOptions: {
        "timeout": 0,
        "build_timeout": 0,
        "concurrency": 0,
        "qps": -1,
        "burst": -1,
        "max_abandoned": -1,
    },
    CloudNodeOptions: {
        "concurrent_node_syncs": 0,
        "concurrent_node_status_updates": -1,
        "node_status_update_frequency": 0,
    },
    NodeLifecycleOptions: {
        "node_monitor_period": 0,
        "limit": -1,
        "window": 0,
        "young_grace": -1,
    },
    ServiceOptions: {
        "cluster_name": "",
        "concurrent_service_syncs": 0,
        "node_sync_window": -1,
        "node_sync_longest": -1,
        "drift_check_period": -1,
        "orphan_check_period": -1,
        "drain_timeout": -1,
    },
}


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [(kind, name, value) for kind, wrong in NONSENSE.items() for name, value in wrong.items()],
)
def test_nonsense_is_refused_by_name(kind: type[Any], name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        kind(**{name: value})
