"""Container images of one static program each, as docker-archives: no registry and no builder.

The same inputs give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["APPLETS", "BUSYBOX", "COREDNS", "PAUSE", "busybox_image", "static_image"]

PAUSE = "registry.local/pause:1"
BUSYBOX = "registry.local/busybox:1"
COREDNS = "registry.local/coredns:1"
APPLETS = (
    "cat", "date", "echo", "env", "grep", "head", "hostname", "httpd", "id", "ip", "ls", "mkdir", "nc", "nslookup",
    "printf", "ps", "rm", "sed", "seq", "sh", "sleep", "tail", "true", "wget",
)  # fmt: skip
"""What a container of the busybox image finds in its PATH."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def static_image(archive: Path, name: str, program: Path, command: Sequence[str], links: Sequence[str] = ()) -> None:
    """Write an image with one program in /bin, links to it, and the folders that programs expect.

    A pod that names no command runs `command`. The archive is replaced in one step.
    """
    layer = _layer(program, links)
    config = json.dumps(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Cmd": list(command), "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    partial = archive.with_suffix(".partial")
    partial.write_bytes(_tar({config_name: config, "layer.tar": layer, "manifest.json": manifest}))
    partial.rename(archive)


def busybox_image(archive: Path, name: str, busybox: Path, command: Sequence[str]) -> None:
    """An image with a static busybox and its most used commands."""
    static_image(archive, name, busybox, command, APPLETS)


def _layer(program: Path, links: Sequence[str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777), ("var", 0o755)):
            made = tarfile.TarInfo(folder)
            made.type, made.mode = tarfile.DIRTYPE, mode
            tar.addfile(made)
        entry = tarfile.TarInfo(f"bin/{program.name}")
        entry.size, entry.mode = os.stat(program).st_size, 0o755
        with program.open("rb") as content:
            tar.addfile(entry, content)
        for link in links:
            made = tarfile.TarInfo(f"bin/{link}")
            made.type, made.linkname = tarfile.SYMTYPE, program.name
            tar.addfile(made)
    return buffer.getvalue()


def _tar(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
