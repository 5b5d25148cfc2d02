"""Stage 4: takes a node's key and the cloud's answer and does one unit of work, writing through stage 6.

`fetch` is the batch's question (stage 5) and `initialize` or `refresh` what follows for each key. On a conflict the
patches are computed anew from the fresh object; the cloud is not asked again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cloudprovider import InstanceMetadata
from cloudprovider.helpers.taints import needs_initialization
from controllers.cloudcalls import PRIORITY_NEW, PRIORITY_SWEEP
from controllers.node import changes
from controllers.node.changes import NOTHING, NodeChanges
from controllers.runtime.apierrors import NotFound, ServerError, Unreachable
from controllers.runtime.metrics import Metrics, exponential_buckets
from controllers.runtime.patch import ObjectReplaced, Patch, apply
from controllers.runtime.resources import NODES, key_of, uid_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock
    from controllers.runtime.events import EventRecorder
    from controllers.runtime.restclient import RestClient

log = logging.getLogger(__name__)

Answer = InstanceMetadata | Exception | None
"""What the cloud said of one node; None when it was not asked."""

_ATTEMPTS = 8
_DELAY_BUCKETS = exponential_buckets(1, 4, 6)


class NodeReconciler:
    """One unit of work per key. Thread-safe: the work queue keeps two threads off one key."""

    def __init__(
        self,
        rest: RestClient,
        lister: Lister[V1Node],
        cloud: CloudCalls,
        recorder: EventRecorder,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._rest = rest
        self._lister = lister
        self._cloud = cloud
        self._recorder = recorder
        self._clock = clock
        self._refused_before: set[str] = set()
        self._unsure: dict[str, str] = {}  # key -> UID of nodes whose last patch may have been applied
        self._taint_delay = metrics.histogram(
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            "Seconds between a node's creation and the removal of the uninitialized taint.",
            buckets=_DELAY_BUCKETS,
        )
        self._sync_delay = metrics.histogram(
            "node_controller_initial_node_sync_delay_seconds",
            "Seconds between a node's creation and the end of its initialisation.",
            buckets=_DELAY_BUCKETS,
        )

    def fetch_new(self, keys: Sequence[str], deliver: Callable[[str, Answer], None]) -> None:
        """Ask the cloud about those of the nodes that still carry the taint; the others need no answer."""
        self._fetch(keys, deliver, needs_initialization, PRIORITY_NEW)

    def fetch_known(self, keys: Sequence[str], deliver: Callable[[str, Answer], None]) -> None:
        """Ask the cloud about those of the nodes that are initialised."""
        self._fetch(keys, deliver, lambda node: not needs_initialization(node), PRIORITY_SWEEP)

    def initialize(self, key: str, answer: Answer) -> None:
        """Make a tainted node ready for use, or bring an initialised one's label twins in line.

        Raises what the cloud answered, what the API server refused, or why the answer may not be applied.
        """
        node = self._lister.get(key)
        if node is None:
            self._unsure.pop(key, None)
            return
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            self._tell_late(key, node)
            self._apply(node, lambda fresh: NOTHING if needs_initialization(fresh) else changes.pairing(fresh))
            return
        metadata, latest = answer, node

        def plan(fresh: V1Node) -> NodeChanges:
            nonlocal latest
            latest = fresh
            return changes.initialization(fresh, metadata) if needs_initialization(fresh) else NOTHING

        try:
            done = self._apply(node, plan)
        except (Unreachable, ServerError):
            self._unsure[key] = uid_of(node)
            raise
        if done is not None:
            self._finished(key, done)
        else:
            self._tell_late(key, latest)

    def _tell_late(self, key: str, node: V1Node) -> None:
        """The taint is gone since a patch of ours whose answer was lost: what is left to do is to say so."""
        if self._unsure.get(key) == uid_of(node) and not needs_initialization(node):
            self._finished(key, node)

    def _finished(self, key: str, done: V1Node) -> None:
        self._unsure.pop(key, None)
        created = done.metadata.creation_timestamp if done.metadata else None
        if created is not None:
            delay = max(0.0, self._clock.time() - created.timestamp())
            self._taint_delay.observe(delay)
            self._sync_delay.observe(delay)
        self._recorder.event(done, "Normal", "Synced", "Node synced successfully")
        log.info("initialised node %s", key)

    def refresh(self, key: str, answer: Answer) -> None:
        """Carry over what has changed in the cloud. Raises as `initialize` does."""
        node = self._lister.get(key)
        if node is None or answer is None:
            return
        if isinstance(answer, Exception):
            raise answer
        metadata = answer
        self._apply(node, lambda fresh: NOTHING if needs_initialization(fresh) else changes.refresh(fresh, metadata))

    def _fetch(
        self,
        keys: Sequence[str],
        deliver: Callable[[str, Answer], None],
        wanted: Callable[[V1Node], bool],
        priority: int,
    ) -> None:
        nodes = []
        for key in keys:
            node = self._lister.get(key)
            if node is not None and wanted(node):
                nodes.append(node)
            else:
                deliver(key, None)
        if nodes:
            self._cloud.fetch_metadata(nodes, deliver, priority=priority)

    def _apply(self, node: V1Node, plan: Callable[[V1Node], NodeChanges]) -> V1Node | None:
        """Write what `plan` makes of the node; returns the object that it was made of, None when nothing was due."""

        def patches(fresh: V1Node) -> Sequence[Patch]:
            planned = plan(fresh)
            self._speak_of_refused(planned)
            return planned.patches

        try:
            return apply(self._rest, NODES.key_path(key_of(node)), node, patches, NODES.parse, attempts=_ATTEMPTS)
        except (NotFound, ObjectReplaced):
            return None  # deleted or recreated meanwhile: its own event brings the new one

    def _speak_of_refused(self, planned: NodeChanges) -> None:
        for key in planned.refused_labels:
            if key not in self._refused_before:
                self._refused_before.add(key)
                log.warning("the provider's label %s is not written: its namespace is reserved for Kubernetes", key)
