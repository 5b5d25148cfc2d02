"""The resources of one server, each with its strategy; and the objects that every new cluster has.

Nodes, Services, Events and Leases keep the real server's rules. Of CertificateSigningRequests the
server says who sent one, and which path changes what; what a kubelet or an approver writes there is
not checked. PersistentVolumes, Namespaces, ServiceAccounts, ConfigMaps, Secrets and EndpointSlices
are stored as they come: of them only the metadata is checked. Built by `server` at construction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from cloudprovider.testing.apiserver.access import User
from cloudprovider.testing.apiserver.errors import JSON, Cause, invalid_value
from cloudprovider.testing.apiserver.kinds import services
from cloudprovider.testing.apiserver.kinds.kind import NAME_FIELDS, FieldGetter, Kind, Strategy, read, take
from cloudprovider.testing.apiserver.kinds.names import dns_subdomain
from cloudprovider.testing.apiserver.kinds.nodes import NodeStrategy
from cloudprovider.testing.apiserver.kinds.schema import format_time, struct
from cloudprovider.testing.apiserver.kinds.services import ServiceStrategy

NODE_FIELDS: Final[Mapping[str, FieldGetter]] = {
    "metadata.name": NAME_FIELDS["metadata.name"],
    "spec.unschedulable": read("spec", "unschedulable", default="false"),
}


def _source(obj: JSON) -> str:
    return str(obj.get("source", {}).get("component") or obj.get("reportingComponent") or "")


_EVENT_FIELDS: Final[Mapping[str, FieldGetter]] = {
    **NAME_FIELDS,
    "involvedObject.kind": read("involvedObject", "kind"),
    "involvedObject.namespace": read("involvedObject", "namespace"),
    "involvedObject.name": read("involvedObject", "name"),
    "involvedObject.uid": read("involvedObject", "uid"),
    "involvedObject.apiVersion": read("involvedObject", "apiVersion"),
    "involvedObject.resourceVersion": read("involvedObject", "resourceVersion"),
    "involvedObject.fieldPath": read("involvedObject", "fieldPath"),
    "reason": read("reason"),
    "reportingComponent": read("reportingComponent"),
    "source": _source,
    "type": read("type"),
}


class EventStrategy(Strategy):
    """Rules of events: there is no status, a PUT may create. They are kept until they are deleted,
    which the real server does after an hour. Follows pkg/apis/core/validation/events.go."""

    allow_create_on_update = True
    has_core_metadata = False

    def prepare_update(self, obj: JSON, old: JSON) -> None:
        """Nothing to keep."""

    def validate(self, obj: JSON) -> list[Cause]:
        """The namespaces must agree. Events with an eventTime, which no cloud controller writes,
        are not checked."""
        involved = obj["involvedObject"].get("namespace", "")
        # Events about nodes, which have no namespace, belong into "default".
        if obj.get("eventTime") is not None or obj["metadata"]["namespace"] == (involved or "default"):
            return []
        return [invalid_value("involvedObject.namespace", involved, "does not match event.namespace")]


class LeaseStrategy(Strategy):
    """Rules of leases: there is no status, a PUT must carry a resourceVersion, and may create.
    Follows pkg/apis/coordination/validation and pkg/registry/coordination/lease of
    k8s.io/kubernetes, with the feature gates' defaults."""

    allow_create_on_update = True
    has_core_metadata = False
    allow_unconditional_update = False

    def prepare_create(self, obj: JSON) -> None:
        """Drop the fields of CoordinatedLeaderElection, which is off by default."""
        gated = ("strategy", "preferredHolder")
        obj["spec"] = {name: value for name, value in obj["spec"].items() if name not in gated}

    def prepare_update(self, obj: JSON, old: JSON) -> None:
        """The same."""
        self.prepare_create(obj)

    def validate(self, obj: JSON) -> list[Cause]:
        """Durations and counters."""
        spec = obj["spec"]
        causes: list[Cause] = []
        duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        if duration is not None and duration <= 0:
            causes.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        if transitions is not None and transitions < 0:
            causes.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
        return causes

    def validate_name(self, name: str) -> list[str]:
        """A DNS subdomain."""
        return dns_subdomain(name)


