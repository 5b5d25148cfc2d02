"""Which nodes load balancers send traffic to, the digest by which that is remembered, and when a
load balancer gets another set of them (stage 3). All Services share one set.

A node that the autoscaler is about to remove is left out at the next change: its taint alone
changes no load balancer. All nodes have one key, of the queue `node`: `NodeSync` gathers their
changes, and then queues every load balancer that lacks them. So a load balancer never has two calls
at once, and fifty nodes that join together cost one or two updates.

Follows: stableNodeSetPredicates in k8s.io/cloud-provider controllers/service, and KEP-3458."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen

from cloudprovider.helpers import is_ready, node_taints, provider_id_of
from cloudprovider.wellknown import LABEL_EXCLUDE_BALANCERS, TAINT_TO_BE_DELETED
from controllers.runtime.cache import Derived, Lister, key_of
from controllers.runtime.queue import DONE, Result, WorkQueue

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.runtime.clock import Clock
    from controllers.runtime.metrics import Metrics
    from controllers.service.calls import NodeTraits
    from controllers.service.records import Records


SECONDS: Final = tuple(2.0**exponent for exponent in range(15))
"""Buckets of this controller's histograms, as Go's: 1 s to 4.5 h."""

ALL_NODES: Final = "*"
"""The one key of the queue `node`."""
REFRESH: Final = 0
"""Priority of load balancers whose targets have changed."""
DRIFT: Final = -10
"""Priority of load balancers that are compared with the cloud because it is time."""

_OWED: Final = 60.0
"""Seconds until a provider that failed to say what load balancers depend on is asked again."""
_SAME: Final = 1.0
"""Seconds for which load balancers get the same targets while nodes change."""
_SHARE: Final = 3
"""While nodes change, rounds of all load balancers take one part in so many of the time."""
_LONGEST_ROUND: Final = 20.0
"""Seconds of a round that count for this."""
_REST: Final = 10
"""A round is over when one load balancer in so many is left, and one of fewer: one that hangs holds
no other one."""

_LEAVING: Final = "about to be removed by the cluster autoscaler"
_FALSE: Final = frozenset({"0", "f", "F", "false", "False", "FALSE"})


@frozen
class Targets:
    """The nodes, in order of their names, and a digest of what load balancers depend on."""

    nodes: tuple[V1Node, ...]
    digest: str
    good_enough: frozenset[str] = frozenset()
    """Digests of targets from which these differ only by nodes the autoscaler has tainted."""
    why_none: str = ""
    """Where there are no nodes: why, with counts, for the Service's owner."""

    def cover(self, digest: str) -> bool:
        """Whether a load balancer with the targets of that digest needs no other ones now."""
        return digest == self.digest or digest in self.good_enough


@frozen(eq=False)
class _Judged:
    """A revision of a node, and all of it that counts here: worked out once, as every change of any
    node asks again."""

    node: V1Node
    key: str
    left_out: str
    leaving: bool
    ready: bool
    line: str


class TargetSet:
    """The present targets, worked out again only after `invalidate`. Thread-safe.

    `traits` asks the provider, so no lock is held meanwhile; None: it says nothing."""

    def __init__(self, lister: Lister[V1Node], ready_only: bool, traits: NodeTraits | None = None) -> None:
        self._lister = lister
        self._ready_only = ready_only
        self._traits = traits
        self._lock = threading.Lock()
        self._present: Targets | None = None
        self.latest: Targets | None = None
        """What `current` last answered: for metrics, which ask no provider."""
        self.owed = False
        """Whether the provider failed to say something of a node: it is to be asked again."""
        self._changes = 0
        self._former: frozenset[str] = frozenset()
        self._judged = Derived(_judge)

    def current(self) -> Targets:
        """What the cache shows."""
        with self._lock:
            if self._present is not None:
                return self._present
            changes = self._changes
        nodes = self._lister.list()
        traits, whole = ({}, True) if self._traits is None else self._traits.of(nodes)
        with self._lock:
            self.owed = not whole
            found = _targets(self._judged.of(nodes), self._ready_only, traits)
            found = evolve(found, good_enough=found.good_enough | self._former)
            self.latest = found
            if changes == self._changes:  # else a node changed while the provider was asked
                self._present = found
            return found

    def invalidate(self) -> None:
        """A node has changed, and the targets of every load balancer that had it or will."""
        with self._lock:
            self._changes += 1
            self._present, self._former = None, frozenset()

    def ask_again(self) -> None:
        """Have what the provider owes asked for again, though no node has changed."""
        with self._lock:
            self._changes += 1
            self._present = None

    def leaving(self) -> None:
        """The autoscaler has tainted a node: load balancers keep it until the next change."""
        with self._lock:
            if self._present is not None:
                self._former = self._present.good_enough | {self._present.digest}
                self._present = None
                self._changes += 1

    def differs(self, old: V1Node | None, new: V1Node | None) -> bool:
        """Whether a change of one node may change the targets. The autoscaler's taint is none."""
        if self._part(old) != self._part(new):
            return True
        return old is not None and new is not None and is_leaving(old) and not is_leaving(new)

    def _part(self, node: V1Node | None) -> tuple[object, ...] | None:
        if node is None or _left_out(node):
            return None
        traits = None if self._traits is None else traits_of(node)
        return describe(node), self._ready_only and is_ready(node), traits


