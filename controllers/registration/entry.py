"""What an entry of the catalog is made of, and which entries a value of --controllers turns on.

Stage: before the first one, no I/O. Each controller's file beside this one makes an entry; flags,
help, start-up and the RBAC manifest follow from it. Names and aliases are those of the Go
cloud-controller-manager (names/controller_names.go), and never change.
"""

from __future__ import annotations

import logging
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import attrs

from controllers.options.kinds import display
from controllers.registration.options import Options

if TYPE_CHECKING:
    from cloudprovider.host import StopSignal
    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.cache import InformerFactory, Resource
    from controllers.runtime.clock import Clock
    from controllers.runtime.metrics import Metrics


log = logging.getLogger(__name__)


class Controller(Protocol):
    """What the manager needs of a controller. It may have more, each asked for by its name, from
    any thread, without blocking:

    - `notes()`: as `health`, of what no restart would mend.
    - `release_breaker()`: do what it holds back as dangerous; returns how many objects that are.
    - `undecided()`: (object as "node/NAME", why nothing is done, whether it only waits for a
      further look) of each matter on which it does not act immediately.
    - `left_alone()`: (object as "node/NAME", what is not done and why) of each object that an
      administrator keeps it from.
    """

    def run(self, stop: StopSignal) -> None:
        """Work until `stop` is set, then drain and return. Any other end is a failure."""

    def health(self) -> Iterable[tuple[str, bool, str]]:
        """(name, well, detail) of each part; from any thread, without blocking."""


@attrs.frozen(kw_only=True)
class Rule:
    """Verbs on a resource that a controller needs, and what fails without them."""

    resource: str
    """Plural, with its subresource: "nodes", "nodes/status"."""
    verbs: tuple[str, ...]
    consequence: str
    group: str = ""
    namespace: str = ""
    """Empty: everywhere."""
    names: tuple[str, ...] = ()
    """The objects, where they are known by name; `create` is granted without them, as RBAC wants
    it, except for a subresource."""
    account: str = ""
    """The service account that needs it, with --use-service-account-credentials; empty: the
    manager's own."""

    def named(self, verb: str) -> tuple[str, ...]:
        """The names that this verb can be limited to."""
        # RBAC cannot limit a creation by name: as it is decided, the object has none yet.
        return () if verb == "create" and "/" not in self.resource else self.names

    def fix(self) -> str:
        """The rule to add, as it stands in a Role or ClusterRole."""
        kind = f"Role in namespace {self.namespace}, or ClusterRole" if self.namespace else "ClusterRole"
        # In one rule with a creation they would forbid that.
        names = f" resourceNames [{', '.join(self.names)}]," if self.names and "create" not in self.verbs else ""
        whose = f"the service account kube-system/{self.account}" if self.account else "the manager's service account"
        return (
            f"add to the {kind} of {whose}: apiGroups [{self.group!r}], "
            f"resources [{self.resource}],{names} verbs [{', '.join(self.verbs)}]"
        )


@attrs.frozen(kw_only=True)
class Context:
    """What a controller is built from. Shared by all of them; each has its own client."""

    options: Options
    clients: ClientBuilder
    informers: InformerFactory
    cloud: CloudCalls
    metrics: Metrics
    clock: Clock
    drain: float
    """Seconds that a controller may take to finish its work when it is asked to stop."""
    controllers: frozenset[str] = frozenset()
    """The names of those that --controllers and the leader migration give to this process."""

    def build(self, kind: Callable[..., Controller], options: type[Any], **changes: object) -> Controller:
        """A controller with the constructor that all of ours have, and what the flags say of this
        class of options, but for `changes`."""
        # The manager's bound and not a flag's: all of them end within one time.
        given = attrs.evolve(self.options.of(options), drain_timeout=self.drain, **changes)
        return kind(self.clients, self.informers, self.cloud, options=given, metrics=self.metrics, clock=self.clock)


@attrs.frozen(kw_only=True)
class ControllerEntry:
    """One controller: its name and aliases for --controllers, its options, how it is built.

    `construct` is called once per run, in the catalog's order, when this process leads. None: as
    its flags stand it has nothing to do, and the log says why. What it raises ends the start.
    Informers that it asks for beyond `informers` are started then."""

    name: str
    aliases: tuple[str, ...] = ()
    construct: Callable[[Context], Controller | None]
    needs: Callable[[CloudCalls], object] = lambda _cloud: True
    """What the provider must have. If not, the controller is off, and the log says `lacking`."""
    lacking: str = ""
    """What the provider cannot do then, and what follows: "offers no routes, so ..."."""
    module: str = ""
    """Where its controller is; every replica imports it at the start, for takeovers."""
    informers: Callable[[], Iterable[Resource[Any]]] = lambda: ()
    """The kinds that it reads; every replica fills these caches, for takeovers."""
    options: tuple[type[Any], ...] = ()
    """Classes whose fields are declared by `option`: its own, and the manager's."""
    rules: tuple[Rule, ...] = ()
    on_by_default: bool = True
    off: Callable[[Mapping[str, Any]], str] = lambda _values: ""
    """Why it has nothing to do with these values of flags, by their names; "" when it has. Where no
    other controller is left to run either, the program does not start."""
    problems: Callable[[Mapping[str, Any]], Iterable[str]] = lambda _values: ()
    """What is wrong with these values of flags where it is on, a line each that begins with the
    flag; it may read the files that they name. The program then does not start. Flags that are
    wrong by themselves are reported already."""
    stand_in: Callable[[Context, bool], Controller | None] = lambda _context, _enabled: None
    """What runs in its place while it is off, to report or clean up what a former run left; None:
    nothing. The second argument is whether --controllers turns it on. Another manager may run this
    controller. Asked once per run, after every controller is built."""
    client: str = ""
    """The name that it gives its client, `clients.rest(name)`; empty: the controller's name."""

    def start(self, context: Context) -> Controller | None:
        """The controller; None, with a log line, where it is off. Raises as `construct` does."""
        # A cloud without routes, say, is no failure: only what nobody can do is off.
        if self.needs(context.cloud):
            return self.construct(context)
        although = "" if self.on_by_default else ", although --controllers names it"
        log.warning("%s is off%s: provider %s %s", self.name, although, context.cloud.provider_name, self.lacking)
        return None

    @property
    def account(self) -> str:
        """The service account that it has with --use-service-account-credentials: its client's
        name, as in Go."""
        return self.client or self.name


