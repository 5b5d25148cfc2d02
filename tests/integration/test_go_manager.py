"""Our tables of the Go manager's flags and feature gates are those of the Go program itself, of the
pinned version.

The program is that of `tests/lab/bench/goccm`.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from controllers.catalog import CATALOG
from controllers.flags import syntax
from controllers.flags.ignored import GATES
from controllers.flags.parse import table
from tests.lab.envtest.build import go_manager
from tests.support.gomanager import GO_DEPRECATED, GO_FLAGS, GO_GATES
from tests.support.tiers import need

VERSION = "0.37.2"
LISTS = {"strings", "stringSlice", "int32Slice", "mapStringBool"}


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    """What the Go program says of itself: flags and gates, those that its --help hides too."""
    program = need("Go's manager", go_manager)
    answer = subprocess.run([program, "describe"], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def test_every_flag_of_the_go_manager_has_its_row_with_gos_default(described: dict[str, Any]) -> None:
    assert {flag["Name"]: flag["Default"].strip("[]") for flag in described["Flags"]} == GO_FLAGS
    assert {flag["Name"] for flag in described["Flags"] if flag["Deprecated"]} == GO_DEPRECATED


def test_every_flag_is_taken_here_in_gos_form(described: dict[str, Any]) -> None:
    ours = {row.name: row for row in table(CATALOG)}
    for flag in described["Flags"]:
        name, kind = flag["Name"], flag["Type"]
        row = ours[name]
        assert (kind in ("bool", "version")) == (row.kind.bare is not None), f"--{name} alone"
        assert (kind in LISTS) == row.kind.repeated, f"--{name} twice"
        if GO_FLAGS[name]:
            syntax.read(row, GO_FLAGS[name])  # raises where we refuse Go's own default


def test_every_feature_gate_of_the_go_manager_has_its_row(described: dict[str, Any]) -> None:
    found = {gate["Name"]: gate for gate in described["Gates"]}
    stages = {name: (gate["Stage"], str(gate["Default"]).lower()) for name, gate in found.items()}
    assert {name: (stage.lower().replace("ga", "GA"), default) for name, (stage, default) in stages.items()} == GO_GATES
    assert {name: gate["Default"] for name, gate in found.items() if gate["Locked"]} == {
        name: gate.fixed for name, gate in GATES.items() if gate.fixed is not None
    }
    assert found.keys() == GATES.keys()


def test_the_version_is_the_one_that_the_docs_name() -> None:
    root = Path(__file__).parents[2]
    pinned = re.findall(r"k8s\.io/cloud-provider v(\S+)", (root / "tests/lab/bench/goccm/go.mod").read_text())
    assert pinned == [VERSION]
    assert f"k8s.io/cloud-provider {VERSION}" in (root / "docs" / "reference" / "go-flags.md").read_text()
