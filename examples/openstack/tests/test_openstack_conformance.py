"""The provider keeps the contract over the double: `pytest -k conformance
--conformance-report=report`."""

from collections.abc import Iterator

import pytest
from openstackdouble import served
from openstacklab import DoubleLab, registered

from cloudprovider.testing.conformance import EndToEndConformance, Feature, ProviderConformance

FEATURES = (
    Feature.INSTANCES_V2 | Feature.INSTANCES_BATCH | Feature.LOAD_BALANCER | Feature.OWNED_LOAD_BALANCERS
    | Feature.SOURCE_RANGES | Feature.UDP | Feature.HEALTH_CHECKS | Feature.ROUTES | Feature.LOCAL_INSTANCE
)  # fmt: skip


@pytest.fixture(scope="module")
def lab() -> Iterator[DoubleLab]:
    with served() as cloud, registered():
        yield DoubleLab(cloud)


class TestOpenStack(EndToEndConformance, ProviderConformance):
    provider_name = "openstack"
    features = FEATURES
