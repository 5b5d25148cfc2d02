"""The report of a run: what passed, what was skipped and why, what failed, and what was left in the
cloud."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cloudprovider.testing.conformance import SCENARIOS
from cloudprovider.testing.conformance.plugin import Collector
from cloudprovider.testing.conformance.report import ProviderFacts, Result, as_json, as_markdown, summary_line, write

VENDOR = """
import pytest
from cloudprovider import CloudConfig
from cloudprovider.testing.conformance import Feature, Lab, ProviderConformance, new_node


class SmallLab(Lab):
    def config(self):
        return CloudConfig(path="", data=b"capabilities: [instances_v2]\\non_demand: {names: '*-node-*'}\\n")

    def create_machine(self, name):
        return new_node(name)


@pytest.fixture(scope="module")
def lab():
    return SmallLab()


class TestFake(ProviderConformance):
    provider_name = "fake"
    features = Feature.INSTANCES_V2 | Feature.ROUTES
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """A vendor's run: the provider lacks a feature that is declared."""
    folder = tmp_path_factory.mktemp("vendor")
    (folder / "test_fake.py").write_text(VENDOR)
    command = [sys.executable, "-m", "pytest", "-q", "-k", "g2_ or i1_ or i3_ or b1_", "--rootdir", str(folder)]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-W", "error", "--conformance-report", str(folder / "report")],
        cwd=folder, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done, folder / "report"


UNEQUAL = """
from types import SimpleNamespace
import pytest
from kubernetes.client import V1LoadBalancerIngress, V1LoadBalancerStatus
from cloudprovider.testing.conformance import EndToEndConformance, Feature


class TestFake(EndToEndConformance):
    provider_name = "fake"
    features = Feature.LOAD_BALANCER

    @pytest.fixture
    def trial(self):
        found = V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip="203.0.113.2")])
        return SimpleNamespace(found=lambda service: found)

    @pytest.fixture
    def stage(self):
        service = SimpleNamespace(object=None, addresses=["203.0.113.1"])
        return SimpleNamespace(exposed=lambda: service)
"""


def test_a_comparison_that_fails_shows_both_values(tmp_path: Path) -> None:
    """However the vendor has installed us: as a wheel, editable, or by a path alone."""
    (tmp_path / "test_fake.py").write_text(UNEQUAL)
    command = [sys.executable, "-m", "pytest", "-q", "-k", "e4_", "--rootdir", str(tmp_path), "-W", "error"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--conformance-report", str(tmp_path / "report")],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    outcome, reason = outcomes(json.loads((tmp_path / "report/conformance-fake.json").read_text()))["E4"]
    assert outcome == "failed"
    assert "['203.0.113.1'] == ['203.0.113.2']" in reason
    assert "['203.0.113.1'] == ['203.0.113.2']" in (tmp_path / "report/conformance-fake.md").read_text()


def outcomes(report: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {one["id"]: (one["outcome"], one["reason"]) for one in report["scenarios"]}


def test_a_run_writes_its_report(run: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, folder = run
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads((folder / "conformance-fake.json").read_text())
    assert report["provider"]["name"] == "fake"
    assert report["provider"]["distribution"].startswith("kubernetes-cloud-provider ")
    assert report["provider"]["class"] == "cloudprovider.testing.fake.cloud.FakeCloud"
    assert report["features"] == ["instances_v2", "routes"]
    found = outcomes(report)
    assert found["I1"] == ("passed", "")
    assert found["I3"] == ("skipped", "the lab has no stop_machine")
    assert found["B1"] == ("skipped", "not declared: instances_batch")
    assert found["G2"][0] == "failed"
    assert "routes: declared, and not offered" in found["G2"][1]
    assert "\nassert " not in found["G2"][1]
    assert found["L1"] == ("not run", "")
    assert report["summary"]["failed"] == 1
    assert "conformance of fake: 1 passed, 1 failed, 2 skipped" in done.stdout
    assert "| G2 |" in (folder / "conformance-fake.md").read_text()


def test_of_several_classes_for_one_provider_the_gravest_result_counts() -> None:
    collector = Collector(None)

    def tell(scenario: str, outcome: Any, *features: str, reason: str = "") -> None:
        facts = {"scenario": scenario, "provider": "acme", "features": features, "class": "", "left_behind": []}
        facts["reason"] = reason
        report = pytest.TestReport("id", ("f", 1, "d"), {}, outcome, None, "call")
        report.user_properties.append(("conformance", json.dumps(facts)))
        collector.pytest_runtest_logreport(report)

    for first, second in (("passed", "skipped"), ("skipped", "passed")):
        tell(f"L{len(first)}", first, "routes")
        tell(f"L{len(first)}", second, "zones")
    tell("R1", "failed")
    tell("R1", "passed")
    tell("R2", "skipped", reason="not run: the provider cannot be made")
    found = {id: result.outcome for id, result in collector.results("acme").items()}
    assert found == {"L6": "passed", "L7": "passed", "R1": "failed", "R2": "not run"}
    assert collector.results("acme")["R2"].reason == "the provider cannot be made"


def report_of(*results: Result, left_behind: tuple[str, ...] = ()) -> dict[str, Any]:
    facts = ProviderFacts("acme", "acme-provider 1.2", "acme.Acme", ("routes",))
    by_id = {result.id: result for result in results}
    return as_json(facts, by_id, sdk="sdk 1", finished="2026-01-02T03:04:05+00:00", left_behind=left_behind)


def test_every_scenario_of_the_level_is_in_order() -> None:
    report = report_of(Result("L1", "passed", "", 0.5))
    ids = [one["id"] for one in report["scenarios"]]
    assert ids[:2] == ["G1", "G2"]
    assert ids.index("L2") < ids.index("L10") < ids.index("R1")
    assert set(ids) == {one.id for one in SCENARIOS.values() if one.level == "provider"}
    assert report["summary"]["passed"] == 1
    assert report["summary"]["not run"] == len(ids) - 1


def test_for_people(tmp_path: Path) -> None:
    results = Result("L1", "failed", "a | b\nc", 0.5), Result("L2", "skipped", "not declared: x")
    report = report_of(*results, left_behind=("machine m: gone",))
    page = as_markdown(report)
    assert summary_line(report) in page
    assert "| Provider | acme-provider 1.2, `acme.Acme` |" in page
    assert f"| L1 | {SCENARIOS['L1'].title} | **failed**: a \\| b c |" in page
    assert "| skipped: not declared: x |" in page
    assert "- machine m: gone" in page
    paths = write(tmp_path / "new", report)
    assert [path.name for path in paths] == ["conformance-acme.json", "conformance-acme.md"]
    assert json.loads(paths[0].read_text()) == report
