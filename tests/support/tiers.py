"""Tiers of tests that need a program which is not a Python package: the real API server, kubelet,
Go's manager, helm and others.

Where the program is not there the test is skipped with the reason; where the environment variable
of the tier is set, as in CI, it fails. tests/conftest.py sums up at the end of a run what was left
out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeVar

import pytest

from tests.lab.envtest.build import AssetsMissing

REQUIRE_SERVER: Final = "REQUIRE_REAL_API_SERVER"
REQUIRE_KUBELET: Final = "REQUIRE_REAL_KUBELET"

T = TypeVar("T")


def need(tier: str, find: Callable[[], T], *, required: str = REQUIRE_SERVER) -> T:
    """What `find` returns; where it raises AssetsMissing the test is skipped, or fails."""
    try:
        return find()
    except AssetsMissing as missing:
        if os.environ.get(required):
            pytest.fail(f"{required} is set, but {missing}")
        pytest.skip(f"{tier}: {missing}")
