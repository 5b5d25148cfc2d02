"""Stage 4: takes a node's key and the cloud's answer and does one unit of work, writing through stage 6.

`fetch` is the batch's question (stage 5) and `initialize` or `refresh` what follows for each key. On a conflict the
patches are computed anew from the fresh object; the cloud is not asked again. What came of it goes into `memory.py`,
which also says when it is too early to put back what somebody else undid.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cloudprovider import InstanceMetadata, InstanceNotFound
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.helpers.taints import needs_initialization
from cloudprovider.wellknown import TAINT_EXTERNAL_CLOUD_PROVIDER
from controllers.cloudcalls import PRIORITY_NEW, PRIORITY_SWEEP, InvalidAnswer
from controllers.node import changes
from controllers.node.changes import NOTHING, Known, NodeChanges, NotAdopted
from controllers.node.memory import NodeMemory, Remembered
from controllers.runtime.api import NotFound, ServerError, Unreachable
from controllers.runtime.cache import NODES, key_of, uid_of
from controllers.runtime.queue import Result, seconds_text
from controllers.runtime.write import ObjectReplaced, Patch, apply

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls import CloudCalls
    from controllers.node.metrics import NodeMetrics
    from controllers.runtime.api import RestClient
    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock
    from controllers.runtime.write import EventRecorder

log = logging.getLogger(__name__)

MetadataAnswer = InstanceMetadata | Exception | None
"""What the cloud said of one node; None when it was not asked."""

_ATTEMPTS = 8


class NodeReconciler:
    """One unit of work per key. Thread-safe: the work queue keeps two threads off one key."""

    def __init__(
        self,
        rest: RestClient,
        lister: Lister[V1Node],
        cloud: CloudCalls,
        recorder: EventRecorder,
        metrics: NodeMetrics,
        clock: Clock,
        memory: NodeMemory,
    ) -> None:
        self._rest = rest
        self._lister = lister
        self._cloud = cloud
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        self._memory = memory
        self._refused_before: set[str] = set()

    def fetch_new(self, keys: Sequence[str], deliver: Callable[[str, MetadataAnswer], None]) -> None:
        """Ask the cloud about those of the nodes that carry the taint and may lose it now."""
        self._fetch(keys, deliver, lambda node: needs_initialization(node) and not self._too_early(node), PRIORITY_NEW)

    def fetch_known(self, keys: Sequence[str], deliver: Callable[[str, MetadataAnswer], None]) -> None:
        """Ask the cloud about those of the nodes that are initialised."""
        self._fetch(keys, deliver, lambda node: not needs_initialization(node), PRIORITY_SWEEP)

    def initialize(self, key: str, answer: MetadataAnswer) -> Result | None:
        """Make a tainted node ready for use, or bring an initialised one's label twins in line.

        Raises what the cloud answered, what the API server refused, or why the answer may not be applied.
        """
        node = self._lister.get(key)
        if node is None:
            self._memory.forget(key)
            return None
        if isinstance(answer, Exception):
            raise answer
        entry = self._memory.of(node)
        if answer is None:
            self._tell_late(key, node, entry)
            if needs_initialization(node):
                return self._wait_with_taint(node)
            self._pair(node, entry)
            return None
        metadata, latest, planned = answer, node, NOTHING

        def plan(fresh: V1Node) -> NodeChanges:
            nonlocal latest, planned
            latest = fresh
            planned = changes.initialization(fresh, metadata, entry.known) if needs_initialization(fresh) else NOTHING
            return planned

        try:
            done = self._apply(node, plan)
        except (Unreachable, ServerError):
            entry.unsure = True
            entry.known = None  # whatever was applied, the record says so
            raise
        if done is not None:
            if planned.known is not None:
                self._in_line(entry, done, metadata, planned.known, written=True)
            self._finished(key, done, entry, metadata.provider_id or "")
        else:
            self._tell_late(key, latest, entry)
        return None

    def _too_early(self, node: V1Node) -> float:
        """Seconds for which a node that was initialised keeps the taint that somebody put back."""
        entry = self._memory.of(node)
        return entry.taint.left(self._clock.monotonic()) if entry.put_back else 0.0

    def _wait_with_taint(self, node: V1Node) -> Result:
        """The node has the taint, and the cloud was not asked: it was too early, or the taint has only just come."""
        left = self._too_early(node)
        if left:
            self._tell_of_taint(node, left)
        return Result(requeue_after=left)

    def _tell_of_taint(self, node: V1Node, left: float) -> None:
        self._recorder.event(
            node,
            "Warning",
            "TaintPutBack",
            f"Another program set the taint {TAINT_EXTERNAL_CLOUD_PROVIDER} again after this node was initialised; it "
            f"will be initialised again in {left:.0f} s. To see who sets the taint: kubectl get node {key_of(node)} "
            "--show-managed-fields -o yaml",
        )

    def _pair(self, node: V1Node, entry: Remembered) -> None:
        now = self._clock.monotonic()
        if entry.twins.left(now):
            return
        if self._apply(node, lambda fresh: NOTHING if needs_initialization(fresh) else changes.pairing(fresh)):
            entry.twins.used(now)

    def _tell_late(self, key: str, node: V1Node, entry: Remembered) -> None:
        """The taint is gone since a patch of ours whose answer was lost: what is left to do is to say so."""
        if entry.unsure and entry.uid == uid_of(node) and not needs_initialization(node):
            self._finished(key, node, entry)

    def _finished(self, key: str, done: V1Node, entry: Remembered, provider_id: str = "") -> None:
        provider_id = provider_id or provider_id_of(done)
        entry.unsure = entry.put_back = False
        entry.taint.used(self._clock.monotonic())
        created = done.metadata.creation_timestamp if done.metadata else None
        delay = None
        if created is not None:
            delay = max(0.0, self._clock.time() - created.timestamp())
            self._metrics.initialised(delay)
        self._recorder.event(done, "Normal", "Synced", "Node synced successfully")
        self._tell(key, delay, provider_id)

    def _tell(self, key: str, delay: float | None, provider_id: str) -> None:
        after = "" if delay is None else f", {seconds_text(delay)} after its creation"
        fields = {"node": key, "provider": self._cloud.provider_name, "provider_id": provider_id, "duration": delay}
        log.info("initialised node %s: %s%s", key, provider_id or "no provider ID", after, extra=fields)

    def refresh(self, key: str, answer: MetadataAnswer) -> None:
        """Carry over what has changed in the cloud, and put back what somebody else undid, if it is not too early.

        A node without a provider ID is adopted, or its owner is told once. Raises as `initialize` does.
        """
        node = self._lister.get(key)
        if node is None:
            self._memory.forget(key)
            return
        if answer is None:
            return
        entry = self._memory.of(node)
        nameless = not provider_id_of(node) and bool(self._cloud.provider_id_prefixes)
        if isinstance(answer, Exception):
            # No error, or the worker would ask the cloud again long before the next refresh, and for ever.
            if nameless and isinstance(answer, InstanceNotFound):
                self._not_adopted(node, entry, "the cloud knows no instance of this name")
                return
            if nameless and isinstance(answer, InvalidAnswer):
                self._not_adopted(node, entry, str(answer))
                return
            raise answer
        metadata, latest, planned = answer, node, NOTHING
        made = changes.adoption if nameless and metadata.provider_id else changes.refresh

        def plan(fresh: V1Node) -> NodeChanges:
            nonlocal latest, planned
            latest = fresh
            planned = NOTHING if needs_initialization(fresh) else made(fresh, metadata, entry.known)
            if planned and self._would_fight(entry, fresh, metadata):
                planned = NOTHING
            if planned.known is not None:
                entry.wished = planned.known.told
            return planned

        try:
            done = self._apply(node, plan)
        except NotAdopted as reason:
            self._not_adopted(node, entry, str(reason))
            return
        except (Unreachable, ServerError):
            entry.known = None  # whatever was applied, the record says so
            raise
        entry.without_id = False
        if done is not None and nameless and metadata.provider_id:
            log.info("adopted node %s: its provider ID is %s", key, metadata.provider_id)
        if planned.known is not None:  # it did not go, was not recreated, and does not wait
            self._in_line(entry, latest, metadata, planned.known, written=done is not None)

    def _would_fight(self, entry: Remembered, fresh: V1Node, metadata: InstanceMetadata) -> bool:
        """Whether the node was in line with this very answer, somebody else changed it, and that is too often."""
        return entry.basis == changes.basis(fresh, metadata) and entry.restore.left(self._clock.monotonic()) > 0

    def _in_line(
        self, entry: Remembered, node: V1Node, metadata: InstanceMetadata, known: Known, *, written: bool
    ) -> None:
        """Remember what the node is in line with, and that something was put back if it was so before."""
        entry.known = known
        basis = changes.basis(node, metadata)
        if written and entry.basis == basis:
            entry.restore.used(self._clock.monotonic())
        entry.basis = basis

    def _not_adopted(self, node: V1Node, entry: Remembered, reason: str) -> None:
        entry.without_id = True
        if entry.say_once("NodeWithoutProviderID"):
            self._recorder.event(
                node,
                "Warning",
                "NodeWithoutProviderID",
                f"This node has no spec.providerID and cannot be adopted: {reason}. Its labels and addresses are not "
                "kept, and it is not deleted when its instance is gone. If it belongs to this cloud, delete the Node "
                "object and restart its kubelet with --cloud-provider=external",
            )

    def _fetch(
        self,
        keys: Sequence[str],
        deliver: Callable[[str, MetadataAnswer], None],
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
