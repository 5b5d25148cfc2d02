"""The gateway of a plan run: no call changes the cloud; each that would becomes a row of the plan,
and is answered. What was answered shows in later reads.

Made in place of `CloudCalls`, around the same provider. What a provider does by itself, in threads
of its own or when it is initialised, no host can see."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar, cast

from kubernetes.client.models.v1_node import V1Node

from cloudprovider import InstanceState, Interface, Route
from cloudprovider.helpers import parse_ssh_public_key
from controllers.cloudcalls import PRIORITY_DELETE, PRIORITY_NORMAL, CloudCalls
from controllers.cloudcalls.answers import Answer
from controllers.cloudcalls.capabilities import RouteCalls, SSHKeyCalls
from controllers.cloudcalls.pool import CallPool
from controllers.plan.balancers import JSON, PlannedLoadBalancers
from controllers.plan.rows import Change, Plan, Row, Subject
from controllers.runtime.clock import Clock

R = TypeVar("R")

_ROUTES: Final = "node-route-controller"
_KEYS: Final = "ssh-key-controller"


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
            fingerprint = "(none: it is no public key)"
        change, note = Change("user", None, user), "may change nothing: only the provider knows"
        self._plan.record(Row(_KEYS, Subject("SSHKey", fingerprint), "add SSH key", (change,), note, certain=False))
