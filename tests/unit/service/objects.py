"""Services and nodes for these tests, and a cloud that is a dict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import CloudProviderError, ImplementedElsewhere, InvalidService, OwnedLoadBalancer
from cloudprovider.helpers import annotations_of
from cloudprovider.wellknown import LABEL_EXCLUDE_BALANCERS, LOAD_BALANCER_CLEANUP_FINALIZER
from controllers.runtime.cache import NODES, SERVICES, key_of, uid_of
from controllers.runtime.write import to_json
from controllers.service.changes import APPLIED
from controllers.service.targets import describe
from tests.support.controllers import DELETED_AT, Calls, Fault, Raw

FINALIZER = LOAD_BALANCER_CLEANUP_FINALIZER
CLUSTER = "prod"


def raw_service(
    name: str = "web",
    *,
    namespace: str = "default",
    uid: str = "",
    version: str = "1",
    type: str = "LoadBalancer",
    port: int = 80,
    finalizers: Sequence[str] = (),
    annotations: Mapping[str, str] | None = None,
    deleted: bool = False,
    ingress: Sequence[Mapping[str, Any]] = (),
    **spec: Any,
) -> Raw:
    metadata: Raw = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "resourceVersion": version,
        "finalizers": list(finalizers),
        "annotations": dict(annotations or {}),
    }
    if deleted:
        metadata["deletionTimestamp"] = DELETED_AT
    return {
        "metadata": metadata,
        "spec": {"type": type, "ports": [{"name": "http", "port": port, "protocol": "TCP"}], **spec},
        "status": {"loadBalancer": {"ingress": [dict(point) for point in ingress]} if ingress else {}},
    }


def service(name: str = "web", **fields: Any) -> V1Service:
    return SERVICES.parse(raw_service(name, **fields))


def raw_node(
    name: str = "n1",
    *addresses: str,
    provider_id: str = "",
    ready: str = "True",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    deleted: bool = False,
    version: str = "1",
) -> Raw:
    metadata: Raw = {"name": name, "uid": f"uid-{name}", "resourceVersion": version, "labels": dict(labels or {})}
    if deleted:
        metadata["deletionTimestamp"] = DELETED_AT
    return {
        "metadata": metadata,
        "spec": {
            "providerID": provider_id or f"fake://{name}",
            "taints": [{"key": key, "effect": "NoSchedule"} for key in taints],
        },
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "addresses": [{"type": "InternalIP", "address": address} for address in addresses],
        },
    }


def node(name: str = "n1", *addresses: str, **fields: Any) -> V1Node:
    return NODES.parse(raw_node(name, *addresses, **fields))


def excluded(name: str) -> Raw:
    return raw_node(name, labels={LABEL_EXCLUDE_BALANCERS: ""})


KIND = "example.com/kind"
"""Annotation: a Service has another load balancer for each value of it."""


SIZE = "example.com/size"


def id_of(service: V1Service) -> str:
    """What tells load balancers in this cloud apart."""
    kind = annotations_of(service).get(KIND)
    return f"{uid_of(service)}/{kind}" if kind else uid_of(service)


@define
class Balancer:
    """A load balancer in the cloud."""

    key: str
    uid: str
    content: Raw
    nodes: list[str]
    status: V1LoadBalancerStatus
    whole: bool = True
    """False: a part of it was deleted by hand, without which targets cannot be set. `get` does not
    show it."""


def content_of(service: V1Service) -> Raw:
    """What this cloud builds from a Service: all that it can see of it."""
    assert service.spec is not None
    assert service.metadata is not None
    annotations = {k: v for k, v in (service.metadata.annotations or {}).items() if k != APPLIED}
    return {**to_json(service.spec), "annotations": annotations}


@define
class Cloud(Calls):
    """Stands in for LoadBalancerCalls."""

    balancers: dict[str, Balancer] = field(factory=dict)
    """By the Service's UID, and its annotation `KIND` if it has one."""
    priorities: list[int] = field(factory=list)
    given: list[V1Service] = field(factory=list)
    """The Services that the calls were made with."""
    elsewhere: set[str] = field(factory=set)
    revisions: list[str] = field(factory=lambda: ["r1"])
    owned_answer: Sequence[OwnedLoadBalancer] | Exception = ()
    can_list_owned: bool = True
    during: Callable[[str, V1Service], object] = field(default=lambda method, service: None)
    hooks: dict[str, Callable[[Any], str | Exception]] = field(factory=dict)
    """The provider's `depends_on` and `target_traits`, of those that it has."""
    unfinished: bool = False
    refused: set[str] = field(factory=set)
    """Values of the annotation SIZE for which nothing is built."""
    named_by_key: bool = False
    """Whether a new Service of the same name would have the same load balancer."""
    began: list[float] = field(factory=list)
    """Since when each call has been asked for."""
    formers: list[V1Service | None] = field(factory=list)
    """As what each of `ensure` and `delete` found the Service to be built last."""
    outdated: V1LoadBalancerStatus | None = None
    """What `get` shows where nothing is: a list in the cloud that lags behind."""

    def _enter(self, method: str, cluster: str, service: V1Service, priority: int = 0) -> Fault | None:
        assert cluster == CLUSTER
        self.priorities.append(priority)
        self.given.append(service)
        self.during(method, service)
        return self.enter(method, key_of(service))

    def revision(self) -> str:
        return self.revisions[-1]

    def owned(self, cluster_name: str) -> Sequence[OwnedLoadBalancer]:
        assert cluster_name == CLUSTER
        if isinstance(self.owned_answer, Exception):
            raise self.owned_answer
        return self.owned_answer

    def get(self, cluster_name: str, service: V1Service, *, priority: int = 0) -> V1LoadBalancerStatus | None:
        self.leave(self._enter("get", cluster_name, service, priority))
        found = self.balancers.get(id_of(service))
        return self.outdated if found is None else found.status

    def ensure(
        self,
        cluster_name: str,
        service: V1Service,
        nodes: Sequence[V1Node],
        *,
        began: float = 0.0,
        priority: int = 0,
        former: V1Service | None = None,
    ) -> V1LoadBalancerStatus:
        self.began.append(began)
        self.formers.append(former)
        fault = self._enter("ensure", cluster_name, service, priority)
        if key_of(service) in self.elsewhere:
            raise ImplementedElsewhere("not mine")
        if (size := annotations_of(service).get(SIZE)) in self.refused:
            raise InvalidService(f"{SIZE}: there is no {size}")
        status = self.build(service, nodes)
        self.leave(fault)
        return status

    def build(self, service: V1Service, nodes: Sequence[V1Node]) -> V1LoadBalancerStatus:
        """What `ensure` does, by anyone."""
        uid, content = uid_of(service), content_of(service)
        ip = content.get("loadBalancerIP") or f"192.0.2.{sum(id_of(service).encode()) % 250}"
        points = [] if self.unfinished else [{"ip": ip, "ipMode": "VIP"}]
        status = V1LoadBalancerStatus.from_dict({"ingress": points})
        assert status is not None
        self.balancers[id_of(service)] = Balancer(key_of(service), uid, content, [*map(describe, nodes)], status)
        return status

    def update(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node], *, began: float) -> None:
        self.began.append(began)
        fault = self._enter("update", cluster_name, service)
        if key_of(service) in self.elsewhere:
            raise ImplementedElsewhere("not mine")
        found = self.balancers.get(id_of(service))
        if found is None:
            raise CloudProviderError("there is no such load balancer")
        if not found.whole:
            raise CloudProviderError("there is no such target pool")
        found.nodes = [*map(describe, nodes)]
        self.leave(fault)

    def ensure_deleted(
        self, cluster_name: str, service: V1Service, *, began: float | None = None, former: V1Service | None = None
    ) -> None:
        self.formers.append(former)
        if began is not None:
            self.began.append(began)
        fault = self._enter("delete", cluster_name, service)
        self.balancers.pop(id_of(service), None)
        self.leave(fault)

    def name(self, cluster_name: str, service: V1Service) -> str:
        assert cluster_name == CLUSTER
        return key_of(service) if self.named_by_key else id_of(service)

    def has_hook(self, name: str) -> bool:
        return name in self.hooks

    def depends_on(self, service: V1Service) -> str:
        answer = self.hooks["depends_on"](service) if "depends_on" in self.hooks else ""
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    def target_traits(self, nodes: Sequence[V1Node]) -> list[str | Exception]:
        return [self.hooks["target_traits"](node) for node in nodes]

    def writes(self) -> int:
        return sum(called != "get" for called, _ in self.calls)
