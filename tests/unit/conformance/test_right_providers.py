"""What the contract leaves to a provider: no scenario refuses it, and nothing is left behind in its
cloud."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume

from cloudprovider.testing.conformance import SCENARIOS, EndToEndConformance, Feature, Lab
from cloudprovider.testing.conformance.bench import Bench
from cloudprovider.testing.conformance.endtoend import Stage
from cloudprovider.testing.conformance.trial import Trial
from cloudprovider.testing.fake import FakeCloud, FakeConfig
from cloudprovider.testing.fake.config import CAPABILITIES
from tests.unit.conformance.fakelab import ConsoleLab


def cloud() -> FakeCloud:
    return FakeCloud(FakeConfig.model_validate({"capabilities": CAPABILITIES}))


def run(scenario: str, provider: FakeCloud, lab: Lab) -> list[str]:
    """Run the scenario; what it left behind. Raises what it says."""
    bench = Bench(lab, ~Feature.NONE, lambda: provider, "fake")
    try:
        with Trial(bench) as trial:
            SCENARIOS[scenario].function(None, trial)
    finally:
        bench.close()
    return bench.left_behind


def test_a_cluster_may_have_no_address_yet() -> None:
    with cloud() as provider:
        provider.console.add_cluster("young")
        assert provider.clusters().master("young") == ""  # type: ignore[union-attr]
        run("C1", provider, ConsoleLab(provider))


@pytest.mark.parametrize("scenario", ["V1", "V2", "V3", "V4"])
def test_no_disk_is_left_in_the_cloud(scenario: str) -> None:
    class Counting(ConsoleLab):
        disks = 0

        def create_volume(self) -> V1PersistentVolume:
            self.disks += 1
            return super().create_volume()

        def delete_volume(self, volume: V1PersistentVolume) -> None:
            super().delete_volume(volume)
            self.disks -= 1

    with cloud() as provider:
        lab = Counting(provider)
        assert run(scenario, provider, lab) == []
        assert lab.disks == 0


def test_a_disk_that_cannot_be_deleted_is_told() -> None:
    class Stubborn(ConsoleLab):
        def delete_volume(self, volume: V1PersistentVolume) -> None:
            raise OSError("it is attached")

    with cloud() as provider:
        assert run("V1", provider, Stubborn(provider)) == ["disk of the volume pv-1: OSError: it is attached"]


def test_an_end_to_end_outage_ends_also_where_the_scenario_fails() -> None:
    """Labs may be written without try and finally."""

    class Careless(ConsoleLab):
        broken = False

        @contextmanager
        def outage(self, after: int = 0) -> Iterator[None]:
            self.broken = True
            yield
            self.broken = False

    class NoCluster:
        identity = ""

        def join(self, name: str, **_: object) -> None:
            raise AssertionError("no API server")

    with cloud() as provider:
        lab = Careless(provider)
        with Trial(Bench(lab, ~Feature.NONE, lambda: provider, "fake")) as trial:
            stage = Stage(trial, cast(Any, NoCluster()), cast(Any, None), 1.0)
            with pytest.raises(AssertionError):
                SCENARIOS["E10"].function(EndToEndConformance(), trial, stage)
        assert not lab.broken
