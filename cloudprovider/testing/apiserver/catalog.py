"""The resources of one server, each with its strategy; and the objects that every new cluster has.

Built by `server` at construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cloudprovider.testing.apiserver import events, eventviews, secrets, services, webhooks
from cloudprovider.testing.apiserver.configmaps import ConfigMapStrategy
from cloudprovider.testing.apiserver.errors import JSON
from cloudprovider.testing.apiserver.events import EventStrategy
from cloudprovider.testing.apiserver.eventviews import EventViewStrategy
from cloudprovider.testing.apiserver.kinds import NAME_FIELDS, FieldGetter, Kind, Strategy, read
from cloudprovider.testing.apiserver.leases import LeaseStrategy
from cloudprovider.testing.apiserver.namespaces import NamespaceStrategy
from cloudprovider.testing.apiserver.nodes import NodeStrategy
from cloudprovider.testing.apiserver.secrets import SecretStrategy
from cloudprovider.testing.apiserver.serviceaccounts import ServiceAccountStrategy
from cloudprovider.testing.apiserver.services import ServiceStrategy
from cloudprovider.testing.apiserver.volumes import VolumeStrategy
from cloudprovider.testing.apiserver.webhookconfigs import WebhookConfigStrategy

NODE_FIELDS: Final[Mapping[str, FieldGetter]] = {
    "metadata.name": NAME_FIELDS["metadata.name"],
    "spec.unschedulable": read("spec", "unschedulable", default="false"),
}
NAMESPACE_FIELDS: Final[Mapping[str, FieldGetter]] = {
    "metadata.name": NAME_FIELDS["metadata.name"],
    "status.phase": read("status", "phase"),
}


def kinds(service_cidr: str) -> list[Kind]:
    """All resources, with strategies of their own."""
    status = ("status",)
    reading = ("get", "list")
    return [
        Kind("", "v1", "nodes", "Node", False, NodeStrategy(), NODE_FIELDS, status, ("no",)),
        Kind("", "v1", "services", "Service", True, ServiceStrategy(service_cidr), services.FIELDS, status, ("svc",)),
        Kind("", "v1", "persistentvolumes", "PersistentVolume", False, VolumeStrategy(), NAME_FIELDS, status, ("pv",)),
        Kind("", "v1", "events", "Event", True, EventStrategy(), events.FIELDS, (), ("ev",)),
        Kind(
            "",
            "v1",
            "namespaces",
            "Namespace",
            False,
            NamespaceStrategy(),
            NAMESPACE_FIELDS,
            ("status", "finalize"),
            ("ns",),
        ),
        Kind(
            "",
            "v1",
            "serviceaccounts",
            "ServiceAccount",
            True,
            ServiceAccountStrategy(),
            NAME_FIELDS,
            ("token",),
            ("sa",),
        ),
        Kind("", "v1", "configmaps", "ConfigMap", True, ConfigMapStrategy(), NAME_FIELDS, (), ("cm",)),
        Kind("", "v1", "secrets", "Secret", True, SecretStrategy(), secrets.FIELDS),
        Kind("coordination.k8s.io", "v1", "leases", "Lease", True, LeaseStrategy()),
        Kind(
            eventviews.GROUP,
            "v1",
            "events",
            "Event",
            True,
            EventViewStrategy(),
            eventviews.FIELDS,
            (),
            ("ev",),
            type_name="EventsEvent",
            view=eventviews.VIEW,
        ),
        *(
            Kind(webhooks.GROUP, "v1", plural, kind, False, WebhookConfigStrategy(mutating=plural == webhooks.MUTATING))
            for plural, kind in (
                (webhooks.MUTATING, "MutatingWebhookConfiguration"),
                (webhooks.VALIDATING, "ValidatingWebhookConfiguration"),
            )
        ),
        # Nothing can be created of these, so their lists are empty; kubectl describe asks for them.
        Kind("", "v1", "pods", "Pod", True, Strategy(), NAME_FIELDS, (), ("po",), reading),
        Kind(
            "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True, Strategy(), NAME_FIELDS, (), (), reading
        ),
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
