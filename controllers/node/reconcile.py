"""Stage 4: RECONCILE. A node's key and the cloud's answer in, one unit of work out.

`fetch_new` and `fetch_known` ask the cloud about many nodes at once (stage 5), `initialize` or
`refresh` follows for each. On a conflict the patches are computed again from the fresh object; the
cloud is not asked again. An answer about a former node of the name is dropped (`Answer.of`), and
every patch is bound to the UID of the node that it was made for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from cloudprovider import InstanceMetadata, InstanceNotFound
from cloudprovider.helpers.addresses import ALL_ADDRESSES, AddressChoice, provided_node_ip
from cloudprovider.helpers.objects import get_node_condition, needs_initialization
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.wellknown import TAINT_EXTERNAL_CLOUD_PROVIDER
from controllers.cloudcalls import PRIORITY_NEW, PRIORITY_SWEEP, Answer, InvalidAnswer
from controllers.node import addresses, changes
from controllers.node.addresses import NoIPAddress, Wanted
from controllers.node.changes import NOTHING, NodeChanges, NotAdopted, ProviderIDTaken
from controllers.node.memory import UNTAINTING, NodeMemory, NodeMetrics, Remembered
from controllers.node.triggers import is_foreign, is_refreshed
from controllers.runtime.api import ObjectNotFound, RestClient, ServerError, Unreachable
from controllers.runtime.cache import NODES, Lister, key_of, uid_of
from controllers.runtime.queue import Result, seconds_text
from controllers.runtime.write import EventRecorder, ObjectReplaced, Patch, apply, timestamp

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider.ips import IPNetwork
    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.clock import Clock

log = logging.getLogger(__name__)

MetadataAnswer = Answer[InstanceMetadata] | Exception | None
"""What the cloud said of one node; None when it was not asked, an exception if that failed."""

OPEN_AFTER: Final = 120.0
"""Seconds for which a new node without any IP address waits with its taint at most."""

_ATTEMPTS = 8


class _Applied(NamedTuple):
    """What came of a plan."""

    done: V1Node | None
    """The node that was written; None when nothing was due."""
    latest: V1Node
    """The node that the last plan was made for."""
    planned: NodeChanges


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
        routed: Sequence[IPNetwork] = (),
        choice: AddressChoice = ALL_ADDRESSES,
    ) -> None:
        self._rest = rest
        self._lister = lister
        self._cloud = cloud
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        self._memory = memory
        self._routed = routed
        self._choice = choice
        self._refused_before: set[str] = set()

    def fetch_new(self, keys: Sequence[str], deliver: Callable[[str, MetadataAnswer], None]) -> None:
        """Ask the cloud about those of the nodes that carry the taint and may lose it now."""
        self._fetch(keys, deliver, lambda node: needs_initialization(node) and not self._too_early(node), PRIORITY_NEW)

    def fetch_known(self, keys: Sequence[str], deliver: Callable[[str, MetadataAnswer], None]) -> None:
        """Ask the cloud about those of the nodes that are initialised and stay."""
        self._fetch(keys, deliver, is_refreshed, PRIORITY_SWEEP)

    def initialize(self, key: str, answer: MetadataAnswer) -> Result | None:
        """Make a tainted node ready for use, or fix the deprecated labels of an initialised one.

        Raises what cloud or API server answered, or why it may not be used."""
        node = self._lister.get(key)
        if node is None:
            self._memory.forget(key)
            return None
        # The triggers look at that, too, but another cloud's manager may give a node its ID later.
        if is_foreign(node, self._cloud):
            return None
        if isinstance(answer, Exception):
            raise answer
        entry = self._memory.of(node)
        if answer is None:
            self._report_late(key, node, entry)
            if needs_initialization(node):
                return self._wait_with_taint(node)
            self._pair(node, entry)
            return None
        metadata = answer.of(node)
        # Before the write: what is written as provider ID can never be changed.
        self._give_id(node, metadata.provider_id)
        now, since = self._clock.monotonic(), entry.without_ip_since
        ip_needed = since is None or now - since < OPEN_AFTER

        def plan(fresh: V1Node) -> NodeChanges:
            # Another manager, or a patch of ours whose answer was lost, was faster.
            if not needs_initialization(fresh):
                return NOTHING
            return changes.initialization(
                fresh,
                metadata,
                entry.known,
                ip_needed=ip_needed,
                routed=self._routed,
                choice=self._choice,
                now=timestamp(self._clock.time()),
            )

        try:
            done, latest, planned = self._apply(node, plan)
        except NoIPAddress as error:
            # Its own rhythm, not the queue's back-off: an address comes in seconds, or in minutes.
            error.retry_after = self._next_question(entry, OPEN_AFTER)
            raise
        except (Unreachable, ServerError):
            # The API server may have applied it, and its answer be lost: then the next look finds
            # the node initialised, and reports it.
            entry.unsure = True
            entry.known = None  # whatever was applied, the record says so
            raise
        if done is not None:
            entry.heard = addresses.hear(entry.heard, metadata, now=now, period=self._memory.period, new=True)
            if planned.addresses is not None:
                self._tell_addresses(entry, done, metadata, planned.addresses, written=True)
                # Opened without one, it is asked about at 1, 2, 4 ... s again, as a refresh.
                entry.without_ip_since = None if addresses.has_ip(planned.addresses.addresses) else now
            self._in_line(entry, done, metadata, planned, written=True)
            self._finished(key, done, entry, metadata.provider_id or "", planned)
        else:
            self._report_late(key, latest, entry)
        return None

    def _give_id(self, node: V1Node, provider_id: str) -> None:
        """Raise ProviderIDTaken where another Node has the ID that this one is to get."""

        def holds(name: str) -> bool:
            other = self._lister.get(name)
            ready = get_node_condition(other, "Ready") if other is not None else None
            return ready is not None and ready.status in ("True", "False")  # Unknown: the kubelet is silent

        if provider_id and not provider_id_of(node):
            other = self._memory.give_id(key_of(node), provider_id, holds)
            if other:
                raise ProviderIDTaken(provider_id, other)

    def _next_question(self, entry: Remembered, longest: float) -> float:
        """Seconds until the cloud is asked again for an IP address: after 1, 2, 4 ... s of waiting,
        and when `longest` is over."""
        now = self._clock.monotonic()
        if entry.without_ip_since is None:
            entry.without_ip_since = now
        waited = now - entry.without_ip_since
        return max(1.0, min(waited, longest - waited if waited < longest else longest))

    def _too_early(self, node: V1Node) -> float:
        """Seconds for which an initialised node keeps the taint that was set again."""
        entry = self._memory.of(node)
        return entry.untainted.left(self._clock.monotonic()) if entry.tainted_again else 0.0

    def _wait_with_taint(self, node: V1Node) -> Result:
        # The cloud was not asked: it is too early, or the taint has only just come.
        left = self._too_early(node)
        if left:
            self._recorder.event(
                node,
                "Warning",
                "TaintPutBack",
                f"Another program set the taint {TAINT_EXTERNAL_CLOUD_PROVIDER} again after this node was initialised; "
                f"it will be initialised again in {left:.0f} s. To see who sets the taint: kubectl get node "
                f"{key_of(node)} --show-managed-fields -o yaml",
            )
        return Result(requeue_after=left)

    def _pair(self, node: V1Node, entry: Remembered) -> None:
        now = self._clock.monotonic()
        if entry.paired.left(now):
            return
        if self._apply(node, lambda fresh: NOTHING if needs_initialization(fresh) else changes.pairing(fresh)).done:
            entry.paired = self._memory.restoring.next(entry.paired, now)

    def _report_late(self, key: str, node: V1Node, entry: Remembered) -> None:
        """Report a node that a patch of ours initialised although its answer was lost."""
        if entry.unsure and entry.uid == uid_of(node) and not needs_initialization(node):
            self._finished(key, node, entry)

    def _finished(
        self, key: str, done: V1Node, entry: Remembered, provider_id: str = "", planned: NodeChanges = NOTHING
    ) -> None:
        provider_id = provider_id or provider_id_of(done)
        entry.unsure = entry.tainted_again = False
        entry.untainted = UNTAINTING.next(entry.untainted, self._clock.monotonic())
        created = done.metadata.creation_timestamp if done.metadata else None
        delay = None
        if created is not None:
            delay = max(0.0, self._clock.time() - created.timestamp())
            self._metrics.initialised(delay)
        replaced = "".join(
            f"; the cloud's {name}={value} replaced {own}" for name, (own, value) in sorted(planned.replaced.items())
        )
        self._recorder.event(done, "Normal", "Synced", f"Node synced successfully{replaced}")
        after = ("" if delay is None else f", {seconds_text(delay)} after its creation") + replaced
        fields = {"node": key, "provider": self._cloud.provider_name, "provider_id": provider_id, "duration": delay}
        log.info("initialised node %s: %s%s", key, provider_id or "no provider ID", after, extra=fields)

    def refresh(self, key: str, answer: MetadataAnswer) -> None:
        """Write what has changed in the cloud, and put back what others undid unless too early.

        A node without a provider ID is adopted, or an Event says once why not. Raises as
        `initialize` does."""
        node = self._lister.get(key)
        if node is None:
            self._memory.forget(key)
            return
        if answer is None:
            return
        if isinstance(answer, Exception):
            raise answer
        entry = self._memory.of(node)
        nameless = not provider_id_of(node) and bool(self._cloud.provider_id_prefixes)
        faults: InvalidAnswer | None = None
        try:
            metadata = answer.of(node)
        except (InstanceNotFound, InvalidAnswer) as error:
            if not nameless and isinstance(error, InvalidAnswer) and isinstance(error.usable, InstanceMetadata):
                faults, metadata = error, error.usable
            elif not nameless:
                raise
            else:
                # No error, or the worker would ask the cloud again long before the next refresh,
                # and for ever.
                unknown = isinstance(error, InstanceNotFound)
                self._not_adopted(node, entry, "the cloud knows no instance of this name" if unknown else str(error))
                return
        made = changes.adoption if nameless and metadata.provider_id else changes.refresh
        entry.heard = addresses.hear(
            entry.heard, metadata, now=self._clock.monotonic(), period=self._memory.period, new=False
        )
        wanted: Wanted | None = None

        def plan(fresh: V1Node) -> NodeChanges:
            nonlocal wanted
            planned = NOTHING
            if not needs_initialization(fresh):
                planned = made(fresh, metadata, entry.known, entry.heard, self._choice)
            wanted = planned.addresses
            if planned.patches and self._would_fight(entry, fresh, metadata):
                planned = NOTHING
            if planned.known is not None:
                entry.writing = planned.known.written
            return planned

        try:
            done, latest, planned = self._apply(node, plan)
        except NotAdopted as reason:
            self._not_adopted(node, entry, str(reason))
            return
        except (Unreachable, ServerError):
            entry.known = None  # whatever was applied, the record says so
            raise
        entry.without_id = False
        if done is not None and nameless and metadata.provider_id:
            log.info("adopted node %s: its provider ID is %s", key, metadata.provider_id)
        self._in_line(entry, latest, metadata, planned, written=done is not None)
        if wanted is not None:
            self._tell_addresses(
                entry, latest, metadata, wanted, written=any(patch.subresource for patch in planned.patches)
            )
        if faults is not None:
            raise faults  # told, and asked about again
        if wanted is not None and not addresses.has_ip(wanted.addresses):
            missing = NoIPAddress(metadata)
            missing.retry_after = self._next_question(entry, self._memory.period)
            raise missing
        entry.without_ip_since = None

    def _tell_addresses(
        self, entry: Remembered, node: V1Node, metadata: InstanceMetadata, wanted: Wanted, *, written: bool
    ) -> None:
        """Tell what the cloud's answer lacks, and what --node-ip leaves out of it."""
        before, entry.kept = entry.kept, wanted.kept
        if wanted.kept - before:
            text = addresses.missing_text(node, metadata, wanted.kept)
            self._recorder.event(node, "Warning", "AddressesMissing", text)
        requested = provided_node_ip(node)
        if wanted.left_out and written and requested is not None and entry.report_once("AddressesLeftOut"):
            text = addresses.left_out_text(requested, wanted.left_out)
            self._recorder.event(node, "Normal", "AddressesLeftOut", text)

    def _would_fight(self, entry: Remembered, fresh: V1Node, metadata: InstanceMetadata) -> bool:
        """Whether another program changed the node since it agreed with this very answer, and it is
        too early to change it back."""
        inputs = changes.inputs(fresh, metadata, entry.heard)
        return entry.inputs == inputs and entry.restored.left(self._clock.monotonic()) > 0

    def _in_line(
        self, entry: Remembered, node: V1Node, metadata: InstanceMetadata, planned: NodeChanges, *, written: bool
    ) -> None:
        """Remember what the node agrees with now. If it did before, something was put back."""
        if planned.known is None or planned.addresses is None:
            return  # it went, was recreated, or waits
        entry.known = planned.known
        inputs = changes.inputs(node, metadata, entry.heard)
        if written and entry.inputs == inputs:
            entry.restored = self._memory.restoring.next(entry.restored, self._clock.monotonic())
            if entry.restored.count > 1 and any(patch.subresource for patch in planned.patches):
                text = addresses.put_back_text(node, planned.addresses)
                self._recorder.event(node, "Warning", "AddressesPutBack", text)
        entry.inputs = inputs

    def _not_adopted(self, node: V1Node, entry: Remembered, reason: str) -> None:
        entry.without_id = True
        if entry.report_once("NodeWithoutProviderID"):
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
        nodes: list[V1Node] = []
        for key in keys:
            node = self._lister.get(key)
            if node is not None and wanted(node) and not is_foreign(node, self._cloud):
                nodes.append(node)
            else:
                deliver(key, None)
        if nodes:
            self._cloud.fetch_metadata(nodes, deliver, priority=priority)

    def _apply(self, node: V1Node, plan: Callable[[V1Node], NodeChanges]) -> _Applied:
        """Write what `plan` makes of the node, or of a fresher one after a conflict."""
        latest, planned = node, NOTHING

        def patches(fresh: V1Node) -> Sequence[Patch]:
            nonlocal latest, planned
            latest = fresh
            planned = NOTHING if is_foreign(fresh, self._cloud) else plan(fresh)  # its ID may have come meanwhile
            for what in chain.from_iterable(planned.refused.values()):
                if what not in self._refused_before:  # one line for a mistake, and not one a node
                    self._refused_before.add(what)
                    log.warning("of the provider's answers: %s", what)
            return planned.patches

        try:
            done = apply(self._rest, NODES.key_path(key_of(node)), node, patches, NODES.parse, attempts=_ATTEMPTS)
        except (ObjectNotFound, ObjectReplaced):
            done = None  # deleted or recreated meanwhile: its own event brings the new one
        return _Applied(done, latest, planned)
