"""ssh-key-controller on the command line: off unless it is named, and all that is wrong with its
flags at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from controllers.catalog import CATALOG
from controllers.cli import main as cli
from controllers.registration.entry import enabled
from tests.support.sshkeys import OTHER, PRIVATE, PUBLIC, leaks


def refused(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    assert cli.main(["--cloud-provider=fake", *flags]) == cli.BAD_FLAGS
    return capsys.readouterr().err


def test_it_is_off_by_default() -> None:
    names = [entry.name for entry in enabled(("*",), CATALOG)]
    assert "ssh-key-controller" not in names
    assert "ssh-key-controller" in [entry.name for entry in enabled(("*", "ssh-key"), CATALOG)]


def test_what_is_missing_is_told_together_with_what_is_wrong(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    told = refused(capsys, "--controllers=ssh-key", "--controller-start-interval=-1s")
    assert "--ssh-user: ssh-key-controller needs it" in told
    assert "--ssh-keyfile: ssh-key-controller needs it" in told
    assert "--controller-start-interval=-1s" in told
    path = tmp_path / "keys"
    path.write_text(f"{PUBLIC}\nssh-rsa {OTHER.split()[1]}\nsentinel\n")
    told = refused(capsys, "--controllers=ssh-key", f"--ssh-keyfile={path}", "--ssh-user=a b")
    assert f"--ssh-keyfile={path}: line 2: it is damaged" in told
    assert f"--ssh-keyfile={path}: line 3: it does not begin with the type" in told
    assert "--ssh-user=a b: must be a user's name" in told
    path.write_text(PRIVATE)
    told += refused(capsys, "--controllers=ssh-key", f"--ssh-keyfile={path}", "--ssh-user=ada")
    assert "it is a private key, which must stay with its owner" in told
    assert leaks(told) == []


def test_without_the_controller_nobody_reads_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys, "--ssh-keyfile=/no/such/file", "--controller-start-interval=-1s")
    assert "1 problem with the flags" in told
