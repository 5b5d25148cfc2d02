"""The resources of one server, each with its strategy; and the objects that every new cluster has.

Built by `server` at construction.
"""

from __future__ import annotations

from cloudprovider.testing.apiserver.errors import JSON
from cloudprovider.testing.apiserver.kinds import NAME_FIELDS, Kind, Strategy, read
from cloudprovider.testing.apiserver.nodes import NodeStrategy


def kinds(service_cidr: str) -> list[Kind]:
    """All resources, with strategies of their own."""
    return [
        Kind(
            "", "v1", "nodes", "Node", False, NodeStrategy(),
            fields={"metadata.name": NAME_FIELDS["metadata.name"],
                    "spec.unschedulable": read("spec", "unschedulable", default="false")},
            subresources=("status",), short_names=("no",),
        ),
        Kind("", "v1", "services", "Service", True, Strategy(), subresources=("status",), short_names=("svc",)),
        Kind("", "v1", "persistentvolumes", "PersistentVolume", False, Strategy(), subresources=("status",), short_names=("pv",)),
        Kind("", "v1", "events", "Event", True, Strategy(), short_names=("ev",)),
        Kind("", "v1", "namespaces", "Namespace", False, Strategy(), subresources=("status",), short_names=("ns",)),
        Kind("coordination.k8s.io", "v1", "leases", "Lease", True, Strategy()),
    ]  # fmt: skip


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
