"""The documentation site builds without a warning. What `make docs` writes is not looked at here:
that takes longer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import cloudprovider
from tests.support.pages import ROOT


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Every page is read, and every reference resolved; no page is written."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "dummy", "docs", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_public_name_of_the_contract_is_in_the_reference() -> None:
    text = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    shown = set(re.findall(r"^\.\. automodule:: (\S+)$", text, re.M))
    assert len(shown) > 10
    for package in (cloudprovider, cloudprovider.helpers):
        public = {name: getattr(getattr(package, name), "__module__", "") for name in package.__all__}
        ours = {name: module for name, module in public.items() if module.startswith("cloudprovider.")}
        assert {name: module for name, module in ours.items() if module not in shown} == {}