class Selectable(Protocol):
    """What a flag such as --controllers turns on and off by name."""

    @property
    def name(self) -> str: ...
    @property
    def aliases(self) -> tuple[str, ...]: ...
    @property
    def on_by_default(self) -> bool:
        """Whether "*" turns it on."""


S = TypeVar("S", bound=Selectable)


def names(catalog: Sequence[Selectable]) -> str:
    """Their names with their aliases, for people."""
    return ", ".join(f"{e.name} ({', '.join(e.aliases)})" if e.aliases else e.name for e in catalog)


def named_twice(catalog: Sequence[Selectable]) -> list[str]:
    """The names and aliases that two entries share, or one has twice: both would run."""
    names = Counter(name for entry in catalog for name in (entry.name, *entry.aliases))
    return [name for name, count in names.items() if count > 1]


def enabled(words: Sequence[str], catalog: Sequence[S]) -> list[S]:
    """The entries that a value of --controllers or --webhooks turns on, in the catalog's order.
    Unknown words turn on nothing. Of two words about an entry the first counts, as in Go."""
    chosen = []
    for entry in catalog:
        own = (entry.name, *entry.aliases)
        # "-route,route": the first word counts, as in Go.
        first = next((word for word in words if word.removeprefix("-") in own), None)
        if not first.startswith("-") if first else "*" in words and entry.on_by_default:
            chosen.append(entry)
    return chosen


def canonical(words: Sequence[str], catalog: Sequence[ControllerEntry]) -> tuple[str, ...]:
    """A value of --controllers with controllers' names for aliases, as Go's /configz has it."""
    known = {alias: entry.name for entry in catalog for alias in entry.aliases}
    minus = {word: "-" if word.startswith("-") else "" for word in words}
    return tuple(minus[word] + known.get(word.removeprefix("-"), word.removeprefix("-")) for word in words)


def off_by_flags(values: Mapping[str, Any], catalog: Sequence[ControllerEntry]) -> list[str]:
    """Why no controller would run with these values of flags; nothing when one would."""
    chosen = enabled(values["controllers"], catalog)
    reasons = [(entry, entry.off(values)) for entry in chosen]
    # One that has something to do is enough to start.
    if not all(reason for _, reason in reasons):
        return []
    return [f"no controller is left to run: {entry.name} {reason}" for entry, reason in reasons]


def misspelt(words: Sequence[str], catalog: Sequence[Selectable], noun: str) -> list[str]:
    """What is wrong with the names in such a value: unknown ones."""
    known = {name for entry in catalog for name in (entry.name, *entry.aliases)}
    unknown = [word.removeprefix("-") for word in words if word != "*" and word.removeprefix("-") not in known]
    return [f"no {noun} is called {display(name)!r}; known: {names(catalog) or 'none'}" for name in unknown]


def contradictions(words: Sequence[str], catalog: Sequence[Selectable]) -> list[str]:
    """The entries that such a value both asks for and leaves out."""
    return [
        entry.name
        for entry in catalog
        if {f"-{name}" for name in (entry.name, *entry.aliases)} & {*words} and {entry.name, *entry.aliases} & {*words}
    ]


def problems_of(words: Sequence[str], catalog: Sequence[ControllerEntry]) -> list[str]:
    """What is wrong with a value of --controllers: unknown names, conflicts, nothing to run."""
    problems = misspelt(words, catalog, "controller")
    if not problems and not enabled(words, catalog):
        problems.append(f"no controller is left to run; known: {names(catalog)}")
    return problems


def built(controller: str, options: type[Any]) -> Callable[[Context], Controller]:
    """For `ControllerEntry.construct`: this class, with what the flags say of its options."""
    # By name: --help and a standby need not import the controllers.
    return lambda context: context.build(pkgutil.resolve_name(controller), options)


def informers(*resources: str) -> Callable[[], Iterable[Resource[Any]]]:
    """For `ControllerEntry.informers`: these of `controllers.runtime.cache`."""
    # By name: flags are read before the caches and their models are imported.
    return lambda: [pkgutil.resolve_name(f"controllers.runtime.cache:{name}") for name in resources]


def event_rule(consequence: str, namespace: str = "default") -> Rule:
    """The permission to write Events; those about objects without a namespace are in "default"."""
    return Rule(resource="events", verbs=("create", "patch"), consequence=consequence, namespace=namespace)
