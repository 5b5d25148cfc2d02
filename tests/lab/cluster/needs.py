"""What a cluster needs of this machine; all that is missing is named at once, with the command that
installs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.lab.image.archives import debian_is_cached

TOOLS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "nft": "nftables",
    "conntrack": "conntrack",
    "haproxy": "haproxy",
    "ip": "iproute2",
    "busybox": "busybox-static",
    "mount": "mount",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "buildah": "buildah",
}
"""Programs, and the packages of Debian and Ubuntu that have them."""
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
CNI_PLUGINS = ("host-local", "loopback", "portmap", "ptp")
HIDDEN = tuple(map(Path, ("/etc", "/run", "/tmp", "/var/cache", "/var/lib", "/var/log", "/var/tmp")))
"""A machine has folders of its own here: what it shall see of the host must be elsewhere."""


class Missing(Exception):
    """A cluster cannot run here; the text names all reasons and what to do about each."""


def check_host(folders: Iterable[Path], *, programs_built: bool) -> None:
    """Raises Missing with all that this host lacks. `folders` must be seen by the machines."""
    problems = missing(
        platform=sys.platform,
        root=os.geteuid() == 0 if sys.platform == "linux" else False,
        find=shutil.which,
        cni=cni_folder(),
        namespaces=_may_unshare,
        folders=folders,
        builder_needed=not debian_is_cached(),
        go_needed=not programs_built,
    )
    if problems:
        raise Missing("no cluster can run here:\n" + "\n".join(f"  - {problem}" for problem in problems))


def missing(
    *,
    platform: str,
    root: bool,
    find: Callable[[str], str | None],
    cni: Path | None,
    namespaces: Callable[[], bool],
    folders: Iterable[Path],
    builder_needed: bool,
    go_needed: bool,
) -> list[str]:
    """All that is missing, one sentence each. Pure, but for what it is handed."""
    if platform != "linux":
        return ["Linux is needed: a cluster's machines are Linux namespaces. A virtual machine will do"]
    problems = []
    tools = {**TOOLS, **({"mmdebstrap": "mmdebstrap"} if builder_needed else {})}
    absent = [tool for tool in tools if find(tool) is None]
    packages = sorted({tools[tool] for tool in absent} | ({"containernetworking-plugins"} if cni is None else set()))
    if cni is None:
        absent.append(f"the network plugins {', '.join(CNI_PLUGINS)}")
    if packages:
        problems.append(f"not found: {', '.join(absent)}. Debian, Ubuntu: sudo apt-get install {' '.join(packages)}")
    if go_needed and find("go") is None:
        problems.append(
            "not found: go, which builds Kubernetes' programs once. Install it from https://go.dev/dl; sudo may hide "
            'it: sudo env "PATH=$PATH" make cluster'
        )
    if not root:
        problems.append("not root: start it again with sudo, as `sudo make cluster`")
    elif "unshare" not in absent and not namespaces():
        problems.append("namespaces and mounts are not allowed here: a container needs --privileged")
    return problems + [
        f"the machines do not see {folder}: put it, or XDG_CACHE_HOME, outside {hidden}"
        for folder in folders
        for hidden in HIDDEN
        if folder.resolve().is_relative_to(hidden)
    ]


def cni_folder(folders: Sequence[Path] = CNI_FOLDERS) -> Path | None:
    """The first folder that has all network plugins."""
    return next((one for one in folders if all((one / plugin).is_file() for plugin in CNI_PLUGINS)), None)


def _may_unshare() -> bool:
    command = ["unshare", "--mount", "--pid", "--net", "--uts", "--fork", "true"]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0
