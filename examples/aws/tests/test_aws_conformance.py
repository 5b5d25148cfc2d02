"""The provider keeps the contract, over HTTP against moto's server: `pytest -k Conform
--conformance-report=report`."""

from collections.abc import Iterator

import pytest
from aws_provider import loadbalancer
from aws_provider.provider import new_provider
from awslab import AWSLab
from imds import metadata_service

from cloudprovider.loading import registry
from cloudprovider.testing.conformance import Feature, Lab, ProviderConformance


@pytest.fixture(scope="module")
def lab(endpoint: str) -> Iterator[Lab]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loadbalancer, "PROVISIONING_SECONDS", 0.0)  # moto builds at once
        patch.setattr(registry, "_REGISTRY", registry.Registry())  # here nobody installs the provider
        registry.register_cloud_provider("aws", new_provider)
        with metadata_service() as service:
            patch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url)
            yield AWSLab(service)


class TestAWS(ProviderConformance):
    provider_name = "aws"
    features = (
        Feature.INSTANCES_V2 | Feature.INSTANCES_BATCH | Feature.LOAD_BALANCER | Feature.OWNED_LOAD_BALANCERS
        | Feature.SOURCE_RANGES | Feature.ROUTES | Feature.LOCAL_INSTANCE | Feature.OWNED_RESOURCES
    )  # fmt: skip
