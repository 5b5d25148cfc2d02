"""Archives in the user's cache: file systems of Debian packages, and the manager's image with one
provider.

`make image` and `make cluster` share the file systems. An image is kept under a name made of all
that goes into it, and the storage in which it was built is kept too, with a layer for each step: a
change in the provider builds the provider's layer only.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from tests.lab.image.buildah import Buildah

ROOT = Path(__file__).parents[3]
DOCKERFILE = ROOT / "examples" / "deploy" / "image" / "Dockerfile"
SUITE = "bookworm"
_ALWAYS = ("python3", "ca-certificates", "libstdc++6")  # the last for protobuf's part in C
BASES = {"base": _ALWAYS, "build-base": (*_ALWAYS, "python3-venv")}
"""The packages of the Dockerfile's BASE and BUILD_BASE."""
_SOURCES = (
    "requirements.txt", "requirements-build.txt", "pyproject.toml", "README.md", "LICENSE", "cloudprovider",
    "controllers", "examples/deploy/chart",
)  # fmt: skip
"""What the Dockerfile copies, besides the provider."""
KEPT = 6
"""Archives of images in the cache, of some 300 MB each."""
_REPOSITORY = "registry.local/cloud-controller-manager"


@frozen
class ManagerImage:
    """An image in a docker-archive. Another content has another tag."""

    archive: Path
    tag: str
    repository: str = _REPOSITORY

    @property
    def reference(self) -> str:
        return f"{self.repository}:{self.tag}"


def debian(*packages: str) -> Path:
    """A file system with these packages and what they need; kept in the user's cache."""
    target = _file_system(packages)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        partial = target.with_suffix(".partial.tar")
        excluded = [f"--dpkgopt=path-exclude=/usr/share/{place}/*" for place in ("doc", "man", "locale")]
        command = ["mmdebstrap", "--quiet", "--variant=essential", f"--include={','.join(packages)}", *excluded]
        subprocess.run([*command, SUITE, str(partial)], check=True)
        partial.rename(target)
    return target


def debian_is_cached() -> bool:
    """Whether the file systems that an image needs are there, so that mmdebstrap is not needed."""
    return all(_file_system(packages).exists() for packages in BASES.values())


def manager_image(provider: Path) -> ManagerImage:
    """The manager's image with the distribution in the folder `provider`; built if it is not in the
    cache (minutes the first time).

    Raises CalledProcessError where a step fails; its output is on stderr. One process builds at a
    time.
    """
    image = _image_of(provider)
    image.archive.parent.mkdir(parents=True, exist_ok=True)
    with (_cache() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not image.archive.exists():
            _build(image, provider)
        image.archive.touch()
        archives = sorted(_cache().glob("manager-*.tar"), key=lambda archive: archive.stat().st_mtime, reverse=True)
        for old in archives[KEPT:]:
            old.unlink()
    return image


def _image_of(provider: Path) -> ManagerImage:
    """Where that image is, or would be, in the cache; builds nothing."""
    digest = hashlib.sha256(repr((SUITE, BASES)).encode())
    for name, file in _context(provider):
        digest.update(f"{name}\0{file.stat().st_mode & 0o111}\0".encode() + file.read_bytes())
    tag = digest.hexdigest()[:16]
    return ManagerImage(_cache() / f"manager-{tag}.tar", tag)


def _file_system(packages: tuple[str, ...]) -> Path:
    return _cache() / f"{SUITE}-{'-'.join(packages)}.tar"


def _build(image: ManagerImage, provider: Path) -> None:
    storage = _cache() / "storage"
    buildah = Buildah(storage, layers=True)
    names = {}
    for name, packages in BASES.items():
        archive = debian(*packages)
        names[name] = f"{name}-{int(archive.stat().st_mtime)}"
        if not buildah.has(names[name]):
            buildah.base(names[name], archive)
    with tempfile.TemporaryDirectory(prefix="image-") as temporary:
        context = Path(temporary)
        for name, file in _context(provider):
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, context / name)
        buildah.build(
            image.reference,
            context / "Dockerfile",
            context,
            BASE=f"localhost/{names['base']}",
            BUILD_BASE=f"localhost/{names['build-base']}",
            PROVIDER="examples/provider",
        )
        partial = image.archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        buildah.push(image.reference, partial)
        partial.rename(image.archive)


def _context(provider: Path) -> Iterator[tuple[str, Path]]:
    """The files of the build, by their names in it, sorted."""
    yield "Dockerfile", DOCKERFILE
    yield "Dockerfile.dockerignore", DOCKERFILE.with_name("Dockerfile.dockerignore")
    for source in _SOURCES:
        yield from _files(ROOT / source, source)
    yield from _files(provider, "examples/provider")


def _files(source: Path, name: str) -> Iterator[tuple[str, Path]]:
    if source.is_file():
        yield name, source
        return
    for file in sorted(source.rglob("*")):
        relative = file.relative_to(source)
        ours = not any(part.startswith(".") or part in ("__pycache__", "tests", "build") for part in relative.parts)
        if ours and file.is_file():
            yield f"{name}/{relative}", file


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubernetes-cloud-provider" / "image"
