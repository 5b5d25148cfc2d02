"""Images without a builder."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

from tests.cluster.staticimages import busybox_image, static_image


def read(archive: Path) -> tuple[dict[str, object], dict[str, object], tarfile.TarFile]:
    with tarfile.open(archive) as tar:
        content = {name: tar.extractfile(name) for name in tar.getnames()}
        parts = {name: file.read() for name, file in content.items() if file is not None}
    [manifest] = json.loads(parts["manifest.json"])
    config = json.loads(parts[manifest["Config"]])
    layer = parts[manifest["Layers"][0]]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    assert manifest["Config"] == f"{hashlib.sha256(parts[manifest['Config']]).hexdigest()}.json"
    return manifest, config["config"], tarfile.open(fileobj=io.BytesIO(layer))


def test_an_image_has_its_name_command_and_program(tmp_path: Path) -> None:
    program = tmp_path / "serve"
    program.write_bytes(b"\x7fELF")
    static_image(tmp_path / "a.tar", "registry.local/serve:1", program, ["/bin/serve"])
    manifest, config, layer = read(tmp_path / "a.tar")
    with layer:
        assert manifest["RepoTags"] == ["registry.local/serve:1"]
        assert config == {"Cmd": ["/bin/serve"], "Env": ["PATH=/bin"]}
        assert layer.getmember("bin/serve").mode == 0o755
        assert layer.getmember("tmp").mode == 0o1777


def test_the_commands_of_busybox_are_links_to_it(tmp_path: Path) -> None:
    program = tmp_path / "busybox"
    program.write_text("#!/bin/sh\nprintf 'busybox\\nsh\\nwget\\n'\n")
    program.chmod(0o755)
    busybox_image(tmp_path / "a.tar", "registry.local/busybox:1", program, ["sh"])
    with read(tmp_path / "a.tar")[2] as layer:
        links = {one.name: one.linkname for one in layer.getmembers() if one.issym()}
    assert links == {"bin/sh": "busybox", "bin/wget": "busybox"}


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    program = tmp_path / "busybox"
    program.write_bytes(b"\x7fELF")
    for name in ("a.tar", "b.tar"):
        static_image(tmp_path / name, "registry.local/busybox:1", program, ["sh"], ["sh"])
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
