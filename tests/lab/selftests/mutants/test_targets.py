"""The list of modules to mutate names what is there."""

from __future__ import annotations

from pathlib import Path

from tests.lab.mutants.targets import TARGETS

ROOT = Path(__file__).parents[4]


def test_every_module_and_every_path_of_tests_exists() -> None:
    gone = [f"{name}: {path}" for name, (module, tests) in TARGETS.items() for path in (module, *tests)
            if not (ROOT / path).exists()]  # fmt: skip
    assert not gone
