"""The bench of these tests: the controller's parts around one node."""

from __future__ import annotations

import pytest

from tests.unit.service.bench import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench("n1")


@pytest.fixture
def served(bench: Bench) -> Bench:
    """With the Service default/web, whose load balancer is built."""
    bench.serve()
    return bench
