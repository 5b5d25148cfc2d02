"""The documentation site builds without a warning. What `make docs` writes is not looked at here: that takes longer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.pages import ROOT


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Every page is read, and every reference resolved; no page is written."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "dummy", "docs", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