def targets(nodes: Iterable[V1Node], ready_only: bool) -> Targets:
    """The targets among these nodes. With `ready_only`, the ready ones; all, should none be
    ready."""
    return _targets(map(_judge, nodes), ready_only)


def _judge(node: V1Node) -> _Judged:
    return _Judged(node, key_of(node), _left_out(node), is_leaving(node), is_ready(node), describe(node))


def _targets(judged: Iterable[_Judged], ready_only: bool, traits: Mapping[str, str] = MappingProxyType({})) -> Targets:
    judged = tuple(judged)
    eligible = sorted((one for one in judged if not one.left_out), key=attrgetter("key"))
    found = _chosen([one for one in eligible if not one.leaving], ready_only)
    nodes, digest = tuple([one.node for one in found]), _digest(found, traits)
    why_none = "" if found else _why_none(judged)
    if len(found) == len(eligible):
        return Targets(nodes, digest, why_none=why_none)
    good_enough = frozenset({_digest(_chosen(eligible, ready_only), traits)} - {digest})
    return Targets(nodes, digest, good_enough, why_none)


def _why_none(judged: Iterable[_Judged]) -> str:
    counts = Counter(one.left_out or _LEAVING for one in judged)
    left_out = ", ".join(f"{count} {why}" for why, count in sorted(counts.items()))
    return left_out or "the cluster has no nodes"


NO_TARGETS: Final = "none"
"""The digest of no targets."""


def _left_out(node: V1Node) -> str:
    """Why load balancers may not have a node; "" where they may."""
    metadata = node.metadata
    if metadata is None or metadata.deletion_timestamp is not None:
        return "being deleted"
    excluded = (metadata.labels or {}).get(LABEL_EXCLUDE_BALANCERS)
    return "" if excluded is None or excluded in _FALSE else f"left out by the label {LABEL_EXCLUDE_BALANCERS}"


def is_leaving(node: V1Node) -> bool:
    """Whether the cluster autoscaler is about to remove a node."""
    return any(taint.key == TAINT_TO_BE_DELETED for taint in node_taints(node))


def _chosen(found: list[_Judged], ready_only: bool) -> list[_Judged]:
    # All, should none be ready: health checks of the load balancer know better than a control
    # plane that lost sight of the kubelets.
    return [one for one in found if one.ready] or found if ready_only else found


def _digest(found: list[_Judged], traits: Mapping[str, str]) -> str:
    if not found:
        return NO_TARGETS
    lines = [f"{one.line}{traits.get(one.key, '')}" for one in found] if traits else [one.line for one in found]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def describe(node: V1Node) -> str:
    """What load balancers depend on of a target: name, provider ID, addresses in any order."""
    addresses = (node.status.addresses if node.status is not None else None) or ()
    places = sorted(f"{address.type}={address.address}" for address in addresses)
    return " ".join([key_of(node), provider_id_of(node) or "-", *places])


def traits_of(node: V1Node) -> tuple[object, ...]:
    """What of a node the provider's `target_traits` may read."""
    metadata = node.metadata
    labels = None if metadata is None else (metadata.labels, metadata.annotations)
    return labels, node.spec, describe(node)


