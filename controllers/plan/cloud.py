"""The gateway of a plan run: no call changes the cloud; each that would becomes a row of the plan,
and is answered. What was answered shows in later reads.

Made in place of `CloudCalls`, around the same provider. What a provider does by itself, in threads
of its own or when it is initialised, no host can see."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any, Final, TypeVar, cast

from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import (
    InstanceState,
    Interface,
    InvalidService,
    NotImplementedByProvider,
    OwnedLoadBalancer,
    Route,
)
from cloudprovider.helpers import needs_initialization, parse_ssh_public_key
from controllers.cloudcalls import PRIORITY_DELETE, PRIORITY_NORMAL, CloudCalls
from controllers.cloudcalls.answers import Answer
from controllers.cloudcalls.capabilities import LoadBalancerCalls, RouteCalls, SSHKeyCalls
from controllers.cloudcalls.pool import CallPool
from controllers.plan.rows import ASSIGNED_LATER, Change, Kind, Plan, Row, Subject
from controllers.runtime.cache import key_of
from controllers.runtime.clock import Clock
from controllers.service.changes import Note, note_of
from controllers.service.targets import targets

R = TypeVar("R")
JSON = Mapping[str, Any]

_BALANCERS: Final = "service-lb-controller"
_ROUTES: Final = "node-route-controller"
_KEYS: Final = "ssh-key-controller"
_MAYBE: Final = "may change nothing: only the provider knows"
_UNKNOWN: Final = object()
_KEPT: Final = V1LoadBalancerStatus()
_SMALL: Final = 100  # nodes

Targets = tuple[str, ...] | None
"""Names of nodes; None: not known."""


class Evidence:
    """What the cloud said of nodes' instances. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._gone: dict[str, list[float]] = {}

    def stated(self, name: str, state: InstanceState | Exception) -> None:
        """Keep the row of answers "gone" of each node, with their times."""
        with self._lock:
            if state is InstanceState.GONE:
                self._gone.setdefault(name, []).append(self._clock.time())
            else:
                # Deletion takes answers in a row: one that differs ends it.
                self._gone.pop(name, None)

    def of(self, name: str) -> str:
        """Why this Node may be deleted, for people; "" where the cloud does not say so."""
        with self._lock:
            times = [datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3] for at in self._gone.get(name, ())]
        if not times:
            return ""
        return f"the cloud said that its instance is gone, {len(times)} times: {', '.join(times)} UTC"


class PlannedCalls(CloudCalls):
    """The gateway, with these ways to change the cloud planned; the guard refuses any other."""

    def __init__(
        self,
        provider: Interface,
        *,
        plan: Plan,
        evidence: Evidence,
        original: Callable[[str], JSON | None],
        nodes: Callable[[], Sequence[V1Node]],
        **arguments: Any,
    ) -> None:
        """`original` and `nodes` as of PlannedLoadBalancers, `arguments` as of CloudCalls."""
        super().__init__(provider, **arguments)
        self._plan = plan
        self._evidence = evidence
        self._original = original
        self._nodes = nodes

    @property
    def load_balancers(self) -> PlannedLoadBalancers | None:
        """Load balancers."""
        return self._calls("load_balancer", partial(PlannedLoadBalancers, self._plan, self._original, self._nodes))

    @property
    def routes(self) -> PlannedRoutes | None:
        """Routes."""
        return self._calls("routes", partial(PlannedRoutes, self._plan, prefixes=lambda: self.provider_id_prefixes))

    @property
    def ssh_keys(self) -> SSHKeyCalls | None:
        """SSH keys."""
        return None if super().ssh_keys is None else PlannedKeys(self._plan, self._pool, None)

    def fetch_state(
        self,
        nodes: Sequence[V1Node],
        deliver: Callable[[str, Answer[InstanceState]], object],
        *,
        confirm: Container[str] = (),
    ) -> None:
        """Ask whether each node's instance runs, and keep the answers as evidence."""

        def answered(name: str, answer: Answer[InstanceState]) -> None:
            self._evidence.stated(name, answer.unbound)
            deliver(name, answer)

        super().fetch_state(nodes, answered, confirm=confirm)

    def call(
        self, method: str, fn: Callable[..., R], *args: Any, key: str, mutating: bool = False, **options: Any
    ) -> R:
        """Call vendor code that has no wrapper; one that changes the cloud is a row by its name."""
        # A read is the truth that the plan is made from; of a change only its name is known.
        if not mutating:
            return super().call(method, fn, *args, key=key, **options)
        kind, _, name = key.partition("/")
        self._plan.record(Row("", Subject(kind, name or "all"), method.replace("_", " ")))
        return cast(R, None)


