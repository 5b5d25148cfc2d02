"""The parity table: requests that the embedded API server and the real one must answer alike, grouped into
scenarios by topic.
"""

from __future__ import annotations

from tests.integration.parity import (
    configmaps,
    deletion,
    discovery,
    events,
    leases,
    lists,
    namespaces,
    node_patches,
    nodes,
    requests,
    reviews,
    serviceaccounts,
    services,
    volumes,
    watches,
    webhooks,
)
from tests.integration.parity.model import Scenario

MODULES = (
    nodes,
    node_patches,
    services,
    volumes,
    events,
    leases,
    namespaces,
    configmaps,
    webhooks,
    deletion,
    lists,
    watches,
    requests,
    reviews,
    serviceaccounts,
    discovery,
)
SCENARIOS: list[Scenario] = [scenario for module in MODULES for scenario in module.SCENARIOS]
