"""The provider keeps the contract, over HTTP against the cloud's daemon: `pytest -k onform
--conformance-report=report`."""

from collections.abc import Iterator

import pytest
from localcloud_provider.provider import new_provider
from locallab import LocalLab, daemon

from cloudprovider.loading import registry
from cloudprovider.testing.conformance import EndToEndConformance, Feature, ProviderConformance


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalLab]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_REGISTRY", registry.Registry())  # here nobody installs the provider
        registry.register_cloud_provider("localcloud", new_provider)
        with daemon(tmp_path_factory.mktemp("cloud"), local=True) as made:
            yield LocalLab(made)


class TestLocalCloud(ProviderConformance, EndToEndConformance):
    provider_name = "localcloud"
    features = (
        Feature.INSTANCES_V2 | Feature.INSTANCES_BATCH | Feature.SSH_KEYS | Feature.LOAD_BALANCER
        | Feature.OWNED_LOAD_BALANCERS | Feature.KEPT_LOAD_BALANCERS | Feature.SOURCE_RANGES | Feature.ROUTES
        | Feature.LOCAL_INSTANCE
    )  # fmt: skip