class PlannedLoadBalancers(LoadBalancerCalls):
    """Load balancers, with what was planned. Thread-safe.

    To know what a call would do, the provider is asked what it has. The targets that a load
    balancer has are known where our annotation on the Service gives their digest, which is compared
    with the nodes that there are."""

    def __init__(
        self,
        plan: Plan,
        original: Callable[[str], JSON | None],
        nodes: Callable[[], Sequence[V1Node]],
        pool: CallPool,
        capability: Any,
    ) -> None:
        """`original(key)`: a Service that was written to, as it was before this run; None where it
        was not. `nodes()`: those that there were when the controllers began."""
        super().__init__(pool, capability)
        self._plan = plan
        self._original = original
        self._nodes = nodes
        self._lock = threading.Lock()
        # By the Services' keys, what there would be.
        self._balancers: dict[str, V1LoadBalancerStatus | None] = {}
        self._actions: dict[str, str] = {}
        self._targets: dict[str, Targets] = {}

    def get(
        self, cluster_name: str, service: V1Service, *, priority: int = PRIORITY_NORMAL
    ) -> V1LoadBalancerStatus | None:
        """The status that it would have."""
        key = key_of(service)
        with self._lock:
            # What is planned counts as done, so that what follows from it is planned, too.
            if key in self._balancers:
                return self._balancers[key]
        return super().get(cluster_name, service, priority=priority)

    def owned(self, cluster_name: str) -> tuple[OwnedLoadBalancer, ...]:
        """Every load balancer that the cluster would own."""
        there = super().owned(cluster_name)
        with self._lock:
            # Only a planned deletion (None) takes one off the list.
            return tuple(one for one in there if self._balancers.get(one.service, _KEPT))

    def ensure(
        self,
        cluster_name: str,
        service: V1Service,
        nodes: Sequence[V1Node],
        *,
        priority: int = PRIORITY_NORMAL,
        began: float | None = None,
        former: V1Service | None = None,
    ) -> V1LoadBalancerStatus:
        """Plan to create or repair it. Raises `InvalidService` where the provider's
        `check_service` refuses it, which is a row."""
        self._ask_whether_refused(service)
        key, present = key_of(service), self._present(cluster_name, service)
        answer = V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(hostname=ASSIGNED_LATER)])
        note = ""
        if present is None:
            action = "create load balancer"
        # Our note says what was built last: the controller asks only where something differs.
        elif present is not _UNKNOWN and self._note(service) is not None:
            action, answer = "change load balancer", present
        else:
            action, note = "ensure load balancer", _MAYBE
            if present is not _UNKNOWN:
                answer = present
            elif service.status is not None and service.status.load_balancer is not None:
                answer = service.status.load_balancer
        with self._lock:
            # The first call names the row: what follows in this run is a part of it.
            action = self._actions.setdefault(key, action)
            self._balancers[key] = answer
        self._retarget(action, service, nodes, note, None if present is None else self._recorded(service))
        return answer

    def update(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node], *, began: float | None = None
    ) -> None:
        """Plan its targets."""
        with self._lock:
            action = self._actions.setdefault(key_of(service), "retarget load balancer")
        self._retarget(action, service, nodes, "", self._recorded(service))

    def ensure_deleted(
        self, cluster_name: str, service: V1Service, *, began: float | None = None, former: V1Service | None = None
    ) -> None:
        """Plan to delete it."""
        # The call is made either way, as a real run does: a list in the cloud may lag behind.
        note = "the cloud shows none" if self._present(cluster_name, service) is None else ""
        with self._lock:
            self._balancers[key_of(service)] = None
        self._plan.record(Row(_BALANCERS, _subject(service), "delete load balancer", note=note))

    def _ask_whether_refused(self, service: V1Service) -> None:
        try:
            self.check(service)
        except InvalidService as refused:
            row = Row(_BALANCERS, _subject(service), "refused", note=str(refused), kind=Kind.HELD_BACK)
            self._plan.record(row)
            raise

    def _retarget(self, action: str, service: V1Service, nodes: Sequence[V1Node], note: str, recorded: Targets) -> None:
        wanted = tuple(key_of(node) for node in nodes)
        with self._lock:
            before = self._targets.get(key_of(service), recorded)
            self._targets[key_of(service)] = wanted
        changes = (Change("targets", before, wanted),) if before != wanted else ()
        self._plan.record(Row(_BALANCERS, _subject(service), action, changes, note, certain=note != _MAYBE))

    def _present(self, cluster_name: str, service: V1Service) -> Any:
        """What the cloud has for this Service: a status, None, or that it cannot tell."""
        try:
            return self.get(cluster_name, service)
        except NotImplementedByProvider:
            return _UNKNOWN

    def _note(self, service: V1Service) -> Note | None:
        """Our annotation, as it was before this run; None where another program built it."""
        raw = self._original(key_of(service))
        # The run has put a note of its own over it: what counts is the one before.
        return note_of(service if raw is None else V1Service.model_validate(raw, extra="ignore"))

    def _recorded(self, service: V1Service) -> Targets:
        """The targets of the annotation's digest, where they are among those that are likely."""
        note = self._note(service)
        return None if note is None else self._likely.get(note.nodes)

    @cached_property
    def _likely(self) -> dict[str, tuple[str, ...]]:
        """Names of nodes by the digest that an annotation has of them: of the nodes that there were
        when this run began, of those without the new ones, and, in a small cluster, of those
        without any one."""
        nodes = self._nodes()
        sets = [nodes, tuple(node for node in nodes if not needs_initialization(node))]
        # Each further set is another digest over all nodes.
        if len(nodes) <= _SMALL:
            sets += [tuple(other for other in nodes if other is not node) for node in nodes]
        found = [targets(each, ready_only) for each in sets for ready_only in (False, True)]
        return {
            digest: tuple(key_of(node) for node in one.nodes)
            for one in reversed(found)
            for digest in (*one.good_enough, one.digest)
        }


