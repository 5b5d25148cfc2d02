"""The controllers that the manager can run: one entry each, from which flags, help and start-up follow.

Stage: before the first one; nothing is imported or built until the manager calls an entry's `construct`. Data
comes from here alone; it goes to `config.py` (names, aliases, flags) and `manager.py` (construct). Names and aliases
are those of the Go cloud-controller-manager (names/controller_names.go), and never change.

A new controller adds its class of flags, its constructor and its entry below. A vendor passes a longer catalog to
`main`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import attrs

from controllers.app.goflags import DURATION, INT, display
from controllers.app.lifecycle import NodeLifecycleFlags, node_lifecycle_controller
from controllers.app.options import Options, between, option, positive
from controllers.app.routes import RouteFlags, route_controller
from controllers.app.services import ServiceFlags, service_controller

if TYPE_CHECKING:
    from cloudprovider.host import StopSignal
    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.cache import InformerFactory
    from controllers.runtime.clock import Clock
    from controllers.runtime.metrics import Metrics


class Controller(Protocol):
    """What the manager needs of a controller."""

    def run(self, stop: StopSignal) -> None:
        """Work until `stop` is set, then drain and return. A return before that, or an exception, is a failure."""

    def health(self) -> Iterable[tuple[str, bool, str]]:
        """(name, well, detail) of each part; from any thread, without blocking."""


@runtime_checkable
class HoldsBack(Protocol):
    """A controller that may hold back what looks dangerous, until an operator says that it is meant."""

    def release_breaker(self) -> int:
        """Let go what is held back now; returns how many objects that are. From any thread."""


@attrs.frozen(kw_only=True)
class Rule:
    """Verbs on a resource that a controller needs, and what does not work without them (a clause for people)."""

    resource: str
    """Plural, with its subresource: "nodes", "nodes/status"."""
    verbs: tuple[str, ...]
    consequence: str
    group: str = ""
    namespace: str = ""
    """Empty: everywhere."""
    names: tuple[str, ...] = ()
    """The objects, where they are known by name; `create` is granted without them, as RBAC wants it."""

    def fix(self) -> str:
        """The rule to add, as it stands in a Role or ClusterRole."""
        kind = f"Role in namespace {self.namespace}, or ClusterRole" if self.namespace else "ClusterRole"
        return (
            f"add to the {kind} of our service account: apiGroups [{self.group!r}], resources [{self.resource}], "
            f"verbs [{', '.join(self.verbs)}]"
        )


@attrs.frozen(kw_only=True)
class Context:
    """What a controller is built from. Shared by all of them; each takes its own client identity from `clients`."""

    options: Options
    clients: ClientBuilder
    informers: InformerFactory
    cloud: CloudCalls
    metrics: Metrics
    clock: Clock
    drain: float
    """Seconds that a controller may take to finish its work when it is told to stop."""

    def build(self, kind: Callable[..., Controller], options: object) -> Controller:
        """A controller of ours: all take the same."""
        return kind(self.clients, self.informers, self.cloud, options=options, metrics=self.metrics, clock=self.clock)


@attrs.frozen(kw_only=True)
class ControllerEntry:
    """One controller: its name and aliases for --controllers, its class of flags, and how it is built.

    `construct` is called once per run, in the catalog's order, before the informers start, so that it can ask for the
    informers that it needs. None: as its flags stand it has nothing to do, and the log says why. What it raises ends
    the start.
    """

    name: str
    aliases: tuple[str, ...] = ()
    construct: Callable[[Context], Controller | None]
    flags: type[Any] | None = None
    rules: tuple[Rule, ...] = ()
    on_by_default: bool = True


@attrs.frozen(kw_only=True)
class NodeFlags:
    """The flags of cloud-node-controller."""

    concurrent_node_syncs: int = option(
        32,
        INT,
        "concurrent-node-syncs",
        "cloud-node-controller",
        "Workers that initialise and update nodes (Go's default is 1).",
        check=between(1, 1000),
    )
    concurrent_node_status_updates: int = option(
        0,
        INT,
        "concurrent-node-status-updates",
        "cloud-node-controller",
        "Workers that refresh the addresses and labels of nodes. 0: as many as --concurrent-node-syncs.",
        check=between(0, 1000),
    )
    node_status_update_frequency: float = option(
        300.0,
        DURATION,
        "node-status-update-frequency",
        "misc",
        "How often the addresses and labels of every node are compared with the cloud.",
        check=positive,
    )


def _node(context: Context) -> Controller:
    from controllers.node import CloudNodeController, CloudNodeOptions

    flags = context.options.of(NodeFlags)
    options = CloudNodeOptions(
        concurrent_node_syncs=flags.concurrent_node_syncs,
        concurrent_node_status_updates=flags.concurrent_node_status_updates,
        node_status_update_frequency=flags.node_status_update_frequency,
        drain_timeout=context.drain,
    )
    return context.build(CloudNodeController, options)


COMMON_RULES: tuple[Rule, ...] = (
    Rule(
        resource="namespaces",
        verbs=("get",),
        names=("kube-system",),
        consequence="providers cannot tell clusters of one name apart",
    ),
)
"""What the manager itself uses, whichever controllers run. It works without, a little worse: so it is granted by the
manifest, and nobody is warned at the start; who asks for it warns when it is missing."""

_LIFECYCLE_RULES = (
    Rule(
        resource="nodes",
        verbs=("get", "list", "watch", "patch", "delete"),
        consequence="nodes without an instance stay, and those that are shut down get no taint",
    ),
    Rule(
        resource="events",
        verbs=("create", "patch"),
        consequence="nobody is told by Events which nodes are deleted, or held back",
        namespace="default",
    ),
)


_ROUTE_RULES = (
    Rule(resource="nodes", verbs=("get", "list", "watch"), consequence="no route is ever created or deleted"),
    Rule(resource="nodes/status", verbs=("patch",), consequence="nodes stay marked as without network"),
    Rule(
        resource="events",
        verbs=("create", "patch"),
        consequence="nobody is told by Events which routes cannot be created",
        namespace="default",
    ),
)

_SERVICE_RULES = (
    Rule(
        resource="services",
        verbs=("list", "watch", "patch"),
        consequence="no Service gets a load balancer, and none is cleaned up",
    ),
    Rule(resource="services/status", verbs=("patch",), consequence="Services never show their load balancer's address"),
    Rule(resource="nodes", verbs=("list", "watch"), consequence="load balancers have no nodes to send traffic to"),
    Rule(
        resource="events",
        verbs=("create", "patch"),
        consequence="nobody is told by Events what happens to load balancers",
    ),
)

_NODE_RULES = (
    Rule(resource="nodes", verbs=("get", "list", "watch", "patch"), consequence="no node is ever initialised"),
    Rule(resource="nodes/status", verbs=("patch",), consequence="nodes get no addresses and stay tainted"),
    Rule(
        resource="events",
        verbs=("create", "patch"),
        consequence="nobody is told by Events what happens to nodes",
        namespace="default",
    ),
)

CATALOG: tuple[ControllerEntry, ...] = (
    ControllerEntry(
        name="cloud-node-controller",
        aliases=("cloud-node",),
        construct=_node,
        flags=NodeFlags,
        rules=_NODE_RULES,
    ),
    ControllerEntry(
        name="cloud-node-lifecycle-controller",
        aliases=("cloud-node-lifecycle",),
        construct=node_lifecycle_controller,
        flags=NodeLifecycleFlags,
        rules=_LIFECYCLE_RULES,
    ),
    ControllerEntry(
        name="node-route-controller",
        aliases=("route",),
        construct=route_controller,
        flags=RouteFlags,
        rules=_ROUTE_RULES,
    ),
    ControllerEntry(
        name="service-lb-controller",
        aliases=("service",),
        construct=service_controller,
        flags=ServiceFlags,
        rules=_SERVICE_RULES,
    ),
)
"""Every controller of this distribution, in the order in which they start."""


def flag_classes(catalog: Sequence[ControllerEntry]) -> list[type[Any]]:
    """The controllers' classes of flags, each once."""
    return list(dict.fromkeys(entry.flags for entry in catalog if entry.flags is not None))


