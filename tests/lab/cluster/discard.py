"""Deletes a folder in the background: the disks of four machines have many files, which can take
a minute."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path


def discard(folder: Path) -> None:
    """The folder is gone at once; its content, and what is left of earlier ones, is deleted by and
    by, also when this process ends."""
    if folder.exists():
        folder.rename(folder.with_name(f"{folder.name}.gone-{os.getpid()}-{time.monotonic_ns()}"))
    left = list(folder.parent.glob(f"{folder.name}.gone-*"))
    if left:  # by a command that outlives this process, and that Ctrl-C does not reach
        background = ["sh", "-c", 'setsid nice "$@" < /dev/null > /dev/null 2>&1 &', "sh"]
        subprocess.run([*background, "rm", "-rf", "--", *map(str, left)], check=True)