def _subject(service: V1Service) -> Subject:
    namespace, _, name = key_of(service).rpartition("/")
    return Subject("Service", name, namespace)


class PlannedRoutes(RouteCalls):
    """Routes, with what was planned. Thread-safe."""

    def __init__(self, plan: Plan, pool: CallPool, capability: Any, prefixes: Callable[[], Sequence[str]]) -> None:
        super().__init__(pool, capability, prefixes)
        self._plan = plan
        self._lock = threading.Lock()
        self._created: list[Route] = []
        self._deleted: list[Route] = []

    def list(self, cluster_name: str, *, priority: int = PRIORITY_NORMAL) -> tuple[Route, ...]:
        """Every route of the cluster, as it would be."""
        there = super().list(cluster_name, priority=priority)
        with self._lock:
            return (*(route for route in there if route not in self._deleted), *self._created)

    def create(self, cluster_name: str, name_hint: str, route: Route, *, priority: int = PRIORITY_NORMAL) -> None:
        """Plan a route."""
        with self._lock:
            self._created.append(route)
        self._record("create route", route, Change("target", None, route.target_node))

    def delete(self, cluster_name: str, route: Route, *, priority: int = PRIORITY_DELETE) -> None:
        """Plan a route's deletion."""
        with self._lock:
            ours = route in self._created
            (self._created.remove if ours else self._deleted.append)(route)
        target = "(none: a blackhole)" if route.blackhole else route.target_node or route.target_provider_id
        action = "create route" if ours else "delete route"  # what this plan creates and deletes is never there
        self._record(action, route, Change("target", target, None))

    def _record(self, action: str, route: Route, change: Change) -> None:
        self._plan.record(Row(_ROUTES, Subject("Route", route.destination_cidr), action, (change,)))


class PlannedKeys(SSHKeyCalls):
    """One row for each key, shown by its fingerprint: no key material is printed."""

    def __init__(self, plan: Plan, pool: CallPool, capability: Any) -> None:
        super().__init__(pool, capability)
        self._plan = plan

    def add(self, user: str, key_data: bytes) -> None:
        """Plan a key."""
        try:
            fingerprint = parse_ssh_public_key(key_data).fingerprint
        except ValueError:
            # The cloud would refuse it; what stands in the file is not printed.
            fingerprint = "(none: it is no public key)"
        change = Change("user", None, user)
        self._plan.record(Row(_KEYS, Subject("SSHKey", fingerprint), "add SSH key", (change,), _MAYBE, certain=False))
