"""Between stages 2 and 4: which nodes are the targets of load balancers, and in what word they are remembered.

Data comes from the cache of nodes; the reconciler hands the nodes to the provider, and compares the digest with the one
that was applied. All Services share one set. Pure, but for the cache's lock.

Follows: stableNodeSetPredicates in controllers/service/controller.go of k8s.io/cloud-provider, and KEP-3458.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from attrs import frozen

from cloudprovider.wellknown import LABEL_EXCLUDE_BALANCERS, TAINT_TO_BE_DELETED
from controllers.runtime.resources import key_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.runtime.cache import Lister

_FALSE: Final = frozenset({"0", "f", "F", "false", "False", "FALSE"})


@frozen
class Targets:
    """The nodes, in order of their names, and a digest of all about them that load balancers depend on."""

    nodes: tuple[V1Node, ...]
    digest: str


class TargetSet:
    """The present targets, worked out anew only after `invalidate`. Thread-safe."""

    def __init__(self, lister: Lister[V1Node], ready_only: bool) -> None:
        self._lister = lister
        self._ready_only = ready_only
        self._lock = threading.Lock()
        self._present: Targets | None = None

    def current(self) -> Targets:
        """What the cache shows."""
        with self._lock:
            if self._present is None:
                self._present = targets(self._lister.list(), self._ready_only)
            return self._present

    def invalidate(self) -> None:
        """A node has changed."""
        with self._lock:
            self._present = None

    def differs(self, old: V1Node | None, new: V1Node | None) -> bool:
        """Whether a change of one node may change the targets."""
        return self._part(old) != self._part(new)

    def _part(self, node: V1Node | None) -> tuple[str, bool] | None:
        if node is None or not is_target(node):
            return None
        return describe(node), self._ready_only and is_ready(node)


def targets(nodes: Iterable[V1Node], ready_only: bool) -> Targets:
    """The targets among these nodes. With `ready_only`, the ready ones; all, should none be ready: a control plane that
    lost sight of the kubelets must not empty every load balancer."""
    found = sorted((node for node in nodes if is_target(node)), key=key_of)
    if ready_only:
        found = [node for node in found if is_ready(node)] or found
    digest = hashlib.sha256("\n".join(map(describe, found)).encode()).hexdigest()[:16] if found else NO_TARGETS
    return Targets(tuple(found), digest)


NO_TARGETS: Final = "none"
"""The digest of no targets."""


def is_target(node: V1Node) -> bool:
    """Whether load balancers may send traffic to a node: not being deleted, by the cluster autoscaler neither, and not
    excluded by its label."""
    metadata, spec = node.metadata, node.spec
    if metadata is None or metadata.deletion_timestamp is not None:
        return False
    excluded = (metadata.labels or {}).get(LABEL_EXCLUDE_BALANCERS)
    if excluded is not None and excluded not in _FALSE:
        return False
    taints = (spec.taints if spec is not None else None) or ()
    return all(taint.key != TAINT_TO_BE_DELETED for taint in taints)


def is_ready(node: V1Node) -> bool:
    """Whether its condition Ready is True."""
    conditions = (node.status.conditions if node.status is not None else None) or ()
    return any(condition.type == "Ready" and condition.status == "True" for condition in conditions)


def describe(node: V1Node) -> str:
    """All about a target that load balancers depend on, in a line: name, provider ID, addresses in any order."""
    addresses = (node.status.addresses if node.status is not None else None) or ()
    places = sorted(f"{address.type}={address.address}" for address in addresses)
    return " ".join([key_of(node), (node.spec.provider_id if node.spec is not None else None) or "-", *places])
