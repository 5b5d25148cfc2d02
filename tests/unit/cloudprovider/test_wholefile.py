"""Files that are replaced as a whole."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cloudprovider.internal.output import write_whole


def test_the_new_file_has_its_own_mode_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o666)
    write_whole(path, b"new", 0o600)
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_replaced_stays(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    (path / "inner").mkdir(parents=True)
    with pytest.raises(OSError, match="folder"):
        write_whole(path, b"new", 0o600)
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "no" / "file", b"new", 0o600)