class NodeSync:
    """The informer's handler of nodes: one gathering of changes at a time. Thread-safe.

    Changes are acted upon together: when none came for `quiet` seconds, and `longest` seconds after
    the first at the latest, if that is more."""

    def __init__(
        self,
        nodes: WorkQueue[str],
        services: WorkQueue[str],
        records: Records,
        targets: TargetSet,
        metrics: Metrics,
        clock: Clock,
        *,
        quiet: float,
        longest: float,
    ) -> None:
        self._nodes = nodes
        self._services = services
        self._records = records
        self.targets = targets
        self._quiet = quiet
        self._longest = max(quiet, longest)
        self._clock = clock
        self._lock = threading.Lock()
        self._giving = threading.Lock()
        self._first: float | None = None
        self._last = 0.0
        self._waiting: set[str] = set()
        self._began = 0.0
        self._given: tuple[float, Targets] | None = None
        self._round: set[str] = set()  # those of the last round that were not tried yet
        self._rest = 0  # so many may be left when it is over
        self._round_began = self._round_ended = clock.monotonic()
        self._latency = metrics.histogram(
            "service_controller_nodesync_latency_seconds",
            "From a change of nodes until the last load balancer has them.",
            buckets=SECONDS,
        )
        metrics.gauge(
            "service_controller_load_balancers_with_old_targets",
            "Load balancers whose targets are not the present nodes.",
        ).set_function(lambda: self._lagging()[0])
        metrics.gauge(
            "service_controller_oldest_targets_lag_seconds",
            "For how long one of them has waited for the present nodes; 0 without one.",
        ).set_function(lambda: self._lagging()[1])

    def on_add(self, node: V1Node, initial: bool) -> None:
        if initial:
            self.targets.invalidate()  # the Services of the first listing are served with all of these
        else:
            self._changed(None, node)

    def on_update(self, old: V1Node, new: V1Node) -> None:
        self._changed(old, new)

    def on_delete(self, node: V1Node) -> None:
        self._changed(node, None)

    def _changed(self, old: V1Node | None, new: V1Node | None) -> None:
        if self.targets.differs(old, new):
            self.targets.invalidate()
            self.changed()
        # KEP-3458: else each scale-in would retarget every load balancer twice.
        elif old is not None and new is not None and is_leaving(new) and not is_leaving(old):
            self.targets.leaving()

    def changed(self) -> None:
        """The targets have changed."""
        with self._lock:
            self._last = self._clock.monotonic()
            if self._first is None:
                self._first = self._last
        self._nodes.add_after(ALL_NODES, self._quiet)

    def sync(self, key: str) -> Result:
        """One unit of work of the queue `node`: wait while changes come, else queue what lags."""
        now = self._clock.monotonic()
        with self._lock:
            first = now if self._first is None else self._first
            left = max(min(self._last + self._quiet, first + self._longest), self._earliest(now)) - now
            if left > 0:
                return Result(requeue_after=left)
            self._first = self._given = None
        if self.targets.owed:
            self.targets.ask_again()
        present = self.current()
        self._records.lagging(present, first)
        behind = self._records.outdated(present, self.resting)
        with self._lock:
            if not self._waiting:
                self._began = first
            self._waiting.update(behind)
            self._round, self._rest = set(behind), max(1, len(behind) // _REST)
            self._round_began = self._round_ended = now
        for service in behind:
            self._services.add(service, REFRESH)
        return DONE

    def _earliest(self, now: float) -> float:
        # With thousands of nodes and Services a round takes many seconds of CPU and of the cloud's
        # time. One after the other without a pause they would delay the nodes themselves.
        ended = now if len(self._round) > self._rest else self._round_ended
        return self._round_began + _SHARE * min(ended - self._round_began, _LONGEST_ROUND)

    def current(self) -> Targets:
        """The targets for a load balancer that gets some now. While nodes change they are the same
        for all for a while: with thousands of nodes it is expensive to work them out for each, and
        what they lack now the end of the gathering brings."""
        with self._giving:  # one thread works them out: a node changes before the next one could
            now = self._clock.monotonic()
            with self._lock:
                gathering = self._first is not None
                if gathering and self._given is not None and now - self._given[0] < min(_SAME, self._quiet):
                    return self._given[1]
            found = self.targets.current()
            if self.targets.owed:  # no change of a node need follow
                self._nodes.add_after(ALL_NODES, _OWED, routine=True)
            if gathering:
                with self._lock:
                    self._given = now, found
            return found

    def is_due(self, key: str) -> bool:
        """Whether this load balancer may get new targets now: not while changes are gathered,
        unless it waits for what was gathered before."""
        with self._lock:
            return self._first is None or key in self._waiting

    def resting(self, key: str) -> float:
        """Seconds until what failed for this Service is tried again; 0.0 if nothing did, or it is
        time. A change of nodes brings only the call that sets targets before that."""
        return self._services.resting(key)

    def tried(self, key: str) -> None:
        """A Service has been worked on, with success or without."""
        with self._lock:
            if key in self._round:
                self._round.discard(key)
                if len(self._round) == self._rest:
                    self._round_ended = self._clock.monotonic()

    def finished(self, key: str) -> None:
        """A Service has been served, or is none any more."""
        with self._lock:
            if key not in self._waiting:
                return
            self._waiting.discard(key)
            if self._waiting:
                return
            seconds = self._clock.monotonic() - self._began
        self._latency.observe(seconds)

    def _lagging(self) -> tuple[int, float]:
        """How many load balancers lack the present nodes, and for how many seconds the first of
        them. Worked out when /metrics is read; of no node, before any targets were worked out."""
        present, now = self.targets.latest, self._clock.monotonic()
        if present is None:
            return 0, 0.0
        count, since = self._records.lagging(present, now)
        return count, now - since
