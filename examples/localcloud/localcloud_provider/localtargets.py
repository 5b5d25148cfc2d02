"""Targets only where a ready endpoint runs, for Services with externalTrafficPolicy Local: no other
node passes their traffic on.

The health check of kube-proxy takes the other nodes out too, some seconds after the pods moved.
This does it as the pods move, and the cloud has fewer machines to check.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service
from typing_extensions import override

from cloudprovider import EndpointSliceLister
from cloudprovider.helpers import key_of, nodes_with_ready_endpoints
from localcloud_provider.loadbalancer import LocalLoadBalancers


class LocalTargets(LocalLoadBalancers):
    """Without `slices`, in a program that gives no listers, every node is a target."""

    slices: EndpointSliceLister | None = None

    @override
    def depends_on(self, service: V1Service) -> str:
        return " ".join(sorted(self._nodes_of(service)))

    @override
    def targets(self, service: V1Service, nodes: Sequence[V1Node]) -> Sequence[V1Node]:
        chosen = self._nodes_of(service)
        # With no ready endpoint at all the health check decides: every pod may be starting again.
        return [node for node in nodes if key_of(node) in chosen] or nodes

    def _nodes_of(self, service: V1Service) -> frozenset[str]:
        spec = service.spec
        if self.slices is None or spec is None or spec.external_traffic_policy != "Local":
            return frozenset()
        namespace, _, name = key_of(service).partition("/")
        return nodes_with_ready_endpoints(self.slices.of_service(namespace, name))
