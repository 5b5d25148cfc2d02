"""Services and nodes for these tests, and a cloud and an API server that are dicts."""

from __future__ import annotations

import copy
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import CloudProviderError, ImplementedElsewhere, OwnedLoadBalancer
from cloudprovider.wellknown import LABEL_EXCLUDE_BALANCERS, LOAD_BALANCER_CLEANUP_FINALIZER
from controllers.runtime.api import from_status
from controllers.runtime.cache import NODES, SERVICES, key_of, uid_of
from controllers.runtime.write import to_json
from controllers.service.changes import APPLIED
from controllers.service.targets import describe

FINALIZER = LOAD_BALANCER_CLEANUP_FINALIZER
DELETED_AT = "2026-01-02T03:04:05Z"
CLUSTER = "prod"

Raw = dict[str, Any]


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


def strategic(target: Any, patch: Raw) -> Raw:
    """Strategic merge, as far as Services need it: maps are merged, finalizers are a set, other lists are replaced."""
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        directive, slash, name = key.partition("/")
        if slash and directive == "$deleteFromPrimitiveList":
            result[name] = [item for item in result.get(name) or () if item not in value]
        elif value is None:
            result.pop(key, None)
        elif key == "finalizers":
            result[key] = [*(result.get(key) or ()), *(item for item in value if item not in (result.get(key) or ()))]
        elif isinstance(value, dict):
            result[key] = strategic(result.get(key), value)
        else:
            result[key] = value
    return result


class Crash(BaseException):
    """The process dies here."""


@frozen
class Fault:
    """The next call raises `error`, before or after it had its effect."""

    error: BaseException
    after: bool = False


class _Answer:
    def __init__(self, body: Raw) -> None:
        self._body = body

    def json(self) -> Raw:
        return copy.deepcopy(self._body)


@define
class Server:
    """The API server's Services and nodes, as a RestClient shows them. Every change goes into `log`."""

    services: dict[str, Raw] = field(factory=dict)
    nodes: dict[str, Raw] = field(factory=dict)
    log: deque[tuple[str, str, Raw | None]] = field(factory=deque)
    patches: list[tuple[str, Raw]] = field(factory=list)
    """What was written, those without effect too: (path after the namespace, body)."""
    lists: list[tuple[str, Mapping[str, str]]] = field(factory=list)
    faults: deque[Fault] = field(factory=deque)
    version: int = 100

    # ---- as people and other controllers use it

    def put(self, raw: Raw) -> None:
        """Create or replace a Service or node."""
        raw = copy.deepcopy(raw)
        metadata = raw["metadata"]
        kept = self.services if "namespace" in metadata else self.nodes
        key = f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else metadata["name"]
        self._store(kept, key, raw)

    def edit(self, key: str, change: Callable[[Raw], object]) -> None:
        """Change a Service or node in place."""
        kept = self.services if "/" in key else self.nodes
        raw = copy.deepcopy(kept[key])
        change(raw)
        if raw != kept[key]:
            self._store(kept, key, raw)

    def set_type(self, key: str, type: str) -> None:
        """As the API server does it: a Service that is no LoadBalancer has no such status."""

        def change(raw: Raw) -> None:
            raw["spec"]["type"] = type
            if type != "LoadBalancer":
                raw["status"]["loadBalancer"] = {}

        self.edit(key, change)

    def delete(self, key: str) -> None:
        """As a user deletes: finalizers hold it."""
        if "/" not in key:
            self._store(self.nodes, key, None)
            return
        self.edit(key, lambda raw: raw["metadata"].update(deletionTimestamp=DELETED_AT))

    def _store(self, kept: dict[str, Raw], key: str, raw: Raw | None) -> None:
        self.version += 1
        if raw is not None:
            raw["metadata"]["resourceVersion"] = str(self.version)
            if raw["metadata"].get("deletionTimestamp") and not raw["metadata"].get("finalizers"):
                raw = None
        if raw is None:
            kept.pop(key, None)
        else:
            kept[key] = raw
        self.log.append(("services" if kept is self.services else "nodes", key, copy.deepcopy(raw)))

    # ---- as the controller uses it

    def get(self, path: str, *, query: Mapping[str, str], **_: Any) -> Raw:
        self.lists.append((path, query))
        fault = self.faults.popleft() if self.faults else None
        if fault is not None:
            raise fault.error
        kept = self.nodes if path == NODES.path() else self.services
        wanted = query.get("fieldSelector", "").removeprefix("metadata.name=")
        items = [raw for raw in kept.values() if not wanted or raw["metadata"]["name"] == wanted]
        return {"items": copy.deepcopy(items)}

    def request(self, method: str, path: str, *, body: Raw, content_type: str, **_: Any) -> _Answer:
        assert method == "PATCH"
        assert content_type == "application/strategic-merge-patch+json"
        namespace, _plural, name, *subresource = path.partition("/namespaces/")[2].split("/")
        self.patches.append(("/".join([name, *subresource]), copy.deepcopy(body)))
        fault = self.faults.popleft() if self.faults else None
        if fault is not None and not fault.after:
            raise fault.error
        answer = self._patch(f"{namespace}/{name}", name, "status" in subresource, body, path)
        if fault is not None:
            raise fault.error
        return _Answer(answer)

    def _patch(self, key: str, name: str, status: bool, body: Raw, path: str) -> Raw:
        old = self.services.get(key)
        if old is None:
            raise _refused(404, "NotFound", path, {"name": name, "kind": "services"})
        if body.get("metadata", {}).get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise _refused(422, "Invalid", path, {"causes": [{"field": "metadata.uid"}]})
        new = strategic(copy.deepcopy(old), body)
        new = {**new, "spec": old["spec"]} if status else {**new, "status": old["status"]}
        added = set(new["metadata"]["finalizers"]) - set(old["metadata"]["finalizers"])
        if added and old["metadata"].get("deletionTimestamp"):
            raise _refused(422, "Invalid", path, {"causes": [{"field": "metadata.finalizers"}]})
        if new != old:
            self._store(self.services, key, new)
        return new


