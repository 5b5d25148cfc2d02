"""The provider keeps the contract: `pytest --conformance-report=report`."""

import pytest
from kubernetes.client.models import V1Node

from cloudprovider import CloudConfig
from cloudprovider.testing.conformance import Feature, Lab, ProviderConformance, new_node
from cloudprovider.testing.fake import FakeCloud, FakeConfig


class FakeLab(Lab):
    def __init__(self, state: str) -> None:
        self.state = state
        self.cloud = FakeCloud(FakeConfig(state=state))  # a simulator of your cloud

    def config(self) -> CloudConfig:
        text = f"state: {self.state}\ncapabilities: [instances_v2, load_balancer]"
        return CloudConfig(path="", data=text.encode())

    def create_machine(self, name: str) -> V1Node:
        self.cloud.console.add_instance(name, addresses={"InternalIP": "10.0.0.1"})
        return new_node(name)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> FakeLab:
    return FakeLab(str(tmp_path_factory.mktemp("cloud") / "state"))


class TestProvider(ProviderConformance):
    provider_name = "fake"
    features = Feature.INSTANCES_V2 | Feature.LOAD_BALANCER
