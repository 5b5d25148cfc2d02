"""Programs of the host that the cloud calls: which are missing, and calls with an error that names
the command and what it wrote."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from localcloud.kernel import KernelError

__all__ = ["NAMESPACES", "PACKAGES", "find", "in_namespace", "missing_programs", "run"]

PACKAGES: Mapping[str, str] = {
    "nft": "nftables",
    "conntrack": "conntrack",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "haproxy": "haproxy",
}
"""The package of Debian and Ubuntu that has each program."""
NAMESPACES = Path("/var/run/netns")
"""Where named network namespaces are, as for ``ip netns``."""
_NEEDED = ("nft", "conntrack", "nsenter", "unshare")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SECONDS = 30


def missing_programs(programs: Iterable[str] = _NEEDED) -> list[str]:
    """One sentence for each thing that this host lacks to run a cloud."""
    problems = []
    if sys.platform != "linux":
        return ["the local cloud runs on Linux only"]
    if os.geteuid() != 0:
        problems.append("the local cloud makes namespaces and links: run it as root (sudo)")
    absent = [program for program in programs if find(program) is None]
    if absent:
        packages = " ".join(dict.fromkeys(PACKAGES[program] for program in absent))
        problems.append(f"{', '.join(absent)} not found (Debian, Ubuntu: apt-get install {packages})")
    return problems


def find(program: str) -> str | None:
    """The path of a program, also where PATH has no sbin."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_PATH}")


def in_namespace(name: str, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` in a named network namespace."""
    return [find("nsenter") or "nsenter", f"--net={NAMESPACES / name}", find(command[0]) or command[0], *command[1:]]


def run(command: Sequence[str], *, text: str = "", accept: Iterable[int] = (0,)) -> str:
    """Run a command with `text` as its input and return what it wrote. Raises KernelError, with
    what it said, when it fails or takes over 30 s."""
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise KernelError(f"{' '.join(command)}: {problem}") from problem
    if done.returncode not in accept:
        raise KernelError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout
