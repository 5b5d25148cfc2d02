"""The vendor's capabilities as controllers call them (stage 5, cloud call): typed, and each call
through the gate.

Every method blocks until the answer or the deadline, may be called from many threads, and raises
what the method of the contract raises, and besides: CallOverdue, InvalidAnswer, CallFailed, and for
methods that change the cloud, what the guard raises. A Service, a route destination, a volume is a
key: while an overdue call for it runs, no other one is made, of no method."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus

from cloudprovider import (
    ClientBuilder,
    InformerUser,
    InvalidService,
    Listers,
    LoadBalancer,
    LoadBalancerKept,
    OwnedLoadBalancer,
    OwnedLoadBalancers,
    OwnedResource,
    QuotaExceeded,
    Route,
    StopSignal,
)
from cloudprovider.checks import answers
from cloudprovider.helpers import load_balancer_status_equal
from cloudprovider.internal.cleaning import conceal, text_of
from controllers.cloudcalls.answers import CallFailed, failed, judge
from controllers.cloudcalls.call import PRIORITY_DELETE, PRIORITY_NEW, PRIORITY_NORMAL, PRIORITY_SWEEP, CloudCall
from controllers.cloudcalls.metrics import STRANGER
from controllers.cloudcalls.pool import CallPool
from controllers.runtime.cache import key_of
from controllers.runtime.queue import seconds_text

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume
    from kubernetes.client.models.v1_service import V1Service

log = logging.getLogger(__name__)

R = TypeVar("R")


class _Calls:
    def __init__(self, pool: CallPool, capability: Any) -> None:
        self._pool = pool
        self._capability = capability
        self.slow: Callable[[str, str], None] | None = None
        """See `CloudCall.slow`; for all calls of this capability."""

    def _call(
        self,
        method: str,
        check: Callable[..., R],
        key: str,
        *args: Any,
        mutating: bool = False,
        priority: int = PRIORITY_NORMAL,
        fn: Callable[..., Any] | None = None,
        counted: bool = True,
        former: object = None,
    ) -> R:
        fn = fn or getattr(self._capability, method)
        judged = partial(judge, check, method)
        return self._pool.call(
            CloudCall(method, fn, args, key, judged, mutating, priority, counted=counted, slow=self.slow, former=former)
        )


class ProviderCalls(_Calls):
    """The methods of `Interface` itself."""

    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        """Start the provider. To be called once, before anything else."""
        self._call("initialize", answers.nothing, "provider", client_builder, stop)

    def set_informers(self, informers: Listers) -> bool:
        """Give the host's caches to a provider that wants them; False when it does not."""
        if not isinstance(self._capability, InformerUser):
            return False
        self._call("set_informers", answers.nothing, "provider", informers)
        return True

    def has_cluster_id(self) -> bool:
        """Whether the cloud has the cluster ID that it needs."""
        return self._call("has_cluster_id", answers.flag, "provider")

    def provider_id_prefixes(self) -> tuple[str, ...]:
        """How this provider's IDs begin; empty without provider IDs."""
        return self._call("provider_id_prefixes", answers.texts, "provider")


