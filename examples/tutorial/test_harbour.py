"""harbour keeps the contract: `pytest --conformance-report=report` says scenario by scenario what
was tried."""

import pytest
from harbour_api import connect
from harbour_provider import new_provider
from kubernetes.client.models import V1Node

from cloudprovider import CloudConfig, register_cloud_provider
from cloudprovider.testing.conformance import BalancerFacts, Feature, Lab, ProviderConformance, new_node

register_cloud_provider("harbour", new_provider)


class HarbourLab(Lab):
    def config(self) -> CloudConfig:
        return CloudConfig(path="", data=b"memory://test")

    def create_machine(self, name: str) -> V1Node:
        return new_node(name, provider_id=f"harbour://{name}")

    def delete_machine(self, node: V1Node) -> None:
        pass  # its machines are only names

    def resources(self) -> list[str]:
        return list(connect("memory://test").balancers)

    def load_balancer(self, name: str) -> BalancerFacts | None:
        found = connect("memory://test").find(name)
        return BalancerFacts([(port, "TCP", to) for port, to in found.ports], found.targets) if found else None


@pytest.fixture(scope="module")
def lab() -> Lab:
    return HarbourLab()


class TestHarbour(ProviderConformance):
    provider_name = "harbour"
    features = Feature.LOAD_BALANCER
