"""What examples/deploy becomes: the chart rendered by helm, and an overlay built by kustomize, as
objects.

`make envtest` builds both programs (tests/lab/envtest/build.py), helm where REQUIRE_HELM is set.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from tests.lab.envtest.build import tool
from tests.support.tiers import REQUIRE_SERVER, need

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


def render(values: Mapping[str, Any] | None = None, *, namespace: str = "kube-system") -> list[Object]:
    """The objects of the chart with these values, on top of the required ones."""
    return _objects(_rendered(namespace, yaml.safe_dump(REQUIRED | dict(values or {}))))


@cache
def _rendered(namespace: str, given: str) -> str:
    """What helm prints: many tests ask for the same."""
    name = "cloud-controller-manager"
    return run("helm", "template", name, str(CHART), "--namespace", namespace, "--values", "-", stdin=given).stdout


def build(folder: Path) -> list[Object]:
    """The objects that kustomize makes of a folder."""
    return _objects(run("kustomize", "build", str(folder)).stdout)


LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C takes a tenth of the time."""


def identity(obj: Object) -> tuple[str, str, str]:
    """Kind, namespace and name."""
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _objects(text: str) -> list[Object]:
    return [one for one in yaml.load_all(text, Loader=LOADER) if one]
