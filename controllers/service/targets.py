"""Stage 4: DECIDE which nodes load balancers send traffic to, and the digest by which that is
remembered. All Services share one set.

A rule about one node is in `_left_out`, with the reason for people. `TargetSet.differs` asks it
too: so a node that begins or ceases to be a target has the load balancers updated.

A node that the autoscaler is about to remove is left out at the next change: its taint alone
changes no load balancer. Follows stableNodeSetPredicates in k8s.io/cloud-provider
controllers/service, and KEP-3458."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen

from cloudprovider.helpers import is_ready, node_taints, provider_id_of
from cloudprovider.wellknown import LABEL_EXCLUDE_BALANCERS, TAINT_TO_BE_DELETED
from controllers.cloudcalls import CLOUD_ERRORS
from controllers.runtime.cache import Derived, Lister, key_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls.capabilities import LoadBalancerCalls
    from controllers.runtime.write import EventRecorder

log = logging.getLogger(__name__)

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
        self.latest: Targets | None = None
        """What `current` last answered: for metrics, which ask no provider."""
        self.owed = False
        """Whether the provider failed to say something of a node: it is to be asked again."""
        self._changes = 0
        self._shown = -1  # how many changes are in `latest`
        self._former: frozenset[str] = frozenset()
        self._judged = Derived(_judge)

    def current(self) -> Targets:
        """What the cache shows."""
        with self._lock:
            changes = self._changes
            if self.latest is not None and self._shown == changes:
                return self.latest
        nodes = self._lister.list()
        traits, whole = ({}, True) if self._traits is None else self._traits.of(nodes)
        with self._lock:
            self.owed = not whole
            found = _targets(self._judged.of(nodes), self._ready_only, traits)
            found = evolve(found, good_enough=found.good_enough | self._former)
            # A node may have changed while the provider was asked: then it is worked out again.
            self.latest, self._shown = found, changes
            return found

    def invalidate(self) -> None:
        """A node has changed, and the targets of every load balancer that had it or will."""
        with self._lock:
            self._changes += 1
            self._former = frozenset()

    def ask_again(self) -> None:
        """Have what the provider owes asked for again, though no node has changed."""
        with self._lock:
            self._changes += 1

    def leaving(self) -> None:
        """The autoscaler has tainted a node: load balancers keep it until the next change."""
        with self._lock:
            # For the taint alone no load balancer that has the present targets needs others.
            if self.latest is not None and self._shown == self._changes:
                self._former = self.latest.good_enough | {self.latest.digest}
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
    # With a node that is leaving, or without it: either is right until another node changes.
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


class NodeTraits:
    """The provider's word for each node, as a digest, for as long as nothing changed that it may
    depend on. Asked in a thread of the provider, once for all nodes that changed. Thread-safe.

    Where the provider fails to say, the last one holds until it is asked again, and an Event on the
    node tells."""

    def __init__(self, balancers: LoadBalancerCalls, recorder: EventRecorder) -> None:
        self._balancers = balancers
        self._recorder = recorder
        self._lock = threading.Lock()
        self._known: dict[str, tuple[tuple[object, ...] | None, str]] = {}
        """By name: what it was asked about (None: it failed to say), and the digest."""

    def of(self, nodes: Sequence[V1Node]) -> tuple[Mapping[str, str], bool]:
        """The digest for each of these nodes, by name, and whether the provider said all that it
        was asked; other nodes are forgotten."""
        with self._lock:
            known = self._known
        read = {key_of(node): traits_of(node) for node in nodes}
        asked = [node for node in nodes if known.get(key_of(node), (None, ""))[0] != read[key_of(node)]]
        found = {name: known[name] for name in read if name in known}
        try:
            answers = self._balancers.target_traits(asked) if asked else []
        except CLOUD_ERRORS as error:
            answers = []
            log.warning("what load balancers depend on of %d nodes is not known: %s", len(asked), error)
        for node, answer in zip(asked, answers, strict=False):
            name = key_of(node)
            if isinstance(answer, Exception):
                # Its last word holds until it is asked again: what is read of a node is never None.
                found[name] = None, found.get(name, (None, ""))[1]
                what = "What load balancers depend on of this node is not known"
                self._recorder.event(node, "Warning", "TargetTraitsFailed", f"{what}: {answer}")
            else:
                digest = hashlib.sha256(answer.encode()).hexdigest()[:16] if answer else ""
                found[name] = read[name], f" {digest}" if digest else ""
        with self._lock:
            self._known = found
        whole = len(answers) == len(asked) and not any(isinstance(one, Exception) for one in answers)
        return {name: digest for name, (_, digest) in found.items()}, whole
