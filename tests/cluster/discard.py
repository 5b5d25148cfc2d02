"""Deletes a folder in the background: the disks of four machines have many files, which can take
a minute."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["discard"]


def _in_background(command: Sequence[str]) -> None:
    """Run a command that outlives this process, and that Ctrl-C does not reach."""
    subprocess.run(["sh", "-c", 'setsid nice "$@" < /dev/null > /dev/null 2>&1 &', "sh", *command], check=True)


def discard(folder: Path, run: Callable[[Sequence[str]], object] = _in_background) -> None:
    """The folder is gone at once; its content, and what is left of earlier ones, is deleted by and
    by, also when this process ends."""
    if folder.exists():
        folder.rename(folder.with_name(f"{folder.name}.gone-{os.getpid()}-{time.monotonic_ns()}"))
    left = list(folder.parent.glob(f"{folder.name}.gone-*"))
    if left:
        run(["rm", "-rf", "--", *map(str, left)])
