"""The fake cloud passes the end-to-end level of the conformance suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.conformance import EndToEndConformance, Feature, Lab, Trial
from cloudprovider.testing.conformance.bench import Bench
from cloudprovider.testing.conformance.endtoend import Stage
from cloudprovider.testing.fake import FakeCloud, FakeConfig
from controllers.testing import Cluster, ManagerRun
from tests.unit.conformance.fakelab import ConsoleLab, FakeLab


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


def test_a_provider_of_routes_alone(tmp_path: Path) -> None:
    with FakeCloud(FakeConfig.model_validate({"capabilities": ["routes"]})) as cloud, EmbeddedAPIServer() as server:
        lab = ConsoleLab(cloud)
        suite = type("Suite", (EndToEndConformance,), {"features": Feature.ROUTES, "time_limit": 5.0})()
        bench = Bench(lab, suite.features, lambda: cloud, "fake")
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        with (
            Trial(bench) as trial,
            Cluster(kubeconfig) as cluster,
            ManagerRun(kubeconfig, cloud, [f"--cluster-name={lab.cluster_name}"]) as manager,
        ):
            suite.test_e9_routes_appear_and_leave(trial, Stage(trial, cluster, manager, suite.time_limit))
        bench.close()
