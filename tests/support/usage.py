"""What a process holds of the machine: threads, file descriptors, memory. Linux only, from
/proc."""

from __future__ import annotations

import os
import re
from pathlib import Path

from attrs import frozen

__all__ = ["Usage", "usage"]


@frozen
class Usage:
    """At one moment."""

    threads: int
    files: int
    """Open file descriptors, sockets among them."""
    memory: float
    """Resident, in MB."""

    def __str__(self) -> str:
        return f"{self.threads} threads, {self.files} file descriptors, {self.memory:.1f} MB"

    def grown(self, since: Usage, *, threads: int = 2, files: int = 3, memory: float = 8.0) -> str:
        """By what it has grown more than allowed; empty where it has not."""
        allowed = {"threads": threads, "files": files, "memory": memory}
        return ", ".join(
            f"{name} {getattr(since, name):g} -> {getattr(self, name):g}, more than {most:g} above"
            for name, most in allowed.items()
            if getattr(self, name) - getattr(since, name) > most
        )


def usage(pid: int | None = None) -> Usage:
    """Of a process, or of this one."""
    process = Path(f"/proc/{os.getpid() if pid is None else pid}")
    [resident] = re.findall(r"^VmRSS:\s+(\d+) kB", (process / "status").read_text(), re.MULTILINE)
    # Of this process the listing of the folder is a descriptor too, every time.
    return Usage(len(list((process / "task").iterdir())), len(list((process / "fd").iterdir())), int(resident) / 1024)
