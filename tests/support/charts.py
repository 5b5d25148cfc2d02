"""What examples/deploy becomes: the chart rendered by helm, and an overlay built by kustomize, as objects.

Both programs are built once by the Go toolchain (tests/envtest/build.py); where they cannot be had the test is skipped
with a message, or fails where REQUIRE_REAL_API_SERVER (for helm REQUIRE_HELM) is set.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.envtest.build import AssetsMissing, tool

__all__ = ["CHART", "DEPLOY", "KUSTOMIZE", "build", "identity", "render", "run"]

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"
CHART = DEPLOY / "chart"
KUSTOMIZE = DEPLOY / "kustomize"
REQUIRED: dict[str, Any] = {"image": {"repository": "example.com/acme/ccm"}, "cloudProvider": "acme"}
"""The values without which the chart does not render."""

Object = dict[str, Any]


def run(name: str, *arguments: str, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run one of the tools; raises AssertionError with its output where it fails and `check` is set."""
    try:
        program = tool(name)
    except AssetsMissing as missing:
        required = "REQUIRE_HELM" if name == "helm" else "REQUIRE_REAL_API_SERVER"
        if os.environ.get(required):
            pytest.fail(f"{required} is set, but {missing}")
        pytest.skip(f"checks of the manifests: {missing}")
    done = subprocess.run([str(program), *arguments], input=stdin, capture_output=True, text=True, check=False)
    if check:
        assert done.returncode == 0, f"{name} {' '.join(arguments)}:\n{done.stdout}{done.stderr}"
    return done


def render(
    values: Mapping[str, Any] | None = None,
    *,
    files: Sequence[Path] = (),
    release: str = "cloud-controller-manager",
    namespace: str = "kube-system",
) -> list[Object]:
    """The objects of the chart with these values, on top of the required ones and of files of values."""
    given = yaml.safe_dump(REQUIRED | dict(values or {}))
    options = [option for file in files for option in ("--values", str(file))]
    if not files:
        options = ["--values", "-"]
    elif values:
        raise ValueError("values or files")
    done = run("helm", "template", release, str(CHART), "--namespace", namespace, *options, stdin=given)
    return _objects(done.stdout)


def build(folder: Path) -> list[Object]:
    """The objects that kustomize makes of a folder."""
    return _objects(run("kustomize", "build", str(folder)).stdout)


def identity(obj: Object) -> tuple[str, str, str]:
    """Kind, namespace and name."""
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _objects(text: str) -> list[Object]:
    return [one for one in yaml.safe_load_all(text) if one]
