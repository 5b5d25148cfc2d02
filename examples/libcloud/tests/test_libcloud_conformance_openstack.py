"""The provider keeps the contract over libcloud's OpenStack driver: `pytest -k
onform --conformance-report=report`."""

from collections.abc import Iterator

import pytest
from libcloudlab import DoubleLab, lab_of

from cloudprovider.testing.conformance import Feature, ProviderConformance


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoubleLab]:
    with lab_of("openstack", tmp_path_factory) as made:
        yield made


class TestOpenStack(ProviderConformance):
    provider_name = "libcloud"
    features = Feature.INSTANCES_V2 | Feature.INSTANCES_BATCH
