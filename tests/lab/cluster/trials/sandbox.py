"""The sandbox of the chart's pod, seen from inside: user, capabilities, seccomp, file system."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.lab.cluster.cluster import Cluster, ClusterError
from tests.lab.cluster.trials.manager import processes, replicas
from tests.lab.cluster.trials.result import Result

TITLE = "The sandbox of the pod"
METHOD = (
    "The kernel's own table of the manager's process (/proc/1/status), and a program in its container that tries to "
    "write: to /, to the installed code, and to /tmp."
)
PYTHON = "/opt/python/bin/python"
WANTED = {
    "Uid": "65532 65532 65532 65532",
    "Gid": "65532 65532 65532 65532",
    "CapInh": "0000000000000000",
    "CapPrm": "0000000000000000",
    "CapEff": "0000000000000000",
    "CapBnd": "0000000000000000",
    "CapAmb": "0000000000000000",
    "NoNewPrivs": "1",
    "Seccomp": "2",
}
"""Seccomp 2 is a filter."""
_TRY = """
import os, pathlib, sys
for place in ("/", os.path.dirname(os.__file__), "/etc", "/opt"):
    try:
        pathlib.Path(place, "trial").write_text("x")
        print("written:", place)
    except OSError as error:
        print(error.errno, place)
for name, act in (("setuid", lambda: os.setuid(0)), ("chroot", lambda: os.chroot("/")),
                  ("unshare", lambda: __import__("ctypes").CDLL(None, use_errno=True).unshare(0x10000000))):
    try:
        print("allowed:" if act() != -1 else "refused:", name)
    except OSError as error:
        print("refused:", name)
"""


def run(cluster: Cluster) -> Result:
    result = Result()
    found = list(processes(cluster))
    result.add("processes looked at", len(found))
    result.check(len(found) == 2, f"two processes of the manager were expected, not {len(found)}")
    for pid in found:
        status = status_of(Path(f"/proc/{pid}/status").read_text())
        result.problems += differences(status)
    for key, value in WANTED.items():
        result.add(key, value if not result.problems else "see the problems")
    for replica in replicas(cluster):
        said = _inside(cluster, replica.pod)
        for line in said.splitlines():
            bad = line.startswith(("written:", "allowed:"))
            result.check(not bad, f"{replica.pod}: {line}")
        result.check(said.count("30 ") == 4, f"{replica.pod}: not every write met a read-only file system: {said!r}")
    result.add("writes to /, /etc, /opt and the Python library", "refused: read-only file system")
    result.add("setuid(0), chroot, unshare of a user namespace", "refused")
    return result


def _inside(cluster: Cluster, pod: str) -> str:
    try:
        return cluster.kubectl("--namespace=kube-system", "exec", pod, "--", PYTHON, "-I", "-c", _TRY)
    except ClusterError as problem:
        return str(problem)


def status_of(text: str) -> Mapping[str, str]:
    """The lines of /proc/PID/status, by name; blanks are single."""
    return {name: " ".join(value.split()) for name, value in re.findall(r"^(\w+):(.*)$", text, re.MULTILINE)}


def differences(status: Mapping[str, str]) -> list[str]:
    """Where a process has more than the chart gives it."""
    return [
        f"{name} is {status.get(name, 'missing')}, not {value}"
        for name, value in WANTED.items()
        if status.get(name) != value
    ]
