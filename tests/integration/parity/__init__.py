"""The parity table: requests that the embedded API server and the real one must answer alike,
grouped into scenarios by topic.
"""

from __future__ import annotations

from tests.integration.parity import (
    certificates,
    deletion,
    discovery,
    events,
    leases,
    lists,
    node_patches,
    nodeboot,
    nodes,
    requests,
    reviews,
    serviceaccounts,
    services,
    watches,
)
from tests.integration.parity.model import Scenario

MODULES = (
    nodes,
    node_patches,
    nodeboot,
    services,
    events,
    leases,
    certificates,
    deletion,
    lists,
    watches,
    requests,
    reviews,
    serviceaccounts,
    discovery,
)
SCENARIOS: list[Scenario] = [scenario for module in MODULES for scenario in module.SCENARIOS]
