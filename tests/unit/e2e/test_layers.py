"""Image archives: what `ctr images import` reads."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.image.layers import Layer, write_archive


def layer(folder: Path, name: str = "layer.tar") -> Path:
    target = folder / name
    source = folder / "program"
    source.write_bytes(b"\x7fELF")
    with Layer(target) as made:
        made.folder("tmp", mode=0o1777)
        made.file("usr/bin/program", source)
        made.link("usr/bin/sh", "program")
        made.text("etc/passwd", "root:x:0:0::/:/bin/sh\n")
    return target


def test_a_layer_has_its_files_and_the_folders_above_them(tmp_path: Path) -> None:
    with tarfile.open(layer(tmp_path)) as tar:
        entries = {entry.name: entry for entry in tar}
        assert list(entries) == ["tmp", "usr", "usr/bin", "usr/bin/program", "usr/bin/sh", "etc", "etc/passwd"]
        assert entries["tmp"].mode == 0o1777
        assert entries["usr"].isdir()
        assert entries["usr/bin/program"].mode == 0o755
        assert entries["usr/bin/sh"].linkname == "program"
        assert {entry.mtime for entry in entries.values()} == {0}
        content = tar.extractfile("usr/bin/program")
        assert content is not None
        assert content.read() == b"\x7fELF"


@pytest.mark.parametrize("name", ["/etc/passwd", "usr/bin/program"])
def test_a_path_that_is_absolute_or_added_twice_is_refused(tmp_path: Path, name: str) -> None:
    with Layer(tmp_path / "layer.tar") as made:
        made.text("usr/bin/program", "")
        with pytest.raises(ValueError, match="no leading slash and is added once"):
            made.text(name, "")


def test_the_manifest_names_layers_and_configuration_by_their_digests(tmp_path: Path) -> None:
    one = layer(tmp_path)
    two = tmp_path / "two.tar"
    with Layer(two) as made:
        made.text("greeting", "hello")
    target = tmp_path / "image.tar"
    write_archive(target, ["registry.example/a:1"], [one, two], {"Cmd": ["sh"]})
    with tarfile.open(target) as archive:
        read = {entry.name: archive.extractfile(entry) for entry in archive}
        content = {name: stream.read() for name, stream in read.items() if stream is not None}
    [manifest] = json.loads(content["manifest.json"])
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (one, two)]
    assert manifest["RepoTags"] == ["registry.example/a:1"]
    assert manifest["Layers"] == [f"{digest}.tar" for digest in digests]
    assert [content[name] for name in manifest["Layers"]] == [one.read_bytes(), two.read_bytes()]
    assert manifest["Config"] == f"{hashlib.sha256(content[manifest['Config']]).hexdigest()}.json"
    config = json.loads(content[manifest["Config"]])
    assert config["rootfs"] == {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]}
    assert (config["os"], config["config"]) == ("linux", {"Cmd": ["sh"]})


def test_the_same_content_makes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_archive(tmp_path / f"{name}.tar", ["a:1"], [layer(tmp_path / name)], {})
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


@pytest.mark.parametrize("names", [[], ["registry.example:5000/a"], ["a:1", "b"]])
def test_a_name_without_a_tag_is_refused_before_anything_is_written(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(ValueError, match="names with tags"):
        write_archive(tmp_path / "image.tar", names, [], {})
    assert not list(tmp_path.iterdir())


def test_an_archive_that_fails_is_not_there(tmp_path: Path) -> None:
    broken = tmp_path / "broken.tar"
    with pytest.raises(FileNotFoundError):
        write_archive(tmp_path / "image.tar", ["a:1"], [broken], {})
    assert not (tmp_path / "image.tar").exists()


def test_a_layer_is_an_ordinary_tar_file(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(layer(tmp_path).read_bytes()), mode="r:") as tar:
        assert len(tar.getnames()) == 7