def _refused(status: int, reason: str, path: str, details: Raw) -> Exception:
    body = {"kind": "Status", "reason": reason, "code": status, "details": details}
    return from_status(status, {}, json.dumps(body).encode(), method="PATCH", path=path)


@define
class Balancer:
    """A load balancer in the cloud."""

    key: str
    uid: str
    content: Raw
    nodes: list[str]
    status: V1LoadBalancerStatus


def content_of(service: V1Service) -> Raw:
    """What this cloud builds from a Service: all that it can see of it."""
    assert service.spec is not None
    assert service.metadata is not None
    annotations = {k: v for k, v in (service.metadata.annotations or {}).items() if k != APPLIED}
    return {**to_json(service.spec), "annotations": annotations}


@define
class Cloud:
    """Stands in for LoadBalancerCalls. `fail` names methods that raise; `faults` befall the next calls."""

    balancers: dict[str, Balancer] = field(factory=dict)
    """By the Service's UID."""
    calls: list[tuple[str, str]] = field(factory=list)
    priorities: list[int] = field(factory=list)
    given: list[V1Service] = field(factory=list)
    """The Services that the calls were made with."""
    fail: dict[str, Exception] = field(factory=dict)
    faults: deque[Fault] = field(factory=deque)
    elsewhere: set[str] = field(factory=set)
    revisions: list[str] = field(factory=lambda: ["r1"])
    owned_answer: Sequence[OwnedLoadBalancer] | Exception = ()
    can_list_owned: bool = True
    during: Callable[[str, V1Service], object] = field(default=lambda method, service: None)
    unfinished: bool = False
    outdated: V1LoadBalancerStatus | None = None
    """What `get` shows where nothing is: a list in the cloud that lags behind."""

    def _enter(self, method: str, cluster: str, service: V1Service, priority: int = 0) -> Fault | None:
        assert cluster == CLUSTER
        self.calls.append((method, key_of(service)))
        self.priorities.append(priority)
        self.given.append(service)
        self.during(method, service)
        if method in self.fail:
            raise self.fail[method]
        fault = self.faults.popleft() if self.faults else None
        if fault is not None and not fault.after:
            raise fault.error
        return fault

    def _leave(self, fault: Fault | None) -> None:
        if fault is not None:
            raise fault.error

    def revision(self) -> str:
        return self.revisions[-1]

    def owned(self, cluster_name: str) -> Sequence[OwnedLoadBalancer]:
        assert cluster_name == CLUSTER
        if isinstance(self.owned_answer, Exception):
            raise self.owned_answer
        return self.owned_answer

    def get(self, cluster_name: str, service: V1Service, *, priority: int = 0) -> V1LoadBalancerStatus | None:
        fault = self._enter("get", cluster_name, service, priority)
        self._leave(fault)
        found = self.balancers.get(uid_of(service))
        return self.outdated if found is None else found.status

    def ensure(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node], *, priority: int = 0
    ) -> V1LoadBalancerStatus:
        fault = self._enter("ensure", cluster_name, service, priority)
        if key_of(service) in self.elsewhere:
            raise ImplementedElsewhere("not mine")
        uid, content = uid_of(service), content_of(service)
        ip = content.get("loadBalancerIP") or f"192.0.2.{sum(uid.encode()) % 250}"
        points = [] if self.unfinished else [{"ip": ip, "ipMode": "VIP"}]
        status = V1LoadBalancerStatus.from_dict({"ingress": points})
        assert status is not None
        self.balancers[uid] = Balancer(key_of(service), uid, content, [*map(describe, nodes)], status)
        self._leave(fault)
        return status

    def update(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node], *, priority: int = 0) -> None:
        fault = self._enter("update", cluster_name, service, priority)
        if key_of(service) in self.elsewhere:
            raise ImplementedElsewhere("not mine")
        found = self.balancers.get(uid_of(service))
        if found is None:
            raise CloudProviderError("there is no such load balancer")
        found.nodes = [*map(describe, nodes)]
        self._leave(fault)

    def ensure_deleted(self, cluster_name: str, service: V1Service, *, priority: int = 0) -> None:
        fault = self._enter("delete", cluster_name, service, priority)
        self.balancers.pop(uid_of(service), None)
        self._leave(fault)

    def count(self, method: str) -> int:
        return sum(called == method for called, _ in self.calls)

    def writes(self) -> int:
        return sum(called != "get" for called, _ in self.calls)

    def methods(self) -> list[str]:
        return [called for called, _ in self.calls]
