"""The pytest plugin is loaded in every run of everybody who installed us: it must cost them
nothing."""

from __future__ import annotations

import subprocess
import sys

HEAVY = (
    "cloudprovider.interface",
    "cloudprovider.helpers",
    "controllers.app",
    "controllers.runtime",
    "kubernetes",
    "attrs",
    "prometheus_client",
    "ssl",
)


def test_loading_it_imports_pytest_and_nothing_else() -> None:
    code = "import pytest, sys; old = {*sys.modules}; import controllers.testing.plugin; print(*{*sys.modules} - old)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert "controllers.testing.plugin" in loaded
    assert {name for name in loaded if name.startswith("controllers")} == {
        "controllers",
        "controllers.testing",
        "controllers.testing.plugin",
    }
    assert sorted(loaded & {*HEAVY}) == []


def test_loading_the_conformance_plugin_leaves_the_suite_unimported() -> None:
    code = "import sys, cloudprovider.testing.conformance.plugin; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert "cloudprovider.testing.conformance.plugin" in loaded
    assert not loaded & {
        "kubernetes",
        "cloudprovider.testing.conformance.lab",
        "cloudprovider.testing.conformance.suite",
    }
