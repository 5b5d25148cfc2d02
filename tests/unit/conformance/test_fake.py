"""The fake cloud keeps the contract: every scenario of the conformance suite, over a cloud
that is shared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cloudprovider.testing.conformance import Feature, Lab, ProviderConformance
from tests.unit.conformance.fakelab import FakeLab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = FakeLab(tmp_path_factory.mktemp("fake") / "cloud.json")
    with made.cloud:
        yield made


class TestFake(ProviderConformance):
    """Every feature that there is."""

    provider_name = "fake"
    features = ~Feature.NONE
