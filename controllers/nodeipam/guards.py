"""What is read of a Node and written on it (pure), and whether ranges can be given out now.

`StartupBarrier`: a write of the last leader may still arrive. `ConflictDetector`: another allocator
is at work, and two give one range to two nodes."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from cloudprovider.helpers.objects import pod_cidrs_of
from cloudprovider.internal.cleaning import one_line
from cloudprovider.ips import IPNetwork, parse_network
from controllers.runtime.cache import key_of, uid_of, version_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.nodeipam.metrics import NodeIPAMMetrics
    from controllers.runtime.clock import Clock
    from controllers.runtime.write import EventRecorder

log = logging.getLogger(__name__)

SEAL: Final = "kubernetes-cloud-provider/pod-cidr-pending"
"""Annotation of a node that waits for its first range since before this leader: see
`StartupBarrier`. Removed with the write of the range."""

_OLDEST: Final = 180.0
"""Seconds after which no write of a former leader can arrive: it sent none after its lease had
ended, its client gave up after 30 s, and the API server ends a request after 60 s
(`--request-timeout`). Twice their sum."""
KUBE_CONTROLLER_MANAGER: Final = "kube-controller-manager"
_ENOUGH = 3  # nodes that are proof, by any client: an operator may write a range by hand
_ENOUGH_KUBE = 2  # ... by a client that calls itself kube-controller-manager
_FIX: Final = (
    "Fix: run one allocator only. Give kube-controller-manager --allocate-node-cidrs=false, or take "
    "node-ipam-controller out of --controllers here; then restart this program"
)


@frozen
class NodeFacts:
    """What IPAM needs to know of one version of a Node."""

    name: str
    uid: str
    version: str
    ranges: tuple[IPNetwork, ...]
    leaving: bool
    """It is being deleted."""
    sealed: bool = False
    problem: str = ""
    """What is wrong with its ranges, which then are those that can be read."""

    @property
    def waits(self) -> bool:
        """Whether it lacks ranges."""
        return not self.ranges and not self.problem and not self.leaving


def facts_of(node: V1Node) -> NodeFacts:
    """Of a node of the cache."""
    meta = node.metadata
    annotations = (meta.annotations if meta is not None else None) or {}
    leaving = meta is not None and meta.deletion_timestamp is not None
    return _facts(key_of(node), uid_of(node), version_of(node), pod_cidrs_of(node), leaving, annotations)


def facts_of_raw(raw: Mapping[str, Any]) -> NodeFacts:
    """Of a node as the API server sends it, whatever else in it may be malformed."""
    meta, spec = raw.get("metadata") or {}, raw.get("spec") or {}
    texts = spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else [])
    return _facts(
        str(meta.get("name", "")),
        str(meta.get("uid", "")),
        str(meta.get("resourceVersion", "")),
        [str(text) for text in texts],
        bool(meta.get("deletionTimestamp")),
        meta.get("annotations") or {},
    )


def assignment(ranges: Sequence[IPNetwork], *, sealed: bool) -> dict[str, Any]:
    """The JSON merge patch that gives a node its ranges, and takes the seal away."""
    # The two are one field in the API server, and cannot change once they are set.
    texts = [str(net) for net in ranges]
    body: dict[str, Any] = {"spec": {"podCIDR": texts[0], "podCIDRs": texts}}
    return body | seal(None) if sealed else body


def seal(token: str | None) -> dict[str, Any]:
    """The JSON merge patch that changes a node, so that writes onto the version before fail; with
    None the one that takes the seal away."""
    return {"metadata": {"annotations": {SEAL: token}}}


def writers_of(raw: Mapping[str, Any]) -> frozenset[str]:
    """The programs that wrote a node's pod CIDRs, by managedFields."""
    entries = (raw.get("metadata") or {}).get("managedFields") or ()
    found = set()
    for entry in entries:
        spec = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        if "f:podCIDR" in spec or "f:podCIDRs" in spec:
            found.add(str(entry.get("manager", "")))
    return frozenset(found)


def _facts(
    name: str, uid: str, version: str, texts: Sequence[str], leaving: bool, annotations: Mapping[str, str]
) -> NodeFacts:
    ranges: dict[IPNetwork, None] = {}
    problems = []
    for text in texts:
        # One that cannot be read hides none of the others: those are taken all the same.
        try:
            ranges[parse_network(text)] = None
        except ValueError as error:
            problems.append(str(error))
    return NodeFacts(name, uid, version, tuple(ranges), leaving, SEAL in annotations, "; ".join(problems))


