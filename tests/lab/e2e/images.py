"""The images that the chosen tests ask for, made here, since no registry is asked: agnhost, and
one with glibc's resolver.

Their names are those that the suite prints (`-list-images`). agnhost is a Go program of Kubernetes;
the tests also run a shell, curl, nc, ss, dig and getent in it. Those come from Debian's packages,
with nothing but the libraries that they need. All other commands are busybox.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.lab.envtest.build import AssetsMissing, cache, e2e_program, e2e_sources
from tests.lab.image.archives import debian
from tests.lab.image.layers import Layer, write_archive

PACKAGES = ("curl", "netcat-openbsd", "iproute2", "bind9-dnsutils", "wget", "busybox-static")
PROGRAMS = {
    # busybox's own shell runs its applets instead of the programs in PATH, such as nc.
    "usr/bin/sh": "usr/bin/dash",
    "usr/bin/curl": "usr/bin/curl",
    "usr/bin/nc": "usr/bin/nc.openbsd",
    "usr/bin/ss": "usr/bin/ss",
    "usr/bin/dig": "usr/bin/dig",
    "usr/bin/getent": "usr/bin/getent",
    # That of busybox 1.35 ends with a segmentation fault where it is given a time limit.
    "usr/bin/wget": "usr/bin/wget",
}
"""Where each program is in the image, and in Debian's tree."""
AGNHOST = "test/images/agnhost"
RESOLVER = "glibc-dns-testing"


def suite_images(folder: Path) -> list[Path]:
    """Make the archives of the images in `folder`, unless they are there; for `ctr images import`.

    Raises AssetsMissing where a program is not built or mmdebstrap is absent, CalledProcessError
    where one of them fails. Needs root, to ask Debian's loader for the libraries.
    """
    version = (e2e_sources() / AGNHOST / "VERSION").read_text().strip()
    listed = subprocess.run(
        [str(e2e_program("suite")), "-list-images"], check=True, capture_output=True, text=True
    ).stdout
    names = image_names(listed.splitlines(), version)
    folder.mkdir(parents=True, exist_ok=True)
    targets = [folder / f"{name.rpartition('/')[2].replace(':', '-')}-{_content()}.tar" for name in names]
    if not all(target.is_file() for target in targets):
        with tempfile.TemporaryDirectory(prefix="images-", dir=folder) as temporary:
            _make(Path(temporary), list(zip(names, targets, strict=True)))
        for old in set(folder.glob("*.tar")) - set(targets):
            old.unlink()
    return targets


def image_names(listed: Iterable[str], version: str) -> tuple[str, str]:
    """The names of agnhost in this version, and of the image with glibc's resolver, among those
    that the suite lists.

    Raises ValueError where one is not there, or there is a choice.
    """
    lines = [line.strip() for line in listed]
    found = (
        [line for line in lines if line.endswith(f"/agnhost:{version}")],
        [line for line in lines if line.rpartition("/")[2].startswith(f"{RESOLVER}:")],
    )
    if [len(each) for each in found] != [1, 1]:
        raise ValueError(f"the suite must list one agnhost:{version} and one {RESOLVER}, and lists {found}")
    return found[0][0], found[1][0]


def _make(temporary: Path, wanted: list[tuple[str, Path]]) -> None:
    if shutil.which("mmdebstrap") is None:
        raise AssetsMissing("the images of the tests need mmdebstrap (Debian, Ubuntu: apt-get install mmdebstrap)")
    (agnhost_name, agnhost_target), (resolver_name, resolver_target) = wanted
    tools, agnhost = temporary / "tools.tar", temporary / "agnhost.tar"
    _tools(tools, _unpacked(debian(*PACKAGES), temporary / "debian"))
    sources = e2e_sources() / AGNHOST
    with Layer(agnhost) as layer:
        layer.file("agnhost", e2e_program("agnhost"))
        layer.link("agnhost-2", "agnhost")
        layer.folder("uploads", mode=0o1777)
        for name in ("localhost.crt", "localhost.key"):
            layer.file(name, sources / "porter" / name, mode=0o644)
    environment = {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin:/"], "WorkingDir": "/"}
    process = {**environment, "Entrypoint": ["/agnhost"], "Cmd": ["pause"]}
    write_archive(agnhost_target, [agnhost_name], [tools, agnhost], process)
    write_archive(resolver_target, [resolver_name], [tools], {**environment, "Cmd": ["sh"]})


def _unpacked(archive: Path, folder: Path) -> Path:
    folder.mkdir()
    with tarfile.open(archive) as tar:
        members = [member for member in tar.getmembers() if not member.isdev()]
        tar.extractall(folder, members=members, filter="tar")
    return folder


def _tools(target: Path, debian_root: Path) -> None:
    with Layer(target) as layer:
        for name in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc", "root", "proc", "sys", "dev", "run", "var"):
            layer.folder(name)
        for name in ("bin", "sbin", "lib", "lib64"):
            layer.link(name, f"usr/{name}")
        for name in ("tmp", "var/tmp"):
            layer.folder(name, mode=0o1777)
        layer.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/tmp:/bin/sh\n")
        layer.text("etc/group", "root:x:0:\ngroup-defined-in-image:x:50000:user-defined-in-image\n")
        layer.text("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
        layer.text("etc/wgetrc", "tries = 1\n")  # as busybox's: the tests try again themselves
        layer.file("usr/bin/busybox", debian_root / "usr/bin/busybox")
        for name in _applets(debian_root):
            layer.link(f"usr/bin/{name}", "busybox")
        for name, source in PROGRAMS.items():
            layer.file(name, debian_root / source)
        for name in _libraries(debian_root):
            layer.file(name, (debian_root / name).resolve())


def _applets(debian_root: Path) -> list[str]:
    """What busybox can do, but for what is there as a program."""
    command = ["chroot", str(debian_root), "busybox", "--list"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return sorted({*listed} - {"busybox", *(Path(name).name for name in PROGRAMS)})


def _libraries(debian_root: Path) -> list[str]:
    """The libraries that the programs load, by their names in Debian's tree: where the loader looks
    for them."""
    command = ["chroot", str(debian_root), "ldd", *(f"/{source}" for source in PROGRAMS.values())]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    absent = [line.strip() for line in text.splitlines() if "not found" in line]
    if absent:
        raise RuntimeError(f"Debian's tree lacks {', '.join(absent)}")
    named = {word for line in text.splitlines() for word in line.split() if word.startswith("/")}
    loaded = {word for word in named if not word.endswith(":")}
    # /lib and /lib64 are links into /usr, in Debian's tree and in the image.
    return sorted(word.removeprefix("/") if word.startswith("/usr/") else f"usr{word}" for word in loaded)


def _content() -> str:
    """Changes with what the images are made of."""
    parts = [Path(__file__).read_bytes(), str(e2e_program("agnhost")).encode(), json.dumps(PACKAGES).encode()]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]


def image_folder() -> Path:
    """Where the archives are kept."""
    return cache() / "e2e-images"
