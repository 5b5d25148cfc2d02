"""The provider keeps the contract over OpenStack's own services, under a manager too."""

from collections.abc import Iterator

import pytest
from openstacklab import ServicesLab, registered
from test_openstack_conformance import FEATURES

from cloudprovider.testing.conformance import EndToEndConformance, ProviderConformance
from tests.lab.openstack.cloud import OpenStack

pytest_plugins = ["tests.lab.openstack.fixtures"]


@pytest.fixture(scope="module")
def lab(openstack: OpenStack) -> Iterator[ServicesLab]:
    with registered():
        yield ServicesLab(openstack)


class TestOpenStackServices(EndToEndConformance, ProviderConformance):
    provider_name = "openstack"
    features = FEATURES
