"""`new --diff` shows what a newer template changes, and nothing that only the package's owner
did."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cloudprovider.commands import cli, newdiff
from cloudprovider.commands.cli import main
from cloudprovider.commands.new import Names, render


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    assert main(["new", "acme", "--http", "--directory", str(folder)]) == 0
    return folder


def newer(monkeypatch: pytest.MonkeyPatch, **texts: str | None) -> None:
    """The template of a newer version: other texts, None for a file that it has no more."""

    def rendered(names: Names) -> dict[str, str]:
        found = {**render(names), **{path.replace("__", "/"): text for path, text in texts.items() if text is not None}}
        return {path: text for path, text in found.items() if texts.get(path.replace("/", "__"), "") is not None}

    monkeypatch.setattr(cli, "render", rendered)


def all_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_nothing_is_shown_of_what_the_owner_alone_changed(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    api = package / "acme_provider" / "api.py"
    api.write_text(api.read_text().replace("/servers", "/machines"))
    (package / "acme_provider" / "routes.py").unlink()
    (package / "acme_provider" / "own.py").write_text("mine = 1\n")
    capsys.readouterr()
    assert main(["new", "--diff", str(package)]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "the template would change nothing\n")


def test_what_a_newer_template_changes_is_a_diff_that_can_be_applied(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (package / "Dockerfile").write_text("FROM mine\n")
    (package / "acme_provider" / "routes.py").unlink()  # by its owner: it does not come back, however it changes
    newer(
        monkeypatch,
        Dockerfile="FROM theirs\n",
        acme_provider__main="",
        tests__new_one="one = 1\n",
        **{"README.md": None, "acme_provider__config.py": "settings = 2\n", "acme_provider__routes.py": ""},
    )
    before = all_of(package)
    capsys.readouterr()
    monkeypatch.chdir(package)
    assert main(["new", "--diff"]) == 1
    shown = capsys.readouterr()
    assert "# Dockerfile: changed in the template, and by you\n--- a/Dockerfile\n+++ b/Dockerfile\n" in shown.out
    assert "# README.md: the template has it no more\n--- a/README.md\n+++ /dev/null\n" in shown.out
    assert "# acme_provider/config.py: changed in the template\n" in shown.out
    assert "# tests/new_one: new in the template\n--- /dev/null\n+++ b/tests/new_one\n" in shown.out
    assert "5 files would change" in shown.err
    assert all_of(package) == before
    applied = subprocess.run(["git", "apply", "-"], cwd=package, input=shown.out, text=True, check=False)
    assert applied.returncode == 0
    assert (package / "acme_provider" / "config.py").read_text() == "settings = 2\n"
    assert not (package / "README.md").exists()


def test_a_package_without_the_note_is_compared_as_a_whole(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (package / newdiff.NOTE).unlink()
    assert main(["new", "--diff", str(package)]) == 2
    assert "Fix: new NAME --diff PATH" in capsys.readouterr().err
    assert main(["new", "acme", "--http", "--diff", str(package)]) == 0
    (package / "Dockerfile").write_text("FROM mine\n")
    assert main(["new", "acme", "--http", "--diff", str(package)]) == 1
    assert "# Dockerfile: differs from the template\n" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "[]", '{"name": 1, "http": true, "files": {}}', '{"name": "acme"}'])
def test_a_note_that_cannot_be_read(package: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (package / newdiff.NOTE).write_text(text)
    assert main(["new", "--diff", str(package)]) == 2
    assert ".cloudprovider.json cannot be read" in capsys.readouterr().err


def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new"]) == 2
    assert "new needs a NAME" in capsys.readouterr().err
    (tmp_path / "Dockerfile").write_bytes(b"\xff")
    assert main(["new", "acme", "--diff", str(tmp_path)]) == 2
    assert "cannot be compared" in capsys.readouterr().err


def test_a_note_leads_to_no_file_outside_of_the_package(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (package.parent / "private").write_text("s3cret")
    for path in ("../private", str(package.parent / "private"), "acme_provider/../../private"):
        note = newdiff.Note("acme", True, {path: "0"})
        (package / newdiff.NOTE).write_text(note.text())
        assert main(["new", "--diff", str(package)]) == 2
        shown = capsys.readouterr()
        assert "cannot be read" in shown.err
        assert "s3cret" not in shown.out


def test_the_package_of_another_provider(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["new", "other", "--http", "--diff", str(package)]) == 2
    shown = capsys.readouterr()
    assert shown.err == f"the package in {package} is of 'acme', not of 'other'\n"
    assert shown.out == ""
    assert main(["new", "acme", "--diff", str(package / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_a_file_without_a_last_line_break_is_patched(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = package / "acme_provider" / "main.py"
    target.write_text("old = 1")
    newer(monkeypatch, **{"acme_provider/main.py": "new = 1\n"})
    capsys.readouterr()
    assert main(["new", "--diff", str(package)]) == 1
    subprocess.run(["git", "apply", "-"], cwd=package, input=capsys.readouterr().out, text=True, check=True)
    assert target.read_text() == "new = 1\n"
