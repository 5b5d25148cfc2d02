"""Stage 3: TRIGGER. Turns events of Services and nodes into keys of the queues `service`, `node`.

A Service's key is "namespace/name". Changes of nodes are gathered in `nodesync.py`, then all load
balancers are compared. Decides whether there may be work and how urgent it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudprovider.helpers import wants_load_balancer
from controllers.runtime.cache import is_newer, key_of, uid_of, version_of
from controllers.service.changes import Ownership, ingress, ownership, relevant, status_of
from controllers.service.records import Record, Records
from controllers.service.targets import TargetSet, is_leaving

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_service import V1Service

    from controllers.runtime.queue import WorkQueue
    from controllers.service.nodesync import NodeSync

DELETED: Final = 30
"""Priority of load balancers that are to go."""
NEW: Final = 20
"""Priority of Services without an address."""
CHANGED: Final = 10
"""Priority of Services that were changed."""
DRIFT: Final = -10
"""Priority of load balancers that are compared with the cloud because it is time."""


class ServiceTriggers:
    """The handler of Services. Called from the informer's thread, so the provider is not asked
    here: with `whole`, every change that its `depends_on` may read is looked at."""

    def __init__(self, queue: WorkQueue[str], records: Records, *, whole: bool = False) -> None:
        self._queue = queue
        self._records = records
        self._whole = whole

    def on_add(self, service: V1Service, initial: bool) -> None:
        key = key_of(service)
        if ownership(service) is not Ownership.NONE or key in self._records:
            self._queue.add(key, urgency(service))

    def on_update(self, old: V1Service, new: V1Service) -> None:
        key = key_of(new)
        restored = is_newer(version_of(old), version_of(new)) is True  # the API server, from a backup
        if restored:
            self._records.rewind(key)
        if not restored and relevant(old, whole=self._whole) == relevant(new, whole=self._whole):
            return
        if not wants_load_balancer(new) or uid_of(new) != uid_of(old):
            self._leaves(old)
        if ownership(new) is not Ownership.NONE or key in self._records:
            self._queue.add(key, urgency(new))

    def on_delete(self, service: V1Service) -> None:
        self._leaves(service)
        if key_of(service) in self._records:
            self._queue.add(key_of(service), DELETED)

    def _leaves(self, service: V1Service) -> None:
        """A former process may have built for it, so it is remembered now."""
        if wants_load_balancer(service) or ownership(service) is Ownership.REMOVE:
            self._records.put_if_absent(key_of(service), Record.inherited(service))


def urgency(service: V1Service) -> int:
    """The priority of an event about this Service."""
    if ownership(service) is not Ownership.KEEP:
        return DELETED
    return CHANGED if ingress(status_of(service)) else NEW


class NodeTriggers:
    """The handler of nodes. Called from the informer's thread."""

    def __init__(self, targets: TargetSet, sync: NodeSync) -> None:
        self._targets = targets
        self._sync = sync

    def on_add(self, node: V1Node, initial: bool) -> None:
        if initial:
            self._targets.invalidate()  # the Services of the first listing are served with all of these
        else:
            self._changed(None, node)

    def on_update(self, old: V1Node, new: V1Node) -> None:
        self._changed(old, new)

    def on_delete(self, node: V1Node) -> None:
        self._changed(node, None)

    def _changed(self, old: V1Node | None, new: V1Node | None) -> None:
        if self._targets.differs(old, new):
            self._targets.invalidate()
            self._sync.changed()
        elif old is not None and new is not None and is_leaving(new) and not is_leaving(old):
            self._targets.leaving()
