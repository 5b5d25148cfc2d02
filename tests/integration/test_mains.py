"""The thin mains of the example providers, as their images run them: ``python -m NAME.main``."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
MAINS = sorted(EXAMPLES.glob("*/*_provider/main.py"))


def test_all_are_found() -> None:
    assert len(MAINS) == len(sorted(EXAMPLES.glob("*/*_provider"))) >= 6


@pytest.mark.row("O21")
@pytest.mark.parametrize("main", MAINS, ids=lambda main: main.parent.name)
def test_a_main_runs_the_manager(
    main: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["manager", "--no-such-flag"])
    monkeypatch.syspath_prepend(str(main.parents[1]))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(main), run_name="__main__")
    assert ended.value.code == 2
    assert "--no-such-flag" in capsys.readouterr().err
