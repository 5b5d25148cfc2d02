"""The name of the manager's image in the cache, and which images are kept there."""

import os
from pathlib import Path

import pytest

from tests.image.archives import KEPT, image_of, least_used


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    root = tmp_path / "sources"
    for name in ("requirements.txt", "requirements-build.txt", "pyproject.toml", "README.md", "LICENSE"):
        root.mkdir(exist_ok=True)
        (root / name).write_text(name)
    for name in ("cloudprovider", "controllers", "provider"):
        (root / name).mkdir()
        (root / name / "__init__.py").write_text("")
    return root


def tag(root: Path) -> str:
    return image_of(root / "provider", root=root).tag


def test_the_same_content_has_the_same_name_wherever_it_is(sources: Path, tmp_path: Path) -> None:
    before = tag(sources)
    sources.rename(tmp_path / "moved")
    assert tag(tmp_path / "moved") == before


@pytest.mark.parametrize(
    "changed", ["requirements.txt", "controllers/__init__.py", "controllers/new.py", "provider/requirements.txt"]
)
def test_another_content_has_another_name(sources: Path, changed: str) -> None:
    before = tag(sources)
    (sources / changed).write_text("changed")
    assert tag(sources) != before


@pytest.mark.parametrize("changed", ["provider/tests/test.py", "provider/.venv/x", "provider/__pycache__/x.pyc"])
def test_what_the_image_does_not_hold_does_not_count(sources: Path, changed: str) -> None:
    before = tag(sources)
    (sources / changed).parent.mkdir()
    (sources / changed).write_text("changed")
    assert tag(sources) == before


def test_the_images_that_were_used_last_are_kept(tmp_path: Path) -> None:
    archives = [tmp_path / f"manager-{number}.tar" for number in range(KEPT + 2)]
    for number, archive in enumerate(archives):
        archive.touch()
        os.utime(archive, (number, number))
    assert least_used(reversed(archives)) == [archives[1], archives[0]]
