"""Stage 4, its memory: what this process itself saw and did on each node. That is the proof that
the record on the node is not. And `NodeMetrics`: all metrics of this controller, those of the Go
controller and our own.

An entry belongs to one UID, and goes when the node goes. It also prevents fights over a field: what
the cloud newly asks for is written at once; what another program undid is put back at once the
first time, then at most once in a refresh period, and ever less often while it goes on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from attrs import define, field

from cloudprovider.helpers.objects import needs_initialization
from cloudprovider.internal.backoff import NO_ATTEMPTS, Attempts, Backoff
from controllers.node.addresses import UNHEARD, Heard
from controllers.runtime.cache import key_of, uid_of
from controllers.runtime.metrics import FINE_BUCKETS, Metrics, exponential_buckets, watch_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kubernetes.client.models.v1_node import V1Node

    from controllers.node.kept import Known
    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock

_LONGEST: Final = 3600.0
_DELAY_BUCKETS = exponential_buckets(1, 4, 6)
UNTAINTING: Final = Backoff(base=10.0, cap=600.0, quiet_delays=2.0)
"""How soon a node that was initialised is initialised again, when its taint is set again."""


@define(eq=False)
class Remembered:
    """One node, for as long as it has this UID."""

    uid: str
    restored: Attempts = NO_ATTEMPTS
    """Labels, addresses and the record, once they were as the cloud has them, put back."""
    paired: Attempts = NO_ATTEMPTS
    """The deprecated labels brought in line with their stable ones."""
    untainted: Attempts = NO_ATTEMPTS
    """The uninitialized taint removed."""
    known: Known | None = None
    """The labels that the cloud asked for; None before the first comparison with the cloud."""
    writing: Mapping[str, str] = field(factory=dict)
    """The labels of the last write, set before it: the event of that write may come first."""
    inputs: int | None = None
    """`changes.inputs` of the last comparison with the cloud."""
    tainted_again: bool = False
    """Another program set the uninitialized taint again. Only the triggers can see that, as a cache
    may be late."""
    unsure: bool = False
    """The last patch of its initialisation may have been applied."""
    heard: Heard = UNHEARD
    """What the cloud's answers said of its addresses."""
    kept: frozenset[str] = frozenset()
    """The types of address that it keeps although the cloud's last answer lacks them."""
    without_ip_since: float | None = None
    """It has no IP address, and waits for one since then: for its initialisation, or after it."""
    without_id: bool = False
    """It is initialised, has no provider ID, and cannot be adopted."""
    reported: frozenset[str] = frozenset()
    """Reasons of Events that are sent once."""

    def report_once(self, reason: str) -> bool:
        """True the first time."""
        if reason in self.reported:
            return False
        self.reported |= {reason}
        return True


