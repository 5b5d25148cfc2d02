"""What tests of several parts ask for."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    """Of a server that nobody asks."""
    path = tmp_path / "kubeconfig"
    path.write_text(
        '{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}], '
        '"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]}'
    )
    return str(path)