class CertificateRequestStrategy(Strategy):
    """Rules of CertificateSigningRequests, as pkg/registry/certificates/certificates/strategy.go has
    them. Nobody signs here: a test writes `status.certificate` itself."""

    def sent_by(self, obj: JSON, user: User) -> None:
        """The spec says who created it, whatever the body said: approvers believe it."""
        given = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": {}}
        # Else a client could say that it is the kubelet of another node.
        spec = {name: value for name, value in obj["spec"].items() if name not in given}
        obj["spec"] = {**spec, **{name: value for name, value in given.items() if value}}

    def prepare_create(self, obj: JSON) -> None:
        """Nobody creates an approved one."""
        obj["status"] = {}

    def prepare_update(self, obj: JSON, old: JSON) -> None:
        """Only the metadata changes."""
        take(obj, old, "spec")
        take(obj, old, "status")

    def prepare_approval(self, obj: JSON, old: JSON) -> None:
        """Only the conditions change."""
        conditions = _stamped(obj["status"].get("conditions") or (), old["status"].get("conditions") or ())
        self.prepare_update(obj, old)
        obj["status"] = {**obj["status"], "conditions": conditions}


def _stamped(conditions: Sequence[JSON], old: Sequence[JSON]) -> list[JSON]:
    """The conditions, each with its times: now, or the former ones of the same status."""
    now = format_time(datetime.now(UTC))
    found = []
    for one in conditions:
        former = [each for each in old if (each["type"], each["status"]) == (one["type"], one["status"])]
        # The same status again is no transition.
        since = next((each["lastTransitionTime"] for each in former if each.get("lastTransitionTime")), now)
        times = {"lastUpdateTime": one.get("lastUpdateTime") or now}
        found.append({**one, **times, "lastTransitionTime": one.get("lastTransitionTime") or since})
    return found


class OpenStrategy(Strategy):
    """Objects that are stored as they come, status and all."""

    returns_deleted_object = True

    def prepare_update(self, obj: JSON, old: JSON) -> None:
        """Everything may change."""

    def validate_name(self, name: str) -> list[str]:
        """A DNS subdomain."""
        return dns_subdomain(name)


class SliceStrategy(OpenStrategy):
    """EndpointSlices are answered with a Status when they are deleted."""

    returns_deleted_object = False
    has_core_metadata = False


class VolumeStrategy(OpenStrategy):
    """PersistentVolumes have a status, which is written apart."""

    def prepare_update(self, obj: JSON, old: JSON) -> None:
        """The status stays."""
        Strategy.prepare_update(self, obj, old)


def kinds() -> list[Kind]:
    """All resources, with strategies of their own."""
    status, reading = ("status",), ("get", "list")
    node, service, event, lease = (struct(name) for name in ("Node", "Service", "Event", "Lease"))
    request = struct("CertificateSigningRequest")
    return [
        Kind("", "v1", "nodes", "Node", False, NodeStrategy(), NODE_FIELDS, status, ("no",), struct=node),
        Kind(
            "", "v1", "services", "Service", True, ServiceStrategy(), services.FIELDS, status, ("svc",), struct=service
        ),
        Kind("", "v1", "events", "Event", True, EventStrategy(), _EVENT_FIELDS, (), ("ev",), struct=event),
        Kind("coordination.k8s.io", "v1", "leases", "Lease", True, LeaseStrategy(), struct=lease),
        Kind(
            "certificates.k8s.io",
            "v1",
            "certificatesigningrequests",
            "CertificateSigningRequest",
            False,
            CertificateRequestStrategy(),
            {"metadata.name": NAME_FIELDS["metadata.name"], "spec.signerName": read("spec", "signerName")},
            ("approval", *status),
            ("csr",),
            struct=request,
        ),
        Kind("", "v1", "persistentvolumes", "PersistentVolume", False, VolumeStrategy(), NAME_FIELDS, status, ("pv",)),
        Kind("", "v1", "namespaces", "Namespace", False, OpenStrategy(), NAME_FIELDS, (), ("ns",)),
        Kind("", "v1", "serviceaccounts", "ServiceAccount", True, OpenStrategy(), NAME_FIELDS, ("token",), ("sa",)),
        Kind("", "v1", "configmaps", "ConfigMap", True, OpenStrategy(), NAME_FIELDS, (), ("cm",)),
        Kind("", "v1", "secrets", "Secret", True, OpenStrategy()),
        Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True, SliceStrategy()),
        # Nothing can be created of these, so their list is empty; kubectl describe asks for it.
        Kind("", "v1", "pods", "Pod", True, Strategy(), NAME_FIELDS, (), ("po",), reading),
    ]


def kubernetes_service() -> JSON:
    """The Service by which a cluster reaches its own API server."""
    return {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {"ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}], "type": "ClusterIP"},
    }
