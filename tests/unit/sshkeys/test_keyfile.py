"""The key file: what it may hold, what is refused without being shown, and when a change of it
counts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controllers.sshkeys.keyfile import LARGEST, KeyFile, KeyFileProblems, parse_keys
from tests.support.sshkeys import OTHER, PRIVATE, PUBLIC, SHOWN, fingerprint, leaks


def lines(keys: object) -> list[str]:
    return [key.line.decode() for key in keys]  # type: ignore[attr-defined]  # a sequence of keys


def test_several_keys_with_comments_and_empty_lines_each_once() -> None:
    text = f"# the team\n\n{PUBLIC} ada@desk\r\n  {OTHER}\n{PUBLIC} once more\n   # the end"
    assert lines(parse_keys(text.encode())) == [PUBLIC, OTHER]
    assert lines(parse_keys(f"{PUBLIC} BEGIN of my PRIVATE KEY collection".encode())) == [PUBLIC]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PRIVATE, ["it is a private key, which must stay with its owner"]),
        (f"{PUBLIC}\n{PRIVATE}", ["it is a private key"]),
        ("PuTTY-User-Key-File-3: ssh-ed25519\nsentinel", ["it is a private key"]),
        ("---- BEGIN SSH2 PUBLIC KEY ----\nsentinel\n", ["ssh-keygen -i"]),
        ("", ["it holds no key"]),
        ("# none yet\n", ["it holds no key"]),
        (
            f"{PUBLIC}\nssh-ed25519 {OTHER.split()[1][:-4]}\nsentinel {OTHER}\n",
            ["line 2: it is damaged", "line 3: it does not begin with the type"],
        ),
        (f"{PUBLIC} {'x' * LARGEST}", ["it is larger than 65536 bytes"]),
        ("\n".join(f"# {number}" for number in range(9)) + f'\ncommand="sentinel" {PUBLIC}', ["line 10: it does not"]),
    ],
)
def test_all_that_is_wrong_is_told_and_none_of_it_shown(text: str, said: list[str]) -> None:
    with pytest.raises(KeyFileProblems) as caught:
        parse_keys(text.encode())
    assert len(caught.value.problems) == len(said)
    for problem, part in zip(caught.value.problems, said, strict=True):
        assert part in problem
    assert leaks(str(caught.value), repr(caught.value)) == []


def test_a_change_counts_when_two_looks_show_the_same(tmp_path: Path) -> None:
    path = tmp_path / "keys.pub"
    path.write_text(PUBLIC)
    file = KeyFile(str(path))
    assert lines(file.keys.values()) == [PUBLIC]
    assert list(file.keys) == [SHOWN]
    assert not file.look()
    path.write_text(f"{PUBLIC}\n{OTHER[:30]}")  # half written
    assert not file.look()
    path.write_text(f"{PUBLIC}\n{OTHER}")
    assert not file.look()
    assert file.look()
    assert lines(file.keys.values()) == [PUBLIC, OTHER]
    assert not file.look()


def test_the_volume_of_a_secret_is_turned_to_another_folder(tmp_path: Path) -> None:
    for number, key in enumerate((PUBLIC, OTHER)):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "keys.pub").write_text(key)
    data = tmp_path / "..data"
    data.symlink_to("..0")
    (tmp_path / "keys.pub").symlink_to("..data/keys.pub")
    file = KeyFile(str(tmp_path / "keys.pub"))
    new = tmp_path / "..data_tmp"
    new.symlink_to("..1")
    new.rename(data)
    assert not file.look()
    assert file.look()
    assert list(file.keys) == [fingerprint(OTHER)]


@pytest.mark.parametrize("bad", [PRIVATE, "", None], ids=["private", "empty", "gone"])
def test_what_cannot_be_used_is_told_once_and_the_keys_stay(tmp_path: Path, bad: str | None) -> None:
    path = tmp_path / "keys.pub"
    path.write_text(PUBLIC)
    file = KeyFile(str(path))
    path.unlink()
    if bad is not None:
        path.write_text(bad)
    assert not file.look()
    with pytest.raises(KeyFileProblems) as caught:
        file.look()
    assert leaks(str(caught.value)) == []
    assert not file.look()
    assert list(file.keys) == [SHOWN]
    assert not any(leaks(str(value)) for value in vars(file).values() if value is not file.keys)
    path.write_text(PUBLIC)
    assert not file.look()
    assert file.look(), "it can be used again, and that is worth a line"


def test_what_is_no_file_does_not_hold_anybody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, said in (("pipe", "not a regular file"), ("", "cannot be read: Is a directory"), ("no", "No such file")):
        with pytest.raises(KeyFileProblems, match=said):
            KeyFile(str(tmp_path / name))