class LoadBalancerCalls(_Calls):
    """Load balancers. The Service is the key."""

    def get(
        self, cluster_name: str, service: V1Service, *, priority: int = PRIORITY_NORMAL
    ) -> V1LoadBalancerStatus | None:
        """The status; None when the cloud has none."""
        return self._call(
            "get_load_balancer",
            answers.load_balancer_or_none,
            _service_key(service),
            cluster_name,
            service,
            priority=priority,
        )

    def name(self, cluster_name: str, service: V1Service) -> str:
        """The load balancer's name in the cloud."""
        return self._call(
            "get_load_balancer_name", answers.load_balancer_name, _service_key(service), cluster_name, service
        )

    def revision(self) -> str:
        """The word that says how this provider's version builds; see `load_balancer_revision`."""
        return self._call("load_balancer_revision", answers.revision, "load-balancer-revision")

    def depends_on(self, service: V1Service) -> str:
        """What its load balancer depends on besides what the host looks at; see `LoadBalancer`."""
        if not self.has_hook("depends_on"):
            return ""
        return self._call("depends_on", answers.revision, _service_key(service), service, counted=False)

    def target_traits(self, nodes: Sequence[V1Node]) -> list[str | CallFailed]:
        """The same of each of these nodes. One call for all of them, as they do no work."""
        if not self.has_hook("target_traits"):
            return [""] * len(nodes)

        def run(nodes: Sequence[V1Node]) -> list[str | CallFailed]:
            return [self._trait(node) for node in nodes]

        return self._call("target_traits", list, "target-traits", nodes, fn=run, counted=False)

    def _trait(self, node: V1Node) -> str | CallFailed:
        try:
            return judge(answers.revision, "target_traits", self._capability.target_traits(node))
        except Exception as error:  # noqa: BLE001 - vendor boundary: one node's failure is no other's
            return failed(error, "target_traits")

    def has_hook(self, name: str) -> bool:
        """Whether the provider has its own `depends_on`, `target_traits` or `check_service`."""
        default = getattr(LoadBalancer, name)
        return getattr(type(self._capability), name, default) is not default

    @property
    def can_list_owned(self) -> bool:
        """Whether the provider can list what a cluster owns."""
        return isinstance(self._capability, OwnedLoadBalancers)

    def owned(self, cluster_name: str) -> tuple[OwnedLoadBalancer, ...]:
        """Every load balancer of the cluster, where `can_list_owned`. A junk item fails it."""
        check = answers.owned_load_balancers
        return self._call("owned_load_balancers", check, "load-balancers", cluster_name, priority=PRIORITY_SWEEP)

    def delete_owned(self, cluster_name: str, owned: OwnedLoadBalancer) -> None:
        """Delete one that `owned` listed, a kept one too. Raises as `ensure_deleted`."""
        method, check = "delete_owned_load_balancer", answers.nothing
        key = f"service/{owned.service}" if owned.service else f"load-balancer/{owned.name}"
        try:
            self._call(method, check, key, cluster_name, owned, mutating=True, priority=PRIORITY_DELETE)
        except (InvalidService, QuotaExceeded) as error:
            raise CallFailed(f"the provider's {method} failed: {error}") from error

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
        """Create or repair it, unless the provider's `check_service` refuses the Service. Use
        PRIORITY_NEW where there is none: it is logged as built then. `began`: when it was first
        called for the same (`clock.monotonic`), and `former`: as it was last built, as far as is
        known; both here and below."""
        key, check, method = _service_key(service), answers.load_balancer_status, "ensure_load_balancer"
        began = self._pool.clock.monotonic() if began is None else began
        names: list[str] = []
        fn = self._and_name(self._checked, names)
        given = cluster_name, service, nodes
        status = self._call(method, check, key, *given, mutating=True, priority=priority, fn=fn, former=former)
        before = service.status.load_balancer if service.status is not None else None
        same = load_balancer_status_equal(before, status)
        if priority != PRIORITY_SWEEP or not same:  # a check that found all well is not worth a line
            there = before is not None and before.ingress and priority != PRIORITY_NEW
            done = "changed" if there else "built"
            self._tell(done, service, began, _addresses(status), names)
        return status

    def check(self, service: V1Service) -> None:
        """Raise InvalidService for what the provider would refuse. `ensure` does so by itself."""
        self._call("check_service", answers.nothing, _service_key(service), service, fn=self._check, counted=False)

    def _check(self, service: V1Service) -> object:
        return self._capability.check_service(service) if self.has_hook("check_service") else None

    def _checked(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> Any:
        judge(answers.nothing, "check_service", self._check(service))
        return self._capability.ensure_load_balancer(cluster_name, service, nodes)

    def update(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node], *, began: float | None = None
    ) -> None:
        """Set its targets."""
        key, check = _service_key(service), answers.nothing
        began = self._pool.clock.monotonic() if began is None else began
        self._call("update_load_balancer", check, key, cluster_name, service, nodes, mutating=True)
        self._tell("changed", service, began, f"targets for {len(nodes)} nodes")

    def ensure_deleted(
        self, cluster_name: str, service: V1Service, *, began: float | None = None, former: V1Service | None = None
    ) -> None:
        """Delete it. Returning means that the cloud confirmed; LoadBalancerKept, that it stays."""
        key, check = _service_key(service), answers.nothing
        began = self._pool.clock.monotonic() if began is None else began
        method = "ensure_load_balancer_deleted"
        names: list[str] = []
        try:
            fn = self._and_name(self._capability.ensure_load_balancer_deleted, names)
            given = cluster_name, service
            self._call(method, check, key, *given, mutating=True, priority=PRIORITY_DELETE, fn=fn, former=former)
        except (InvalidService, QuotaExceeded) as error:  # a deletion never waits for the Service's owner
            raise CallFailed(f"the provider's {method} failed: {error}") from error
        except LoadBalancerKept as kept:
            self._tell("kept", service, began, str(kept), names)
            raise
        self._tell("deleted", service, began, "", names)

    def _and_name(self, call: Callable[..., R], names: list[str]) -> Callable[..., R]:
        """The call, and in the same thread of the provider, before it, the load balancer's name,
        for the log alone."""

        def run(cluster_name: str, service: V1Service, *rest: Any) -> R:
            try:
                names.append(text_of(self._capability.get_load_balancer_name(cluster_name, service)))
            except Exception as error:  # noqa: BLE001 - vendor boundary: a line without the name is no harm
                log.debug("the name of the load balancer of Service %s: %s", key_of(service), text_of(error))
            return call(cluster_name, service, *rest)

        return run

    def _tell(self, done: str, service: V1Service, began: float, what: str, names: Sequence[str] = ()) -> None:
        """One line for each load balancer that was built, changed or deleted."""
        seconds = self._pool.clock.monotonic() - began
        log.info(
            "%s the load balancer %sof Service %s in %s%s",
            done,
            f"{names[0]} " if names else "",
            key_of(service),
            seconds_text(seconds),
            f": {what}" if what else "",
            extra={"service": key_of(service), "provider": self._pool.provider, "duration": round(seconds, 3)},
        )


