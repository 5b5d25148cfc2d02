"""What becomes of the suite's end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.e2e.specs import SpecSet
from tests.lab.e2e.suite import Target, run
from tests.lab.envtest.build import SUITE, kubernetes_version

JUNIT = '<testsuites><testcase name="[It] works" status="passed" time="1" /></testsuites>'


def target(folder: Path, script: str = "") -> Target:
    program = folder / "suite"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Target(
        suite=program,
        kubectl=Path("/bin/kubectl"),
        kubeconfig=Path("/tmp/kubeconfig"),
        cloud_url="http://10.90.255.1:8090",
        cloud_token_file=Path("/tmp/token"),
    )


def test_the_report_is_read_also_where_the_suite_failed(tmp_path: Path) -> None:
    chosen = SpecSet("nodes", "Nodes", "deleted")
    folder = tmp_path / "nodes"
    [result] = run(target(tmp_path, f"echo running; echo '{JUNIT}' > junit_01.xml; exit 1"), chosen, folder)
    assert (result.name, result.outcome) == ("works", "passed")
    assert (folder / "suite.log").read_text() == "running\n"


def test_an_old_report_is_not_taken_for_the_new_one(tmp_path: Path) -> None:
    (tmp_path / "junit_01.xml").write_text(JUNIT)
    with pytest.raises(RuntimeError, match=r"ended with code 3 and no report; its last words are in .*suite\.log"):
        run(target(tmp_path, "exit 3"), SpecSet("nodes", "Nodes", "deleted"), tmp_path)


def test_the_tests_are_of_the_clusters_version() -> None:
    assert f"k8s.io/kubernetes {kubernetes_version()}\n" in (SUITE / "go.mod").read_text()
