"""What the service controller's calls would do to load balancers, as rows of a plan.

Calls come in place of the gateway's; rows go to the plan. To know what a call would do, the
provider is asked what it has. The targets that a load balancer has are known where our annotation
on the Service gives their digest, which is compared with the nodes that there are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import InvalidService, NotImplementedByProvider, OwnedLoadBalancer
from cloudprovider.helpers import needs_initialization
from controllers.cloudcalls import PRIORITY_NORMAL
from controllers.cloudcalls.capabilities import LoadBalancerCalls
from controllers.cloudcalls.pool import CallPool
from controllers.plan.rows import ASSIGNED_LATER, Change, Kind, Plan, Row, Subject
from controllers.runtime.cache import key_of
from controllers.service.changes import Note, note_of
from controllers.service.targets import targets

JSON = Mapping[str, Any]

_CONTROLLER: Final = "service-lb-controller"
_MAYBE: Final = "may change nothing: only the provider knows"
_UNKNOWN: Final = object()
_KEPT: Final = V1LoadBalancerStatus()
_SMALL: Final = 100  # nodes

Targets = tuple[str, ...] | None
"""Names of nodes; None: not known."""


class PlannedLoadBalancers(LoadBalancerCalls):
    """Load balancers, with what was planned. Thread-safe."""

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
        note = "the cloud shows none" if self._present(cluster_name, service) is None else ""
        with self._lock:
            self._balancers[key_of(service)] = None
        self._plan.record(Row(_CONTROLLER, _subject(service), "delete load balancer", note=note))

    def _ask_whether_refused(self, service: V1Service) -> None:
        try:
            self.check(service)
        except InvalidService as refused:
            row = Row(_CONTROLLER, _subject(service), "refused", note=str(refused), kind=Kind.HELD_BACK)
            self._plan.record(row)
            raise

    def _retarget(self, action: str, service: V1Service, nodes: Sequence[V1Node], note: str, recorded: Targets) -> None:
        wanted = tuple(key_of(node) for node in nodes)
        with self._lock:
            before = self._targets.get(key_of(service), recorded)
            self._targets[key_of(service)] = wanted
        changes = (Change("targets", before, wanted),) if before != wanted else ()
        self._plan.record(Row(_CONTROLLER, _subject(service), action, changes, note, certain=note != _MAYBE))

    def _present(self, cluster_name: str, service: V1Service) -> Any:
        """What the cloud has for this Service: a status, None, or that it cannot tell."""
        try:
            return self.get(cluster_name, service)
        except NotImplementedByProvider:
            return _UNKNOWN

    def _note(self, service: V1Service) -> Note | None:
        """Our annotation, as it was before this run; None where another program built it."""
        raw = self._original(key_of(service))
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
