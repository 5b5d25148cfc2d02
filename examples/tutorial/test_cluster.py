"""In a cluster: a Service gets the address of a harbour load balancer, and loses it with the
Service."""

import pytest
from harbour_api import connect
from harbour_provider import Harbour

from controllers.testing import Cluster, ManagerRun

CLOUD = connect("memory://cluster")


@pytest.fixture
def provider() -> Harbour:
    return Harbour(CLOUD)


@pytest.fixture
def manager_flags() -> list[str]:
    return ["--controllers=service-lb-controller"]


def test_a_service_gets_an_address(cluster: Cluster, manager: ManagerRun) -> None:
    cluster.join("node-1", provider_id="harbour://node-1")
    web = cluster.expose("web", ports=(80,))
    cluster.wait_until(lambda: web.addresses)
    assert web.addresses == ["203.0.113.1"]
    web.delete()
    cluster.wait_until(lambda: not CLOUD.balancers)
