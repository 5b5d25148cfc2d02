"""Each end-to-end scenario notices what it is there for: a cloud that is broken in one way fails
that scenario.

CONFORMANCE_MUTANTS=all runs every scenario on every broken cloud, which must fail no other one (two
minutes).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cloudprovider import Interface
from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.conformance import SCENARIOS, EndToEndConformance, Feature, Lab, Scenario, Trial
from cloudprovider.testing.conformance.bench import Bench
from cloudprovider.testing.conformance.endtoend import Stage
from cloudprovider.testing.fake import FakeCloud
from controllers.testing import Cluster, ManagerRun
from tests.integration.conformance.mutants import MUTANTS, broken
from tests.unit.conformance.fakelab import FakeLab

END_TO_END = {name: found for name, found in SCENARIOS.items() if found.level == "end to end"}
LONG = os.environ.get("CONFORMANCE_MUTANTS") == "all"


class Quick(EndToEndConformance):
    """The scenarios, with little patience: what is right comes within moments."""

    time_limit = 6.0 if LONG else 1.5
    features = ~Feature.NONE

    def __init__(self, cloud: FakeCloud, part: type[Any]) -> None:
        self.cloud, self.part = cloud, part

    def make_provider(self, lab: Lab) -> Interface:
        return broken(self.cloud, self.part)


def failure(scenario: Scenario, part: type[Any], folder: Path) -> str:
    """What the scenario says about the broken cloud; "" when it passes."""
    lab = FakeLab(folder / f"{scenario.id}.json")
    lab.patience = 0.5
    with lab.cloud as cloud, EmbeddedAPIServer() as server:
        suite = Quick(cloud, part)
        bench = Bench(lab, suite.features, lambda: suite.make_provider(lab), "fake")
        kubeconfig = server.write_kubeconfig(folder / "kubeconfig")
        flags = [f"--cluster-name={lab.cluster_name}"]
        try:
            with (
                Trial(bench) as trial,
                Cluster(kubeconfig) as cluster,
                ManagerRun(kubeconfig, suite.make_provider(lab), flags) as manager,
            ):
                scenario.function(suite, trial, Stage(trial, cluster, manager, suite.time_limit))
        except AssertionError as error:
            return str(error) or "an assertion without words"
        finally:
            bench.close()
    return ""


@pytest.mark.parametrize("name", END_TO_END)
def test_a_broken_cloud_fails_its_scenario(name: str, tmp_path: Path) -> None:
    part = MUTANTS[name]
    assert part.__doc__
    tried = END_TO_END if LONG else {name: END_TO_END[name]}
    found = {other: failure(scenario, part, tmp_path) for other, scenario in tried.items()}
    assert [other for other, said in found.items() if said] == [name], found
