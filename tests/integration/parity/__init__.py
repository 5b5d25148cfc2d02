"""The parity table: requests that the embedded API server and the real one must answer alike, grouped into
scenarios by topic.
"""

from __future__ import annotations

from tests.integration.parity import (
    configmaps,
    deletion,
    discovery,
    dryrun,
    events,
    eventviews,
    leases,
    lists,
    namespaces,
    node_patches,
    nodeboot,
    nodes,
    requests,
    reviews,
    secrets,
    serviceaccounts,
    services,
    volumes,
    watches,
    webhookconfigs,
    webhooks,
)
from tests.integration.parity.model import Scenario

MODULES = (
    nodes,
    node_patches,
    nodeboot,
    services,
    volumes,
    events,
    eventviews,
    leases,
    namespaces,
    configmaps,
    secrets,
    webhookconfigs,
    webhooks,
    dryrun,
    deletion,
    lists,
    watches,
    requests,
    reviews,
    serviceaccounts,
    discovery,
)
SCENARIOS: list[Scenario] = [scenario for module in MODULES for scenario in module.SCENARIOS]
