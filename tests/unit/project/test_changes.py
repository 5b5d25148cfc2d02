"""The fragments of changes/: each is named and written so that towncrier can put it into
CHANGELOG.md."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests import release

ROOT = Path(__file__).parents[3]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
KINDS = [kind["directory"] for kind in SETTINGS["type"]]
FRAGMENTS = [path for path in (ROOT / "changes").iterdir() if path.name not in ("README.md", "template.md")]


def problems(name: str, text: str) -> list[str]:
    """What is wrong with a fragment. Pure."""
    lines = text.splitlines()
    checks = {
        f"its name is not NAME.KIND.md, KIND one of {', '.join(KINDS)}": re.fullmatch(
            rf"{SETTINGS['issue_pattern']}\.({'|'.join(KINDS)})\.md", name
        ),
        "it has not one or two lines": len(lines) in (1, 2),
        "a line is empty, or has more than 110 characters": all(0 < len(line) <= 110 for line in lines),
        "it begins with a bullet, a heading or a blank": re.match(r"[^-*#\s]", text),
    }
    return [f"changes/{name}: {problem}" for problem, holds in checks.items() if not holds]


def towncrier(root: Path, *options: str) -> str:
    command = [sys.executable, "-m", "towncrier", "build", "--version", "9.9.9", "--date", "2031-01-01", *options]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


def test_fragments_are_well_formed() -> None:
    assert [problem for path in FRAGMENTS for problem in problems(path.name, path.read_text())] == []


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("routes.new.md", "Routes.\n", "its name"),
        ("Routes.added.md", "Routes.\n", "its name"),
        ("routes.added.md", "one\ntwo\nthree\n", "one or two lines"),
        ("routes.added.md", "", "one or two lines"),
        ("routes.added.md", "one\n\n", "empty"),
        ("routes.added.md", "long " * 30, "more than"),
        ("routes.added.md", "- Routes.\n", "bullet"),
    ],
)
def test_what_is_wrong_is_told(name: str, text: str, problem: str) -> None:
    assert any(problem in found for found in problems(name, text))


def test_nothing_is_written_into_the_changelog_between_releases() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.*)", text, re.M)
    assert [one for one in headings if not re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", one)] == []
    assert text.index("<!-- towncrier release notes start -->") < text.index(headings[0])


def test_the_fragments_lead_to_pages_that_are_there() -> None:
    for link in re.findall(r"\]\(([^)#:]+)[#)]", towncrier(ROOT, "--draft")):
        assert (ROOT / link).exists(), link


def test_a_release_moves_the_fragments_to_the_changelog(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "changes", tmp_path / "changes", ignore=lambda _, names: set(names) - {"template.md"})
    for file in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / file, tmp_path)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / "changes" / "b-second.added.md").write_text("Second,\nin [two](../docs/a.md) lines.\n")
    (tmp_path / "changes" / "a-first.added.md").write_text("First.\n")
    (tmp_path / "changes" / "gone.breaking.md").write_text("Gone: do this.\n")
    before = (tmp_path / "CHANGELOG.md").read_text()

    towncrier(tmp_path, "--yes")

    after = (tmp_path / "CHANGELOG.md").read_text()
    assert release.notes(after, "9.9.9") == (
        "### Breaking\n\n- Gone: do this.\n\n### Added\n\n- First.\n- Second,\n  in [two](docs/a.md) lines."
    )
    head, marker, rest = before.partition("<!-- towncrier release notes start -->\n")
    assert after.startswith(f"{head}{marker}\n## 9.9.9 - 2031-01-01\n\n### Breaking"), "newest first"
    assert after.endswith(f"lines.\n\n{rest.lstrip()}"), "what was there stays"
    assert [path.name for path in (tmp_path / "changes").iterdir()] == ["template.md"]
