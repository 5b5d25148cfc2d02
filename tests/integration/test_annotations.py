"""A user's mistakes in annotations become one Warning Event on the Service; once they are mended,
it is served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubernetes.client.models import V1LoadBalancerIngress, V1LoadBalancerStatus, V1Node, V1Service

from cloudprovider import Interface, LoadBalancer
from cloudprovider.helpers import BOOL, Duration, ServiceAnnotations, annotation
from cloudprovider.testing.waiting import eventually
from controllers.service.controller import ServiceController
from controllers.service.registration import ServiceOptions
from tests.integration.conftest import EMBEDDED, Cluster
from tests.support.running import at_work
from tests.support.services import SERVICES, addresses, lb_service


class Acme(ServiceAnnotations, prefix="acme.example/"):
    internal = annotation("internal", BOOL, default=False)
    idle_timeout = annotation("idle-timeout", Duration(least=1, most=3600), default=60.0)


class Picky(Interface, LoadBalancer):
    """A cloud whose load balancers have an address of their own when they are internal."""

    def __init__(self) -> None:
        self.built: dict[str, V1LoadBalancerStatus] = {}

    def provider_name(self) -> str:
        return "acme"

    def load_balancer(self) -> LoadBalancer:
        return self

    def get_load_balancer(self, cluster_name: str, service: V1Service) -> V1LoadBalancerStatus | None:
        return self.built.get(self.get_load_balancer_name(cluster_name, service))

    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        wanted = Acme.read(service)
        status = V1LoadBalancerStatus(
            ingress=[V1LoadBalancerIngress(ip="10.0.0.9" if wanted.internal else "192.0.2.9")]
        )
        return self.built.setdefault(self.get_load_balancer_name(cluster_name, service), status)

    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        return

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        self.built.pop(self.get_load_balancer_name(cluster_name, service), None)


@EMBEDDED
def test_mistakes_are_one_event_and_what_is_mended_is_built(api: Cluster) -> None:
    cloud = Picky()
    options = ServiceOptions(cluster_name="test", drift_check_period=3600.0)

    def failures() -> list[dict[str, Any]]:
        return [event for event in api.events_of("web") if event["reason"] == "SyncLoadBalancerFailed"]

    wrong = lb_service("web")
    wrong["metadata"]["annotations"] = {"acme.example/internl": "true", "acme.example/idle-timeout": "5 minutes"}
    api.create(SERVICES, wrong)
    with at_work(ServiceController, api.kubeconfig, cloud, options):
        eventually(failures)
        [told] = failures()
        assert told["type"] == "Warning"
        assert told["message"] == (
            "Error syncing load balancer: failed to ensure load balancer: acme.example/idle-timeout: '5 minutes' cannot"
            " be used; allowed: a duration such as 300ms, 10s or 1m30s, from 1s to 1h0m0s; acme.example/internl:"
            " unknown annotation; did you mean acme.example/internal?"
        )
        assert cloud.built == {}
        mended = {"acme.example/internl": None, "acme.example/internal": "true", "acme.example/idle-timeout": "5m"}
        api.patch(f"{SERVICES}/web", {"metadata": {"annotations": mended}})
        eventually(lambda: addresses(api.get(f"{SERVICES}/web")) == ["10.0.0.9"])
        assert [event.get("count", 1) for event in failures()] == [1]
