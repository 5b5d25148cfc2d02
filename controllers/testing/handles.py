"""One Node or Service of the cluster under test: what it is now, read at each look, and what its
kubelet, kube-controller-manager or its users do to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic

from attrs import frozen
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service

from cloudprovider.testing.objects import ready_condition
from cloudprovider.wellknown import TAINT_EXTERNAL_CLOUD_PROVIDER, TAINT_NODE_NOT_READY
from controllers.runtime.api import MERGE_PATCH, STRATEGIC_PATCH, Conflict, NotFound, RestClient
from controllers.runtime.cache import Resource, T

JSON = dict[str, Any]
CLUSTER_CIDR: Final = "10.244.0.0/16"
"""Where nodes get their pod CIDRs from."""
_TRIES: Final = 10  # times that a write is repeated after another program's


@frozen
class Event:
    """An Event about an object."""

    type: str
    """Normal or Warning."""
    reason: str
    message: str
    count: int
    source: str
    """The component that wrote it."""

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.type} {self.reason}{times}: {self.message}"


class _Handle(Generic[T]):
    """An object by its name: it need not exist yet, and may be another one later."""

    def __init__(self, rest: RestClient, resource: Resource[T], name: str, namespace: str = "") -> None:
        self._rest = rest
        self._resource = resource
        self.name = name
        self.namespace = namespace
        self._path = resource.path(namespace or None, name)

    def __repr__(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self._resource.kind} {place}{self.name}"

    @property
    def json(self) -> JSON:
        """The object as the API server holds it now. Raises LookupError when there is none."""
        try:
            found: JSON = self._rest.get(self._path)
        except NotFound as error:
            raise LookupError(f"there is no {self!r}") from error
        return found

    @property
    def object(self) -> T:
        """The same as the official client's model. Raises LookupError when there is none."""
        # A newer API server has fields that this version of the client does not know.
        return self._resource.model.model_validate(self.json, extra="ignore")

    @property
    def exists(self) -> bool:
        """Whether it is there, also if it is being deleted."""
        try:
            return bool(self.json)
        except LookupError:
            return False

    @property
    def uid(self) -> str:
        """Another object of the same name has another one."""
        return str(self.json["metadata"]["uid"])

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return dict(self.json["metadata"].get("labels") or {})

    @property
    def annotations(self) -> dict[str, str]:
        """Its annotations."""
        return dict(self.json["metadata"].get("annotations") or {})

    @property
    def finalizers(self) -> list[str]:
        """What must be done before a deletion is carried out."""
        return list(self.json["metadata"].get("finalizers") or [])

    def patch(self, body: Mapping[str, Any]) -> None:
        """Change it by a JSON merge patch, as a person would: `{"metadata": {"annotations": {"a":
        "b"}}}`."""
        self._rest.request("PATCH", self._path, body=dict(body), content_type=MERGE_PATCH)

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Set annotations; None removes one."""
        self.patch({"metadata": {"annotations": dict(annotations)}})

    def label(self, labels: Mapping[str, str | None]) -> None:
        """Set labels; None removes one."""
        self.patch({"metadata": {"labels": dict(labels)}})

    def delete(self) -> None:
        """Delete it; with finalizers it stays until they are gone. Nothing happens if there is
        none."""
        try:
            self._rest.request("DELETE", self._path)
        except NotFound:
            return


class NodeHandle(_Handle[V1Node]):
    """A Node, and what its kubelet and kube-controller-manager do. Properties raise LookupError
    when there is none."""

    @property
    def provider_id(self) -> str:
        """`spec.providerID`; "" while it has none."""
        return str(self.json["spec"].get("providerID") or "")

    @property
    def addresses(self) -> list[tuple[str, str]]:
        """(type, address) pairs of its status."""
        return [(one["type"], one["address"]) for one in self.json.get("status", {}).get("addresses") or ()]

    @property
    def taints(self) -> dict[str, str]:
        """Effects by key."""
        return {one["key"]: one["effect"] for one in self.json["spec"].get("taints") or ()}

    @property
    def conditions(self) -> dict[str, str]:
        """Status ("True", "False", "Unknown") by type."""
        return {one["type"]: one["status"] for one in self.json.get("status", {}).get("conditions") or ()}

    @property
    def is_initialized(self) -> bool:
        """Whether the cloud-node-controller has removed the uninitialized taint."""
        return TAINT_EXTERNAL_CLOUD_PROVIDER not in self.taints

    @property
    def is_ready(self) -> bool:
        """Whether its kubelet reports."""
        return self.conditions.get("Ready") == "True"

    def mark_ready(self) -> None:
        """Its kubelet reports again, and kube-controller-manager removes the taint not-ready."""
        self._report(ready=True)
        self._without_taint(TAINT_NODE_NOT_READY)

    def mark_not_ready(self) -> None:
        """Its kubelet is silent, as when the machine is off or gone; only then the cloud is asked
        whether it is."""
        self._report(ready=False)

    def _report(self, *, ready: bool) -> None:
        body = {"status": {"conditions": [ready_condition(ready)]}}
        self._rest.request("PATCH", f"{self._path}/status", body=body, content_type=STRATEGIC_PATCH)

    def _without_taint(self, key: str) -> None:
        """Taints are one atomic list, which the manager writes too."""
        # The manager writes taints at the same moment, as it initialises the node.
        for last in (*[False] * (_TRIES - 1), True):
            node = self.json
            taints = node["spec"].get("taints") or []
            left = [taint for taint in taints if taint["key"] != key]
            if left == taints:
                return
            version = node["metadata"]["resourceVersion"]
            try:
                self.patch({"metadata": {"resourceVersion": version}, "spec": {"taints": left}})
            except Conflict:
                if last:
                    raise
                continue
            return


class ServiceHandle(_Handle[V1Service]):
    """A Service. Properties raise LookupError when there is none."""

    @property
    def addresses(self) -> list[str]:
        """IP addresses and hostnames of its load balancer, as `status.loadBalancer.ingress` shows
        them."""
        ingress = self.json.get("status", {}).get("loadBalancer", {}).get("ingress") or ()
        return [one.get("ip") or one.get("hostname") or "" for one in ingress]
