"""`python -m cloudprovider chart` writes the Helm chart."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudprovider.commands import chart
from cloudprovider.commands.cli import main

ROOT = Path(__file__).parents[3]


def all_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_chart_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "chart"
    assert main(["chart", str(folder)]) == 0
    source = ROOT / "examples" / "deploy" / "chart"
    assert {path.relative_to(folder) for path in all_of(folder)} == {
        path.relative_to(source) for path in all_of(source)
    }
    assert main(["chart", str(folder)]) == 2
    assert "exists already" in capsys.readouterr().err
    monkeypatch.setattr(chart, "_PACKAGE", tmp_path / "elsewhere" / "cloudprovider")
    assert main(["chart", str(tmp_path / "other")]) == 1
    assert "has no chart" in capsys.readouterr().err