class RouteCalls(_Calls):
    """Routes. A destination is a key, and so is the list."""

    def __init__(self, pool: CallPool, capability: Any, prefixes: Callable[[], Sequence[str]]) -> None:
        super().__init__(pool, capability)
        self._prefixes = prefixes

    def list(self, cluster_name: str, *, priority: int = PRIORITY_NORMAL) -> tuple[Route, ...]:
        """Every route of the cluster. Never a part: a junk item fails the whole."""
        check = partial(answers.routes, prefixes=self._prefixes())
        return self._call("list_routes", check, f"routes/{cluster_name}", cluster_name, priority=priority)

    def create(self, cluster_name: str, name_hint: str, route: Route, *, priority: int = PRIORITY_NORMAL) -> None:
        """Create a route."""
        key = f"route/{route.destination_cidr}"
        self._call(
            "create_route", answers.nothing, key, cluster_name, name_hint, route, mutating=True, priority=priority
        )

    def delete(self, cluster_name: str, route: Route, *, priority: int = PRIORITY_DELETE) -> None:
        """Delete a route, as `list` gave it."""
        key = f"route/{route.destination_cidr}"
        self._call("delete_route", answers.nothing, key, cluster_name, route, mutating=True, priority=priority)


class ResourceCalls(_Calls):
    """What else a cluster owns in the cloud. A resource is a key, and so is the list."""

    def list(self, cluster_name: str) -> tuple[OwnedResource, ...]:
        """Everything else of the cluster. A junk item fails it."""
        check = answers.owned_resources
        return self._call("list_owned_resources", check, "resources", cluster_name, priority=PRIORITY_SWEEP)

    def delete(self, cluster_name: str, resource: OwnedResource) -> None:
        """Delete one, as `list` gave it."""
        key = f"resource/{resource.kind}/{resource.id}"
        method, check = "delete_owned_resource", answers.nothing
        self._call(method, check, key, cluster_name, resource, mutating=True, priority=PRIORITY_DELETE)


class PVLabelerCalls(_Calls):
    """Labels of volumes. The volume is the key."""

    def labels(
        self, pv: V1PersistentVolume, *, priority: int = PRIORITY_NORMAL, admission: bool = False
    ) -> dict[str, str]:
        """The labels that the volume should carry. `admission`: not stored, maybe invented."""
        key = f"{STRANGER if admission else ''}persistentvolume/{key_of(pv)}"
        return self._call("get_labels_for_volume", answers.labels, key, pv, priority=priority)


class SSHKeyCalls(_Calls):
    """Who may log in on the machines. One key of the gate: installed one by one."""

    def add(self, user: str, key_data: bytes) -> None:
        """Let a user log in on all instances. This process never shows the key."""
        conceal([key_data.partition(b" ")[2].decode("ascii", "replace")])
        method = "add_ssh_key_to_all_instances"
        self._call(method, answers.nothing, "ssh-keys", user, key_data, mutating=True)


def _addresses(status: V1LoadBalancerStatus) -> str:
    return ", ".join(str(point.ip or point.hostname) for point in status.ingress or ()) or "no address yet"


def _service_key(service: V1Service) -> str:
    return f"service/{key_of(service)}"
