"""Stage 6, its words: Events on nodes, log lines, metrics. Decides nothing.

The metrics are those of the Go controller (controllers/nodelifecycle/metrics.go), and our own of
deletions. What is asked in a batch counts once for each node: an answer about a node is one to
`instance_exists`, and to `instance_shutdown` if the instance exists."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from cloudprovider import CallCancelled, InstanceMetadata, InstanceNotFound, InstanceState, NotImplementedByProvider
from cloudprovider.helpers import provider_id_of
from cloudprovider.wellknown import LABEL_HANDS_OFF
from controllers.cloudcalls import CallsClosed, Contradiction
from controllers.nodelifecycle.changes import without_provider_id
from controllers.nodelifecycle.deletion import ALARM_AFTER, CONFIRMATIONS, TRICKLE, Candidate, Sample
from controllers.runtime.cache import key_of, uid_of
from controllers.runtime.metrics import Metrics, exponential_buckets

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls import Answer, CloudCalls
    from controllers.nodelifecycle.deletion import Limit
    from controllers.nodelifecycle.memory import Candidates, Shared
    from controllers.runtime.clock import Clock

log = logging.getLogger(__name__)

_EXISTS: Final = "instance_exists"
_SHUTDOWN: Final = "instance_shutdown"
_METADATA: Final = "instance_metadata"
_NAMED: Final = 3  # Ready nodes of a zone that get an Event when the cloud calls more of them gone
_LOGGED_EVERY: Final = 60.0


class Reports:
    """Thread-safe."""

    def __init__(self, shared: Shared, cloud: CloudCalls, metrics: NodeLifecycleMetrics) -> None:
        self.metrics = metrics
        self._shared = shared
        self._cloud = cloud
        self._lock = threading.Lock()
        self._alarmed: set[str] = set()  # zones where the cloud is not believed
        self._logged: dict[str, float] = {}  # by zone: when a line last said which nodes are gone
        self._disagreed: dict[str, str] = {}  # by node: its UID; two methods of the provider contradict
        self._told: dict[str, tuple[str, str]] = {}  # by node: its UID, and the other instance
        self._lost: dict[str, V1Node] = {}  # by name: whose successor is to be asked for
        self._left_alone: frozenset[str] = frozenset()
        self._asking = threading.Lock()  # held by the one thread that asks for them

    # ---- deletions

    def contradicted(self, zone: str, still: list[str], sample: Sample) -> None:
        """Deletions in the zone are held back: these nodes are Ready, and called gone."""
        with self._lock:
            if zone in self._alarmed:
                return
            self._alarmed.add(zone)
        self.metrics.alarms.inc()
        log.error(
            "ALARM: zone %r: the cloud calls %d nodes gone that are Ready (%s), and %d existing. No node of that zone "
            "is deleted before these turn NotReady or are called existing. Check the provider's credentials, region "
            "and account",
            zone,
            len(still),
            some(still),
            sample.existing,
        )
        for name in still[:_NAMED]:
            node = self._shared.lister.get(name)
            if node is not None:
                self._shared.recorder.event(
                    node,
                    "Warning",
                    "ReadyNodeSaidToBeGone",
                    "This node is Ready, but the cloud says that its instance is gone, so nodes of zone "
                    f"{zone!r} are not deleted. If the instance is really gone, delete the Node; if another instance "
                    "has its name now, restart the kubelet there too, which has gone on with this Node. If it exists, "
                    "check the provider's credentials, region and account",
                )

    def disagreed(self, node: V1Node, error: Contradiction) -> None:
        """One method says that the instance is gone, another that it exists."""
        name, uid = key_of(node), uid_of(node)
        with self._lock:
            if self._disagreed.get(name) == uid:
                return
            first = not self._disagreed
            self._disagreed[name] = uid
        if first:
            self.metrics.alarms.inc()
            log.error("ALARM: node %s is not deleted, nor any other of which this is true: %s", name, error)
        self._shared.recorder.event(
            node, "Warning", "InstanceAnswersContradict", f"This node is not ready. It is not deleted: {error}"
        )

    def limit_reached(self, node: V1Node, one: Candidate, number: int, deletions: int) -> None:
        """More nodes are to be deleted than the limit allows."""
        self.metrics.alarms.inc()
        log.error(
            "ALARM: the cloud says that more than %d nodes are gone, %d were deleted within %g s, and their zones have "
            "no Ready node to check its answers. From now on one node is deleted in %g s. If the nodes are really "
            "gone, send SIGUSR1 to this process: the nodes that are held back now are deleted then",
            number,
            deletions,
            self._shared.options.window,
            TRICKLE,
        )
        self._held_back(node, "DeletionBreakerOpened", one.why)

    def survey(self) -> None:
        """Before a sweep: report what has waited for long, and what is over."""
        now = self._shared.now()
        for names in (self._told, self._disagreed):
            for name in list(names):  # fetchers add to it meanwhile
                if self._shared.lister.get(name) is None:
                    del names[name]
        self._log_gone(now)
        candidates = self._shared.candidates.all()
        held = [one for _, one in candidates if one.held and one.sample is not None]
        # Thousands of candidates share a few samples: each is looked through once.
        samples = {id(one.sample): one.sample for one in held if one.sample is not None}.values()
        self.metrics.contradicting.set(len({name for one in samples for name in self._shared.still(one)}))
        with self._lock:
            over = self._alarmed.difference(one.zone for one in held)
            self._alarmed -= over
        for zone in over:
            log.warning("zone %r: the cloud is believed again; deletions continue there", zone)
        for name, one in candidates:
            node = self._shared.lister.get(name)
            if node is not None and one.is_of(node):
                self._report_lasting(name, node, one, now)

    def left_alone(self, names: Collection[str]) -> None:
        """These nodes have the label that keeps us from them."""
        before, self._left_alone = self._left_alone, frozenset(names)
        self.metrics.hands_off.set(len(names))
        for change, news in (("set", self._left_alone - before), ("gone", before - self._left_alone)):
            if news:
                log.info("label %s is %s: %s", LABEL_HANDS_OFF, change, some(sorted(news)))

    def why(self, one: Candidate) -> str:
        """Why this node, said to be gone, is still there; for people."""
        if one.state is not InstanceState.GONE:
            return f"the cloud has given no usable answer since: {one.problem}"
        if one.answers < CONFIRMATIONS:
            return f"waits for answer {one.answers + 1} of {CONFIRMATIONS} that its instance is gone"
        return one.why or "it is about to be deleted, or an Event DeletingNodeFailed says why that failed"

    def _held_back(self, node: V1Node, reason: str, why: str) -> None:
        message = f"The cloud says that the instance of this node is gone, but the node is not deleted now: {why}"
        self._shared.recorder.event(node, "Warning", reason, message)

    def _report_lasting(self, name: str, node: V1Node, one: Candidate, now: float) -> None:
        """Say once why a node that is said to be gone is still there, and that the cloud says
        nothing of it (its key may be parked) each time that as much time has passed."""
        if one.gone_since is not None and now - one.gone_since >= ALARM_AFTER and not one.told:
            self._held_back(node, "DeletingNodeHeldBack", self.why(one))
            one = self._shared.candidates.note(name, one, told=True)
        after, since = self._shared.options.unknown_event_after, one.unknown_since
        told = one.reported_at is not None and now - one.reported_at < after
        if since is None or now - since < after or told:
            return
        self._shared.candidates.note(name, one, reported_at=now)
        self._shared.recorder.event(
            node,
            "Warning",
            "InstanceStateUnknown",
            "This node is not ready, and the cloud does not say whether its instance runs, is shut down or gone. "
            f"Until it does, the node is neither tainted nor deleted: {one.problem}",
        )

    def _log_gone(self, now: float) -> None:
        """One line for a zone and minute, however many nodes there are, or answers alternate."""
        news: dict[str, list[tuple[str, Candidate]]] = {}
        for name, one in self._shared.candidates.all():
            # Not by time: an answer may wait for a thread until after the line that follows it.
            if one.state is InstanceState.GONE and not one.listed:
                news.setdefault(one.zone, []).append((name, one))
        for zone, found in news.items():
            if now - self._logged.get(zone, -math.inf) < _LOGGED_EVERY:
                continue
            self._logged[zone] = now
            log.info(
                "zone %r: the cloud says that the instances of %d nodes are gone (answer 1 of %d): %s",
                zone,
                len(found),
                CONFIRMATIONS,
                some([name for name, _ in found]),
            )
            for name, one in found:
                self._shared.candidates.note(name, one, listed=True)

    # ---- successors

    def ask_for_successors(self, nodes: Sequence[V1Node]) -> None:
        """Ask the cloud, by name, about nodes whose instance is gone, and report where another
        instance has the name now. Blocks until it has answered, but one thread at a time: it takes
        along what others bring."""
        with self._lock:
            self._lost.update({key_of(node): node for node in nodes})
        # Where the question hangs, the other fetchers go on asking for nodes' states.
        while self._lost and self._asking.acquire(blocking=False):
            try:
                with self._lock:
                    lost, self._lost = self._lost, {}
                asked = [without_provider_id(node) for node in lost.values()]
                self._cloud.fetch_metadata(asked, partial(self._named, lost))
            finally:
                self._asking.release()

    def _named(self, lost: Mapping[str, V1Node], name: str, answer: Answer[InstanceMetadata]) -> None:
        """The cloud has said which instance has the name of a node that lost its own."""
        self.metrics.metadata(answer.unbound)
        found = answer.unbound.provider_id if isinstance(answer.unbound, InstanceMetadata) else ""
        node = lost[name]
        known, told = provider_id_of(node), (uid_of(node), found)
        if not found or self._told.get(name) == told or self._cloud.same_provider_id(known, found):
            return
        self._told[name] = told
        log.warning("node %s: instance %s is gone and instance %s now has its name", name, known, found)
        self._shared.recorder.event(
            node,
            "Warning",
            "InstanceRecreated",
            f"The cloud now has instance {found} under the name of this node, whose spec.providerID is {known} and "
            "cannot change. If the new instance's kubelet runs already, delete the Node and restart that kubelet, "
            "which registers only when it starts. Otherwise the Node is deleted once its instance is confirmed gone",
        )


class NodeLifecycleMetrics:
    """How long sweeps take, what the cloud answered, and what became of nodes. Thread-safe."""

    def __init__(
        self, metrics: Metrics, candidates: Candidates, limit: Limit, clock: Clock, unknown_after: float
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._began = 0.0
        self._left: set[str] = set()
        self._duration = metrics.histogram(
            "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
            "Time from a look at all nodes until all those that needed it have been worked on.",
            buckets=exponential_buckets(0.001, 2, 15),
        )
        self._calls = metrics.counter(
            "cloud_node_lifecycle_controller_cloud_provider_calls_total",
            "What the cloud answered to questions about nodes, by operation and result.",
            ["operation", "result"],
        )
        self.deleted = metrics.counter(
            "node_lifecycle_deleted_nodes_total", "Nodes deleted because their instance is gone."
        )
        self.alarms = metrics.counter(
            "node_lifecycle_deletion_breaker_trips_total",
            "Times that an alarm was raised: a zone where the cloud is not believed, or too many deletions.",
        )
        metrics.gauge(
            "node_lifecycle_unknown_nodes", "Nodes that are not ready and of which the cloud has long said nothing."
        ).set_function(lambda: float(len(candidates.lasting_unknowns(clock.monotonic(), unknown_after))))
        metrics.gauge(
            "node_lifecycle_deletion_breaker_open",
            "1 while deletions are limited to a trickle in zones without a Ready node that shows whether the cloud "
            "tells the truth.",
        ).set_function(lambda: float(limit.alarming))
        metrics.gauge(
            "node_lifecycle_held_nodes", "Nodes that the cloud says are gone, and that are not deleted for now."
        ).set_function(lambda: float(candidates.held))
        self.contradicting = metrics.gauge(
            "node_lifecycle_contradicting_nodes",
            "Ready nodes that the cloud says are gone, and for which the deletion of others has waited for a minute.",
        )
        self.hands_off = metrics.gauge(
            "node_lifecycle_hands_off_nodes",
            f"Nodes that are not deleted and not tainted because they have the label {LABEL_HANDS_OFF}.",
        )

    def sweep_began(self, began: float, keys: Collection[str]) -> None:
        """A look at all nodes brought these up. It joins one that is not done."""
        with self._lock:
            if not self._left:
                self._began = began
            self._left.update(keys)
            if not self._left:
                self._observe()

    def worked_on(self, key: str) -> None:
        """The key has been worked on, well or not, or needs no work any more."""
        with self._lock:
            if key in self._left:
                self._left.remove(key)
                if not self._left:
                    self._observe()

    def state(self, state: InstanceState | Exception) -> None:
        """The cloud answered, or failed to, whether an instance exists and runs."""
        if isinstance(state, Exception):
            method = getattr(state, "method", "")
            self._count(_SHUTDOWN if _SHUTDOWN in method else _EXISTS, _result(state))
        elif state is InstanceState.GONE:
            self._count(_EXISTS, "instance_not_found")
        else:
            self._count(_EXISTS, "success")
            self._count(_SHUTDOWN, "success")

    def metadata(self, found: object) -> None:
        """The cloud answered, or failed to, which instance has a node's name."""
        self._count(_METADATA, _result(found) if isinstance(found, Exception) else "success")

    def _count(self, operation: str, result: str) -> None:
        self._calls.labels(operation=operation, result=result).inc()

    def _observe(self) -> None:
        self._duration.observe(self._clock.monotonic() - self._began)


def some(names: Sequence[str]) -> str:
    """The first of these names, for people."""
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def _result(error: Exception) -> str:
    if isinstance(error, NotImplementedByProvider):
        return "not_implemented"
    if isinstance(error, InstanceNotFound):
        return "instance_not_found"
    if isinstance(error, CallCancelled | CallsClosed):
        return "canceled"
    return "error"
