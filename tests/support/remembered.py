"""Slow checks of files, which are not run again until something that they read has changed.

What passed is remembered in pytest's cache: a fresh checkout, as in CI, runs every check.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.pages import ROOT


@contextmanager
def remembered(request: pytest.FixtureRequest, name: str, files: Iterable[Path]) -> Iterator[bool]:
    """For the with statement: whether the check of that name passed before with these same files,
    packages, examples and locked dependencies.

    If the body raises nothing, it has passed.
    """
    cache: pytest.Cache | None = getattr(request.config, "cache", None)  # absent with -p no:cacheprovider
    key, now = f"remembered/{name}", _digest(files)
    yield cache is not None and cache.get(key, "") == now
    if cache is not None:
        cache.set(key, now)


def _digest(files: Iterable[Path]) -> str:
    read = [*files, ROOT / "requirements-dev.txt", ROOT / "pyproject.toml"]
    for folder in ("cloudprovider", "controllers", "examples", "tests/documented", "tests/typing"):
        read += sorted((ROOT / folder).rglob("*.py"))
    whole = hashlib.sha256(sys.version.encode())
    for file in read:
        whole.update(f"{file.name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()
