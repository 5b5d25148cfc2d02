"""What a process holds of the machine: threads, file descriptors, memory, CPU. Linux only, from
/proc."""

from __future__ import annotations

import os
import re
from pathlib import Path

from attrs import frozen


@frozen
class Usage:
    """At one moment."""

    threads: int
    files: int
    """Open file descriptors, sockets among them."""
    memory: float
    """Resident, in MB."""
    peak: float = 0.0
    """The most that was resident, in MB, since the start or `forget_peak`."""
    cpu: float = 0.0
    """Seconds in user and kernel mode since the start."""

    def __str__(self) -> str:
        return f"{self.threads} threads, {self.files} file descriptors, {self.memory:.1f} MB"

    def grown(self, since: Usage, *, threads: int, files: int) -> str:
        """By what it has grown more than allowed, or by more than 8 MB; empty where it has not."""
        allowed = {"threads": threads, "files": files, "memory": 8.0}
        return ", ".join(
            f"{name} {getattr(since, name):g} -> {getattr(self, name):g}, more than {most:g} above"
            for name, most in allowed.items()
            if getattr(self, name) - getattr(since, name) > most
        )


def usage(pid: int | None = None) -> Usage:
    """Of a process, or of this one. Raises OSError, or ValueError while it is just ending."""
    process = Path(f"/proc/{os.getpid() if pid is None else pid}")
    status = (process / "status").read_text()
    resident, peak = (
        sum(map(int, re.findall(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE))) / 1024 for name in ("VmRSS", "VmHWM")
    )
    if not resident:
        raise ValueError(f"{process} has no memory any more")
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    # Of this process the listing of the folder is a descriptor too, every time.
    return Usage(len(list((process / "task").iterdir())), len(list((process / "fd").iterdir())), resident, peak, cpu)


def forget_peak(pid: int) -> None:
    """Count the peak of its memory from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
