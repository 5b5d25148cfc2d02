"""The provider keeps the contract over libcloud's drivers for Rackspace, of machines and of load
balancers: `pytest -k onform --conformance-report=report`."""

from collections.abc import Iterator

import pytest
from libcloudlab import BalancerLab, DoubleLab, lab_of

from cloudprovider.testing.conformance import Feature, ProviderConformance


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoubleLab]:
    with lab_of("rackspace", tmp_path_factory, BalancerLab) as made:
        yield made


class TestRackspace(ProviderConformance):
    provider_name = "libcloud"
    features = Feature.INSTANCES_V2 | Feature.INSTANCES_BATCH | Feature.LOAD_BALANCER
