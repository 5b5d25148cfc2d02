"""samplecloud keeps the contract: `pytest --conformance-report=report` says scenario by scenario
what was tried."""

import pytest
from samplelab import SampleLab

from cloudprovider.testing.conformance import EndToEndConformance, Feature, ProviderConformance


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> SampleLab:
    return SampleLab(tmp_path_factory.mktemp("cloud") / "state.json")


class TestSampleCloud(ProviderConformance, EndToEndConformance):
    provider_name = "samplecloud"
    features = (
        Feature.INSTANCES_V2
        | Feature.INSTANCES_BATCH
        | Feature.SSH_KEYS
        | Feature.ZONES
        | Feature.LOAD_BALANCER
        | Feature.OWNED_LOAD_BALANCERS
        | Feature.SOURCE_RANGES
        | Feature.ROUTES
        | Feature.PV_LABELER
        | Feature.CLUSTERS
        | Feature.LOCAL_INSTANCE
        | Feature.POD_CIDRS
    )
