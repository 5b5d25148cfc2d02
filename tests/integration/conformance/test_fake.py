"""The fake cloud passes the end-to-end level of the conformance suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cloudprovider.testing.conformance import EndToEndConformance, Feature, Lab
from tests.unit.conformance.fakelab import FakeLab


class PatientLab(FakeLab):
    """With time for controllers, which wait for each other besides."""

    patience = 10.0


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = PatientLab(tmp_path_factory.mktemp("fake") / "cloud.json")
    with made.cloud:
        yield made


class TestFake(EndToEndConformance):
    provider_name = "fake"
    features = ~Feature.NONE