class NodeMemory:
    """All nodes, by name. Thread-safe; the work queues keep two threads off one entry, or nearly
    so, and none of its fields depends on another."""

    def __init__(self, refresh_period: float) -> None:
        self.period = refresh_period
        self.restoring = Backoff(base=refresh_period, cap=max(refresh_period, _LONGEST), quiet_delays=2.0)
        """How soon what we wrote before is put back again."""
        self._lock = threading.Lock()
        self._nodes: dict[str, Remembered] = {}
        self._names: dict[str, tuple[str, ...]] = {}  # by provider ID
        self._given: dict[str, str] = {}  # by node: the provider ID that is being written on it

    def __len__(self) -> int:
        return len(self._nodes)

    def of(self, node: V1Node) -> Remembered:
        """The entry of this node, a new one where another UID had its name."""
        key, uid = key_of(node), uid_of(node)
        with self._lock:
            found = self._nodes.get(key)
            # What another Node of that name was given proves nothing about this one.
            if found is None or found.uid != uid:
                found = self._nodes[key] = Remembered(uid)
            return found

    def find(self, key: str) -> Remembered | None:
        """The entry of that name, if there is one."""
        return self._nodes.get(key)

    def forget(self, key: str) -> None:
        """The node is gone."""
        with self._lock:
            self._nodes.pop(key, None)
            self._given.pop(key, None)

    def forget_gone(self, exists: Callable[[str], bool]) -> None:
        """Forget the nodes that are gone: late work may have left something."""
        for key in [*self._nodes, *self._given]:
            if not exists(key):
                self.forget(key)

    def note_id(self, key: str, before: str, after: str) -> tuple[str, ...]:
        """Note that the Node's provider ID was `before` and is `after` now; "": none.

        Returns the other Nodes that have it too, if this one did not before."""
        if before == after:
            return ()
        with self._lock:
            if after:
                self._given.pop(key, None)
            left = tuple(name for name in self._names.pop(before, ()) if name != key)
            if left:
                self._names[before] = left
            others = self._names.get(after, ())
            if after:
                self._names[after] = (*others, key)
        return others

    def give_id(self, key: str, provider_id: str, holds: Callable[[str], bool]) -> str:
        """Note that this provider ID is about to be written on the Node; returns "". Or the name of
        another Node that it is being written on, or that carries it, as far as that one `holds`."""
        # In one step: of two new Nodes of one machine, two threads would both find it free.
        with self._lock:
            others = [name for name, given in self._given.items() if given == provider_id and name != key]
            others += [name for name in self._names.get(provider_id, ()) if name != key and holds(name)]
            if not others:
                self._given[key] = provider_id
        return others[0] if others else ""

    def sharing(self) -> int:
        """How many Nodes carry a provider ID that another Node carries too."""
        with self._lock:
            return sum(len(names) for names in self._names.values() if len(names) > 1)

    def lacking_addresses(self) -> int:
        """How many nodes the cloud names fewer addresses for than they have, or no IP at all."""
        with self._lock:
            return sum(bool(entry.kept) or entry.without_ip_since is not None for entry in self._nodes.values())

    def without_id(self) -> int:
        """How many initialised nodes have no provider ID and could not be adopted."""
        with self._lock:
            return sum(entry.without_id for entry in self._nodes.values())


class NodeMetrics:
    """How long nodes wait for their initialisation, and which cannot be adopted. Thread-safe."""

    def __init__(self, metrics: Metrics, lister: Lister[V1Node], memory: NodeMemory, clock: Clock) -> None:
        self._delays = (
            metrics.histogram(
                "node_controller_cloud_provider_taint_removal_delay_seconds",
                "Seconds between a node's creation and the removal of the uninitialized taint.",
                buckets=_DELAY_BUCKETS,
            ),
            metrics.histogram(
                "node_controller_initial_node_sync_delay_seconds",
                "Seconds between a node's creation and the end of its initialisation.",
                buckets=_DELAY_BUCKETS,
            ),
            metrics.histogram(
                "node_controller_node_initialization_duration_seconds",
                "Seconds between a node's creation and the end of its initialisation, in finer buckets.",
                buckets=FINE_BUCKETS,
            ),
        )
        metrics.gauge(
            "node_controller_nodes_without_provider_id",
            "Initialised nodes that have no provider ID and could not be adopted.",
        ).set_function(memory.without_id)
        metrics.gauge(
            "node_controller_nodes_lacking_addresses",
            "Nodes without any IP address, or for which the cloud's last answer lacks addresses that they have.",
        ).set_function(memory.lacking_addresses)
        metrics.gauge(
            "node_controller_nodes_sharing_provider_id",
            "Nodes whose provider ID another Node carries too.",
        ).set_function(memory.sharing)
        watch_waiting(
            metrics,
            ("node_controller_uninitialized_nodes", "Nodes that wait for their initialisation."),
            (
                "node_controller_oldest_uninitialized_node_age_seconds",
                "Seconds that the oldest of these nodes has waited, as far as this process saw it; 0 without one.",
            ),
            lister.list,
            needs_initialization,
            clock,
        )

    def initialised(self, delay: float) -> None:
        """A node was initialised, `delay` seconds after its creation."""
        for histogram in self._delays:
            histogram.observe(delay)
