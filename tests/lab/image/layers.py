"""Container images without a builder: layers are tar files, and an archive is what
`ctr images import` and `docker load` read.

The same content makes the same bytes: no times, no owners, files in the order in which they are
added.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_CHUNK = 1 << 20
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Layer:
    """A layer that is being written to the file `target`; a context manager, closed at its end.

    Paths are those in the image, without a leading slash. The folders above a file are made with
    it.
    """

    def __init__(self, target: Path) -> None:
        self._tar = tarfile.open(target, "w", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self._names: set[str] = set()

    def __enter__(self) -> Layer:
        return self

    def __exit__(self, *_: object) -> None:
        self._tar.close()

    def folder(self, name: str, *, mode: int = 0o755) -> None:
        if name in self._names:
            return
        self._above(name)
        entry = self._entry(name, mode)
        entry.type = tarfile.DIRTYPE
        self._tar.addfile(entry)

    def text(self, name: str, content: str) -> None:
        self._above(name)
        data = content.encode()
        entry = self._entry(name, 0o644)
        entry.size = len(data)
        self._tar.addfile(entry, io.BytesIO(data))

    def file(self, name: str, source: Path, *, mode: int = 0o755) -> None:
        """Add the content of `source`; the link itself is followed."""
        self._above(name)
        entry = self._entry(name, mode)
        entry.size = source.stat().st_size
        with source.open("rb") as stream:
            self._tar.addfile(entry, stream)

    def link(self, name: str, to: str) -> None:
        self._above(name)
        entry = self._entry(name, 0o777)
        entry.type = tarfile.SYMTYPE
        entry.linkname = to
        self._tar.addfile(entry)

    def _above(self, name: str) -> None:
        parent, slash, _ = name.rpartition("/")
        if slash:
            self.folder(parent)

    def _entry(self, name: str, mode: int) -> tarfile.TarInfo:
        if name.startswith("/") or name in self._names:
            raise ValueError(f"{name}: a path in an image has no leading slash and is added once")
        self._names.add(name)
        entry = tarfile.TarInfo(name)
        entry.mode = mode
        return entry


def write_archive(target: Path, names: Sequence[str], layers: Sequence[Path], config: Mapping[str, Any]) -> None:
    """Write a docker-archive of one image for this machine's architecture.

    Args:
        target: the archive; it appears whole or not at all.
        names: the image's names with their tags; at least one.
        layers: tar files, lowest first; one may not be given twice.
        config: what the image says about its process: Entrypoint, Cmd, Env, WorkingDir.

    Raises ValueError where there is no name, or a name has no tag.
    """
    untagged = [name for name in names if ":" not in name.rpartition("/")[2]]
    if not names or untagged:
        raise ValueError(f"an image needs names with tags: {untagged or 'none is given'}")
    digests = {path: _sha256(path) for path in layers}
    content = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digests[path]}" for path in layers]},
    }
    described = json.dumps(content, sort_keys=True).encode()
    config_name = f"{hashlib.sha256(described).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": list(names), "Layers": [f"{digests[path]}.tar" for path in layers]}]
    partial = target.with_name(f"{target.name}.partial")
    with tarfile.open(partial, "w") as archive:
        for name, data in ((config_name, described), ("manifest.json", json.dumps(manifest).encode())):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        for path in layers:
            entry = tarfile.TarInfo(f"{digests[path]}.tar")
            entry.size = path.stat().st_size
            with path.open("rb") as stream:
                archive.addfile(entry, stream)
    partial.rename(target)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
