"""The cloud's stand-in in a dry run: no call changes it; each that would becomes a row of the plan, and is answered.

Calls come from the gateway (`cloudcalls/standin.py`), which never hands over the provider's changing methods; rows go
to the plan. What was answered shows in the next reads: routes in a listing, load balancers in a look. To know what a
call would do to a load balancer, the provider is asked what it has; the targets that it has are known where our
note on the Service tells them (a digest, compared with the nodes that there are).

What a provider does by itself, in threads of its own or when it is initialised, no host can see.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar, cast

from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import InstanceState, Interface, NotImplementedByProvider, OwnedLoadBalancer, Route
from cloudprovider.helpers import parse_ssh_public_key
from controllers.app.dryrun.plan import Change, Plan, Row, Subject
from controllers.runtime.cache import key_of
from controllers.runtime.clock import Clock

__all__ = ["ASSIGNED_LATER", "CloudStandIn"]

R = TypeVar("R")

ASSIGNED_LATER: Final = "assigned-by-the-cloud.invalid"
"""The address of a load balancer that is not there yet."""
_SERVICES: Final = "service-lb-controller"
_ROUTES: Final = "node-route-controller"
_KEYS: Final = "ssh-key-controller"
_MAYBE: Final = "may change nothing: only the provider knows"
_NOT_TOLD: Final = object()
_KEPT: Final = V1LoadBalancerStatus()

Targets = tuple[str, ...] | None
"""Names of nodes; None: not known."""


class CloudStandIn:
    """Implements `controllers.cloudcalls.StandIn`. Thread-safe.

    `built(service)` says whether this program has built the Service's load balancer before, and `targets(service)`
    which nodes it had then, as far as the Service tells.
    """

    def __init__(
        self,
        plan: Plan,
        provider: Interface,
        clock: Clock,
        *,
        built: Callable[[V1Service], bool],
        targets: Callable[[V1Service], Targets],
    ) -> None:
        self._plan = plan
        self._provider = provider
        self._clock = clock
        self._built = built
        self._recorded = targets
        self._lock = threading.Lock()
        self._balancers: dict[str, V1LoadBalancerStatus | None] = {}
        self._actions: dict[str, str] = {}
        self._targets: dict[str, Targets] = {}
        self._created: list[Route] = []
        self._deleted: list[Route] = []
        self._gone: dict[str, list[float]] = {}
        self._known: dict[str, Callable[..., Any]] = {
            "ensure_load_balancer": self._ensure,
            "update_load_balancer": self._update,
            "ensure_load_balancer_deleted": self._delete,
            "create_route": self._create_route,
            "delete_route": self._delete_route,
            "add_ssh_key_to_all_instances": self._add_ssh_key,
        }

    # ---- controllers.cloudcalls.StandIn

    def answer(self, method: str, key: str, args: tuple[Any, ...]) -> Any:
        """Record the call, and answer it."""
        known = self._known.get(method)
        if known is not None:
            return known(key, *args)
        kind, _, name = key.partition("/")
        self._plan.record(Row(controller="", subject=Subject(kind, name or "all"), action=method.replace("_", " ")))
        return None

    def shown(self, method: str, key: str, answer: R) -> R:
        """What a read shows after what was answered."""
        with self._lock:
            if method == "get_load_balancer" and key in self._balancers:
                return cast(R, self._balancers[key])
            if method == "list_routes" and (self._created or self._deleted):
                left = [route for route in cast("Sequence[Route]", answer) if route not in self._deleted]
                return cast(R, (*left, *self._created))
            if method == "owned_load_balancers":
                owned = cast("Sequence[OwnedLoadBalancer]", answer)
                return cast(R, tuple(one for one in owned if self._balancers.get(f"service/{one.service}", _KEPT)))
        return answer

    def stated(self, name: str, state: InstanceState | Exception) -> None:
        """Keep the row of answers "gone" of each node, with their times."""
        with self._lock:
            if state is InstanceState.GONE:
                self._gone.setdefault(name, []).append(self._clock.time())
            else:
                self._gone.pop(name, None)

    def evidence(self, name: str) -> str:
        """What the cloud said of a node's instance."""
        with self._lock:
            times = [datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3] for at in self._gone.get(name, ())]
        if not times:
            return ""
        return f"the cloud said that its instance is gone, {len(times)} times: {', '.join(times)} UTC"

    # ---- load balancers

    def _ensure(self, key: str, cluster: str, service: V1Service, nodes: Sequence[V1Node]) -> V1LoadBalancerStatus:
        present = self._present(key, cluster, service)
        answer = V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(hostname=ASSIGNED_LATER)])
        note = ""
        if present is None:
            action = "create load balancer"
        elif present is not _NOT_TOLD and self._built(service):
            action, answer = "change load balancer", cast(V1LoadBalancerStatus, present)
        else:
            action, note = "ensure load balancer", _MAYBE
            if present is not _NOT_TOLD:
                answer = cast(V1LoadBalancerStatus, present)
            elif service.status is not None and service.status.load_balancer is not None:
                answer = service.status.load_balancer
        with self._lock:
            action = self._actions.setdefault(key, action)
            self._balancers[key] = answer
        self._retarget(key, action, service, nodes, note, None if present is None else self._recorded(service))
        return answer

    def _update(self, key: str, _cluster: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        with self._lock:
            action = self._actions.setdefault(key, "retarget load balancer")
        self._retarget(key, action, service, nodes, "", self._recorded(service))

    def _retarget(
        self, key: str, action: str, service: V1Service, nodes: Sequence[V1Node], note: str, recorded: Targets
    ) -> None:
        wanted = tuple(key_of(node) for node in nodes)
        with self._lock:
            before = self._targets.get(key, recorded)
            self._targets[key] = wanted
        changes = (Change("targets", before, wanted),) if before != wanted else ()
        self._plan.record(
            Row(
                controller=_SERVICES,
                subject=_of(service),
                action=action,
                changes=changes,
                note=note,
                certain=note != _MAYBE,
            )
        )

    def _delete(self, key: str, cluster: str, service: V1Service) -> None:
        present = self._present(key, cluster, service)
        note = "the cloud shows none" if present is None else ""
        with self._lock:
            self._balancers[key] = None
        self._plan.record(Row(controller=_SERVICES, subject=_of(service), action="delete load balancer", note=note))

    def _present(self, key: str, cluster: str, service: V1Service) -> Any:
        """What the cloud has for this Service: a status, None, or that it cannot tell. Raises as the provider."""
        with self._lock:
            if key in self._balancers:
                return self._balancers[key]
        balancers = self._provider.load_balancer()
        if balancers is None:
            return _NOT_TOLD
        try:
            return balancers.get_load_balancer(cluster, service)
        except NotImplementedByProvider:
            return _NOT_TOLD

    # ---- everything else

    def _add_ssh_key(self, _key: str, user: str, key_data: bytes) -> None:
        """A row for each key. Shown by its fingerprint: key material is for nobody's eyes."""
        try:
            fingerprint = parse_ssh_public_key(key_data).fingerprint
        except ValueError:
            fingerprint = "(none: it is no public key)"
        change = Change("user", None, user)
        subject = Subject("SSHKey", fingerprint)
        self._plan.record(
            Row(controller=_KEYS, subject=subject, action="add SSH key", changes=(change,), note=_MAYBE, certain=False)
        )

    # ---- routes

    def _create_route(self, _key: str, _cluster: str, _hint: str, route: Route) -> None:
        with self._lock:
            self._created.append(route)
        self._plan.record(_route_row("create route", route, Change("target", None, route.target_node)))

    def _delete_route(self, _key: str, _cluster: str, route: Route) -> None:
        with self._lock:
            ours = route in self._created
            (self._created.remove if ours else self._deleted.append)(route)
        target = "(none: a blackhole)" if route.blackhole else route.target_node
        action = "create route" if ours else "delete route"  # what this plan creates and deletes is never there
        self._plan.record(_route_row(action, route, Change("target", target, None)))


def _route_row(action: str, route: Route, change: Change) -> Row:
    subject = Subject("Route", route.destination_cidr)
    return Row(controller=_ROUTES, subject=subject, action=action, changes=(change,))


def _of(service: V1Service) -> Subject:
    namespace, _, name = key_of(service).rpartition("/")
    return Subject("Service", name, namespace)
