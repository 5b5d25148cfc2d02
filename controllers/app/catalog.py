"""The controllers that the manager can run, one line each, in the order in which they start; and its webhooks.

Stage: before the first one; nothing is imported or built until the manager calls an entry's `construct`. A new
controller has a file of its own beside this one, with its rules and its entry, and a line here. A vendor passes a
longer catalog to `main`, and more webhooks as its `webhooks`.
"""

from __future__ import annotations

from controllers.app import node, nodeipam, nodelifecycle, route, service, sshkeys, volumelabels
from controllers.app.entry import ControllerEntry
from controllers.app.webhooks.entry import WebhookEntry

CATALOG: tuple[ControllerEntry, ...] = (
    node.ENTRY,
    nodelifecycle.ENTRY,
    route.ENTRY,
    service.ENTRY,
    sshkeys.ENTRY,
    volumelabels.ENTRY,
    nodeipam.ENTRY,
)

WEBHOOKS: tuple[WebhookEntry, ...] = (volumelabels.WEBHOOK,)
