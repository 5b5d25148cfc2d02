"""What tests of several parts ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from controllers.runtime.metrics import Metrics
from tests.support.clock import FakeClock


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    """Of a server that nobody asks."""
    path = tmp_path / "kubeconfig"
    path.write_text(
        '{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}], '
        '"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]}'
    )
    return str(path)


@pytest.fixture
def clock() -> FakeClock:
    """Stands still until the test moves it; begins at 1,000 s."""
    return FakeClock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()
