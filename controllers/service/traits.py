"""What the provider says that load balancers depend on of nodes (its `target_traits`), for the
digest in `targets.py`. Asked in a thread of the provider, once for all nodes that changed."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from controllers.runtime.cache import key_of
from controllers.service.cloud import CLOUD_ERRORS
from controllers.service.targets import traits_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls.capabilities import LoadBalancerCalls
    from controllers.runtime.write import EventRecorder

log = logging.getLogger(__name__)


class NodeTraits:
    """Remembers a digest for each node, for as long as nothing changed that it may depend on.
    Thread-safe. Where the provider fails to say, the last one holds, and the node's Event tells."""

    def __init__(self, balancers: LoadBalancerCalls, recorder: EventRecorder) -> None:
        self._balancers = balancers
        self._recorder = recorder
        self._lock = threading.Lock()
        self._known: dict[str, tuple[tuple[object, ...] | None, str]] = {}
        """By name: what it was asked about (None: in vain), and the digest."""

    def of(self, nodes: Sequence[V1Node]) -> Mapping[str, str]:
        """The digest for each of these nodes, by name; others are forgotten."""
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
                found[name] = None, found.get(name, (None, ""))[1]
                what = "What load balancers depend on of this node is not known"
                self._recorder.event(node, "Warning", "TargetTraitsFailed", f"{what}: {answer}")
            else:
                digest = hashlib.sha256(answer.encode()).hexdigest()[:16] if answer else ""
                found[name] = read[name], f" {digest}" if digest else ""
        with self._lock:
            self._known = found
        return {name: digest for name, (_, digest) in found.items()}
