"""Our manager over the shared cloud: `python -m tests.support.failover.provider --cloud-config=FILE ...`.

The file is JSON: `server`, the cloud's URL, and `caller`, the name of this manager in the cloud's journal. The Go
manager reads the same file (`tests/bench/goccm/remote.go`).
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cloudprovider import (
    CloudConfig,
    CloudProviderError,
    InstanceMetadata,
    InstanceNotFound,
    InstancesBatch,
    InstanceState,
    InstancesV2,
    Interface,
    LoadBalancer,
    Route,
    Routes,
    register_cloud_provider,
)

if TYPE_CHECKING:
    from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_service import V1Service

NAME = "bench"
_TIMEOUT = 30.0

JSON = dict[str, Any]


class RemoteCloud(Interface, InstancesV2, InstancesBatch, LoadBalancer, Routes):
    """Every call is one request; a connection for each thread."""

    def __init__(self, server: str, caller: str) -> None:
        self._address = urllib.parse.urlsplit(server).netloc
        self._caller = caller
        self._local = threading.local()

    def provider_name(self) -> str:
        return NAME

    def instances_v2(self) -> InstancesV2:
        return self

    def instances_batch(self) -> InstancesBatch:
        return self

    def load_balancer(self) -> LoadBalancer:
        return self

    def routes(self) -> Routes:
        return self

    # ---- machines

    def instance_exists(self, node: V1Node) -> bool:
        return bool(self._ask("instance_exists", nodes=_nodes([node])))

    def instance_shutdown(self, node: V1Node) -> bool:
        return bool(self._ask("instance_shutdown", nodes=_nodes([node])))

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        return _metadata(self._ask("instance_metadata", nodes=_nodes([node])))

    def instances_metadata(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceMetadata | CloudProviderError]:
        found = self._ask("instances_metadata", nodes=_nodes(nodes))
        return {name: _error(one) if "error" in one else _metadata(one) for name, one in found.items()}

    def instances_state(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceState | CloudProviderError]:
        found = self._ask("instances_state", nodes=_nodes(nodes))
        return {name: _error(one) if isinstance(one, dict) else InstanceState[one] for name, one in found.items()}

    # ---- load balancers

    def get_load_balancer(self, cluster_name: str, service: V1Service) -> V1LoadBalancerStatus | None:
        found = self._ask("get_load_balancer", cluster=cluster_name, service=service.to_dict())
        return None if found is None else _status(found)

    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        return _status(
            self._ask("ensure_load_balancer", cluster=cluster_name, service=service.to_dict(), nodes=_nodes(nodes))
        )

    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        self._ask("update_load_balancer", cluster=cluster_name, service=service.to_dict(), nodes=_nodes(nodes))

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        self._ask("ensure_load_balancer_deleted", cluster=cluster_name, service=service.to_dict())

    # ---- routes

    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        found = self._ask("list_routes", cluster=cluster_name)
        return [Route(one["name"], one["target"], one["cidr"], blackhole=one["blackhole"]) for one in found]

    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        self._ask("create_route", cluster=cluster_name, hint=name_hint, route=_route(route))

    def delete_route(self, cluster_name: str, route: Route) -> None:
        self._ask("delete_route", cluster=cluster_name, route=_route(route))

    # ---- every call

    def _ask(self, method: str, **arguments: object) -> Any:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = http.client.HTTPConnection(self._address, timeout=_TIMEOUT)
        try:
            connection.request("POST", f"/{method}", json.dumps({"caller": self._caller, **arguments}, default=str))
            answer = connection.getresponse()
            body = json.loads(answer.read())
        except (OSError, http.client.HTTPException):
            connection.close()
            raise
        if answer.status == 404:
            raise InstanceNotFound(body["error"])
        if answer.status != 200:
            raise CloudProviderError(body["error"])
        return body


def _nodes(nodes: Sequence[V1Node]) -> list[JSON]:
    found = []
    for node in nodes:
        assert node.metadata is not None
        provider_id = node.spec.provider_id if node.spec is not None else None
        found.append({"metadata": {"name": node.metadata.name}, "spec": {"providerID": provider_id}})
    return found


def _route(route: Route) -> JSON:
    return {
        "name": route.name,
        "target": route.target_node,
        "cidr": route.destination_cidr,
        "blackhole": route.blackhole,
    }


def _metadata(found: JSON) -> InstanceMetadata:
    from kubernetes.client.models.v1_node_address import V1NodeAddress

    return InstanceMetadata(
        provider_id=found["providerID"],
        instance_type=found["type"],
        zone=found["zone"],
        region=found["region"],
        node_addresses=tuple(V1NodeAddress(type=one["type"], address=one["address"]) for one in found["addresses"]),
    )


def _error(found: JSON) -> CloudProviderError:
    return InstanceNotFound(found["error"]) if found["gone"] else CloudProviderError(found["error"])


def _status(addresses: Sequence[str]) -> V1LoadBalancerStatus:
    from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
    from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus

    return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip=address) for address in addresses])


def new_provider(config: CloudConfig | None) -> RemoteCloud:
    """The factory behind the name."""
    assert config is not None, "--cloud-config is missing"
    settings = json.loads(config.data)
    return RemoteCloud(settings["server"], settings["caller"])


if __name__ == "__main__":
    from controllers.app import main

    register_cloud_provider(NAME, new_provider)
    sys.exit(main(default_provider=NAME))
