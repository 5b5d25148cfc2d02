"""The package that `cloudprovider new acme --http` writes, with one mistake in it, under one
scenario."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cloudprovider.commands.new import Names, render
from cloudprovider.testing.conformance import SCENARIOS, Trial
from cloudprovider.testing.conformance.bench import Bench

__all__ = ["TEXTS", "said_by"]

TEXTS = {path: text for path, text in render(Names("acme", http=True)).items() if path.endswith(".py")}
_OURS = ("acme_provider", "double", "lab", "test_conformance")


def said_by(folder: Path, texts: dict[str, str], scenario: str) -> str:
    """What the scenario says about a package of these files; "" where it passes."""
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    with _imported(folder) as modules, modules["double"].Double() as cloud:
        lab = modules["lab"].AcmeLab(cloud)
        lab.patience = 1.5
        features = modules["test_conformance"].TestAcme.features
        make = modules["acme_provider.provider"].new_provider
        bench = Bench(lab, features, lambda: make(lab.config()), "acme")
        try:
            with Trial(bench) as trial:
                SCENARIOS[scenario].function(None, trial)
        except pytest.skip.Exception as skipped:
            return f"skipped: {skipped}"
        except Exception as error:  # noqa: BLE001 - whatever a scenario raises is what it says
            return f"{type(error).__name__}: {error}"
        finally:
            bench.close()
    return ""


@contextmanager
def _imported(folder: Path) -> Iterator[dict[str, Any]]:
    """Its modules, forgotten in the end."""
    paths = [str(folder), str(folder / "tests")]
    sys.path[:0] = paths
    importlib.invalidate_caches()
    try:
        names = ("double", "lab", "acme_provider.provider", "test_conformance")
        yield {name: importlib.import_module(name) for name in names}
    finally:
        for path in paths:
            sys.path.remove(path)
        for name in [name for name in sys.modules if name.split(".")[0] in _OURS]:
            del sys.modules[name]
