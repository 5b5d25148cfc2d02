"""Finds, or builds once, the kube-apiserver and etcd of the third test tier.

``KUBEBUILDER_ASSETS`` wins where it is set (the envtest convention). Otherwise both programs are built by the Go
toolchain from the public modules pinned in ``apiserver/go.mod`` and ``etcd/go.mod``, and kept in the user's cache under
a name made of those pins, so that a second run finds them at once and a changed pin builds anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = {"etcd": HERE / "etcd", "kube-apiserver": HERE / "apiserver"}


class AssetsMissing(Exception):
    """The real API server cannot be had here; the message says what to install."""


def assets() -> Path:
    """The folder that holds ``kube-apiserver`` and ``etcd``, building them where needed (minutes, once).

    Raises:
        AssetsMissing: ``KUBEBUILDER_ASSETS`` lacks a program, or neither it nor a Go toolchain is there.
        subprocess.CalledProcessError: the Go build failed; its output is on standard error.

    May be called from many processes at once: a file lock lets one of them build.
    """
    given = os.environ.get("KUBEBUILDER_ASSETS")
    if given:
        missing = [name for name in PROGRAMS if not (Path(given) / name).is_file()]
        if missing:
            raise AssetsMissing(f"KUBEBUILDER_ASSETS={given} lacks {' and '.join(missing)}")
        return Path(given)
    folder = _cache() / _pins()
    if all((folder / name).is_file() for name in PROGRAMS):
        return folder
    go = shutil.which("go")
    if go is None:
        raise AssetsMissing(
            "the real API server needs a Go toolchain to build it, or KUBEBUILDER_ASSETS naming a folder with "
            "kube-apiserver and etcd"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name, source in PROGRAMS.items():
            if not (folder / name).is_file():
                print(f"building {name} into {folder} (once; the API server takes some minutes)", flush=True)
                _build(go, source, folder / name)
    return folder


def _build(go: str, source: Path, target: Path) -> None:
    partial = target.with_suffix(".partial")
    command = [go, "build", "-trimpath", "-ldflags", "-s -w", "-o", str(partial), "."]
    subprocess.run(command, cwd=source, env={**os.environ, "CGO_ENABLED": "0"}, check=True)
    partial.rename(target)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kubernetes-cloud-provider" / "envtest"


def _pins() -> str:
    digest = hashlib.sha256()
    for source in PROGRAMS.values():
        for file in ("go.mod", "go.sum", "main.go"):
            digest.update((source / file).read_bytes())
    return digest.hexdigest()[:16]
