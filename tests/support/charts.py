"""What examples/deploy becomes: the chart rendered by helm, and an overlay built by kustomize, as
objects.

`make envtest` builds both programs (tests/envtest/build.py), helm where REQUIRE_HELM is set.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.envtest.build import tool
from tests.support.tiers import REQUIRE_SERVER, need

__all__ = ["CHART", "DEPLOY", "KUSTOMIZE", "build", "identity", "render", "run"]

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"
CHART = DEPLOY / "chart"
KUSTOMIZE = DEPLOY / "kustomize"
REQUIRED: dict[str, Any] = {"image": {"repository": "example.com/acme/ccm"}, "cloudProvider": "acme"}
"""The values without which the chart does not render."""

Object = dict[str, Any]


def run(name: str, *arguments: str, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run one of the tools; raises AssertionError with its output where it fails and `check` is
    set."""
    program = need(name, partial(tool, name), required="REQUIRE_HELM" if name == "helm" else REQUIRE_SERVER)
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
    """The objects of the chart with these values, on top of the required ones and of files of
    values."""
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
