"""The documentation site builds without a warning. What `make docs` writes is not looked at here:
that takes longer."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import cloudprovider
from tests.support.pages import ROOT, pages
from tests.support.remembered import remembered


def test_the_site_builds_without_a_warning(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Every page is read, and every reference resolved; no page is written."""
    docs = ROOT / "docs"  # but for `repository`, which the build makes
    read = [file for file in sorted(docs.rglob("*.*")) if file.is_file() and docs / "repository" not in file.parents]
    with remembered(request, "site", [*read, *pages()]) as known:
        if not known:
            _build(tmp_path)


def _build(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "dummy", "docs", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_public_name_of_the_contract_is_in_the_reference_once() -> None:
    text = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    shown: Counter[tuple[str, object]] = Counter()
    for name, some in re.findall(r"^\.\. automodule:: (\S+)\n   :members:(.*)$", text, re.M):
        module = importlib.import_module(name)
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == name]
        members = some.replace(",", " ").split() or getattr(module, "__all__", own)
        shown.update((key, id(getattr(module, key))) for key in members)
    assert [key for key, times in shown.items() if times > 1] == []
    for package in (cloudprovider, cloudprovider.helpers):
        public = {name: getattr(package, name) for name in package.__all__}
        ours = {name: it for name, it in public.items() if getattr(it, "__module__", "").startswith("cloudprovider.")}
        assert len(ours) > 20
        assert [name for name, it in ours.items() if (name, id(it)) not in shown] == []
