"""Folders are gone at once, and deleted in the background."""

import subprocess
from pathlib import Path

from tests.cluster.discard import discard


def test_a_folder_is_gone_at_once_and_deleted(tmp_path: Path) -> None:
    (tmp_path / "lc" / "disk").mkdir(parents=True)
    (tmp_path / "lc.gone-1-2" / "disk").mkdir(parents=True)  # of one that was cut off
    (tmp_path / "lc.lock").touch()
    (tmp_path / "lc-logs").mkdir()
    commands: list[list[str]] = []
    discard(tmp_path / "lc", lambda command: commands.append([*command]))
    assert not (tmp_path / "lc").exists()
    [command] = commands
    subprocess.run(command, check=True)
    assert {path.name for path in tmp_path.iterdir()} == {"lc.lock", "lc-logs"}


def test_nothing_is_done_where_there_is_nothing(tmp_path: Path) -> None:
    discard(tmp_path / "lc", lambda command: 1 / 0)
