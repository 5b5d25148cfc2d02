"""The controllers that the manager can run, in the order in which they start, and its webhooks.

Nothing is imported or built until the manager calls an entry's `construct`. A vendor passes a
longer catalog to `main`, and more webhooks as its `webhooks`."""

from __future__ import annotations

from controllers.kubeletcsr import registration as kubeletcsr
from controllers.node import registration as node
from controllers.nodeipam import registration as nodeipam
from controllers.nodelifecycle import registration as nodelifecycle
from controllers.registration.entry import ControllerEntry
from controllers.route import registration as route
from controllers.service import registration as service
from controllers.sshkeys import registration as sshkeys
from controllers.volumelabels import registration as volumelabels
from controllers.webhooks.webhook import WebhookEntry

CATALOG: tuple[ControllerEntry, ...] = (
    node.ENTRY,
    nodelifecycle.ENTRY,
    route.ENTRY,
    service.ENTRY,
    sshkeys.ENTRY,
    volumelabels.ENTRY,
    nodeipam.ENTRY,
    kubeletcsr.ENTRY,
)

WEBHOOKS: tuple[WebhookEntry, ...] = (volumelabels.WEBHOOK,)
