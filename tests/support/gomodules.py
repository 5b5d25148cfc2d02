"""Kubernetes' own Go modules where they are on this machine: `make bench` brings them."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

MANAGER = Path(__file__).parents[1] / "lab" / "bench" / "goccm"
"""The Go manager that we are measured against, whose release is that of the official client."""


@functools.cache
def module(path: str) -> Path:
    """The folder of that module, of the version that the Go manager is built with; skips the test
    without it. Nothing is downloaded."""
    go = shutil.which("go")
    if go is None:
        pytest.skip(f"{path}: no Go toolchain")
    # -mod=readonly, and no proxy: only what is in the module cache already.
    found = subprocess.run(
        [go, "list", "-m", "-json", path],
        cwd=MANAGER,
        env={**os.environ, "GOPROXY": "off", "GOFLAGS": "-mod=readonly"},
        capture_output=True,
        text=True,
        check=False,
    )
    folder = json.loads(found.stdout or "{}")
    folder = (folder.get("Replace") or folder).get("Dir", "") if isinstance(folder, dict) else ""
    if found.returncode or not folder:
        pytest.skip(f"{path}: not in the module cache of Go")
    return Path(folder)