def names(catalog: Sequence[ControllerEntry]) -> str:
    """The controllers' names with their aliases, for people."""
    return ", ".join(f"{e.name} ({', '.join(e.aliases)})" if e.aliases else e.name for e in catalog)


def enabled(words: Sequence[str], catalog: Sequence[ControllerEntry]) -> list[ControllerEntry]:
    """The entries that a value of --controllers turns on, in the catalog's order. Unknown words turn on nothing."""
    chosen = []
    for entry in catalog:
        own = (entry.name, *entry.aliases)
        if any(f"-{name}" in words for name in own):
            continue
        if any(name in words for name in own) or ("*" in words and entry.on_by_default):
            chosen.append(entry)
    return chosen


def problems_of(words: Sequence[str], catalog: Sequence[ControllerEntry]) -> list[str]:
    """What is wrong with a value of --controllers: unknown names, contradictions, nothing left to run."""
    known = {name: entry.name for entry in catalog for name in (entry.name, *entry.aliases)}
    problems: list[str] = []
    wanted: set[str] = set()
    unwanted: set[str] = set()
    for word in words:
        name = word.removeprefix("-")
        if word == "*":
            continue
        if name in known:
            (unwanted if word.startswith("-") else wanted).add(known[name])
        else:
            problems.append(f"no controller is called {display(name)!r}; known: {names(catalog)}")
    problems += [f"{name} is both asked for and left out" for name in sorted(wanted & unwanted)]
    if not problems and not enabled(words, catalog):
        problems.append(f"no controller is left to run; known: {names(catalog)}")
    return problems
