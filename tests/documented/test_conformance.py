"""The provider keeps the contract: `pytest --conformance-report=report`."""

from pathlib import Path

import pytest
from kubernetes.client.models import V1Node

from cloudprovider import CloudConfig
from cloudprovider.testing.conformance import Feature, Lab, ProviderConformance, new_node
from cloudprovider.testing.fake import FakeCloud


class FakeLab(Lab):
    def __init__(self, path: Path) -> None:
        self.cloud = FakeCloud()  # a simulator of your cloud
        self.path = self.cloud.share(path, capabilities=["instances_v2", "load_balancer"])

    def config(self) -> CloudConfig:
        return CloudConfig.read(self.path)

    def create_machine(self, name: str) -> V1Node:
        self.cloud.console.add_instance(name, addresses={"InternalIP": "10.0.0.1"})
        return new_node(name)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> FakeLab:
    return FakeLab(tmp_path_factory.mktemp("cloud") / "cloud.json")


class TestProvider(ProviderConformance):
    provider_name = "fake"
    features = Feature.INSTANCES_V2 | Feature.LOAD_BALANCER