class StartupBarrier:
    """Closed until `begin`, and then until every node is settled. Thread-safe.

    A leader that was killed may have a write under way: "node A gets range X", applied after this
    leader listed the nodes. X looks free meanwhile, and could go to node B. Such a write holds only
    for the version of A that the last leader saw. So every node that lacks a range at the start has
    to change once, by itself or by this leader (`seal`): then older writes are refused."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.token = secrets.token_hex(4)
        """What this leader writes on the nodes: another value than any leader before."""
        self._lock = threading.Lock()
        self.begun = False
        """Whether the nodes were listed."""
        self._began = 0.0
        self._unsettled: dict[str, NodeFacts] = {}

    def begin(self, lacking: Iterable[NodeFacts]) -> None:
        """Name the nodes that lack ranges at the start, as they were listed."""
        with self._lock:
            self._unsettled = {node.name: node for node in lacking}
            self._began = self._clock.monotonic()
            self.begun = True

    @property
    def over(self) -> bool:
        """Whether ranges can be given out."""
        return self.begun and not self._unsettled

    def wait(self) -> float:
        """Seconds until it is over in any case; 0.0 when it is. To be called after `begin`.

        Settles the nodes that could not be changed, once their time has come.
        """
        with self._lock:
            if not self._unsettled:
                return 0.0
            # One node that cannot be changed (an admission policy refuses it, say) must not hold
            # all others up for ever: after `_OLDEST` no such write can be under way any more.
            left = self._began + _OLDEST - self._clock.monotonic()
            if left > 0:
                return left
            names = ", ".join(list(self._unsettled)[:10])
            count, self._unsettled = len(self._unsettled), {}
        log.warning(
            "%d nodes could not be changed for %.0f s (%s): no write of a former leader can be under way to them any "
            "more, so the others get their pod CIDRs",
            count,
            _OLDEST,
            names,
        )
        return 0.0

    def unsettled(self, name: str) -> NodeFacts | None:
        """The node of this name, as it was listed, if the last leader's write may be under way."""
        return self._unsettled.get(name)

    def names(self) -> list[str]:
        """The names of all such nodes."""
        with self._lock:
            return list(self._unsettled)

    def settle(self, name: str, uid: str) -> None:
        """No older write can reach this node."""
        with self._lock:
            listed = self._unsettled.get(name)
            # By UID: a Node that was created again under the name says nothing about the former.
            if listed is not None and listed.uid == uid:
                del self._unsettled[name]


class ConflictDetector:
    """Allocation stops after two nodes that kube-controller-manager served, or three that any other
    client did, until the program is started again. Thread-safe. `own` is how this program is named
    in managedFields.
    """

    def __init__(self, own: str, recorder: EventRecorder, metrics: NodeIPAMMetrics) -> None:
        self._own = own
        self._recorder = recorder
        self._metrics = metrics
        self._lock = threading.Lock()
        self._served: dict[str, bool] = {}
        """By a node's name, whether kube-controller-manager is said to have served it."""
        self.verdict = ""
        """Why nothing is given out any more; "" while all is well."""

    def wrote(self, node: Mapping[str, Any], *, before_us: bool = False) -> None:
        """A node that this controller saw without ranges has got some from another client.

        `node` is the raw object, with its managedFields. `before_us`: maybe the last leader's."""
        writers = writers_of(node)
        # The last leader has our name, and its last write may have arrived after our list.
        if before_us and writers <= {self._own}:
            return
        name, kube = node["metadata"]["name"], KUBE_CONTROLLER_MANAGER in writers
        who = KUBE_CONTROLLER_MANAGER if kube else one_line(", ".join(sorted(writers)), 100) or "an unknown program"
        self._metrics.conflict("other_writer")
        # One node proves nothing: its own kubelet may create it with ranges, or write them later,
        # with any field manager. But a kubelet can write no other node, so nodes are counted by
        # name. managedFields only decide how many are enough. Times are not compared: clocks
        # differ.
        with self._lock:
            self._served[name] = kube
            proved = len(self._served) >= _ENOUGH or sum(self._served.values()) >= _ENOUGH_KUBE
            if self.verdict or not proved:
                log.warning("node %s has pod CIDRs that this controller did not give it: %s did", name, who)
                return
            names = ", ".join(self._served)
            self.verdict = (
                f"another allocator is at work: {who} gave node {name} its pod CIDRs (nodes so far: {names}). Nothing "
                f"is given out here any more. {_FIX}"
            )
        self._metrics.stopped()
        log.error("node-ipam-controller stops: %s", self.verdict)
        self._recorder.event(node, "Warning", "CIDRAllocationStopped", f"node-ipam-controller stops: {self.verdict}")
