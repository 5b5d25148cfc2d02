"""File systems of Debian's packages, kept in the user's cache."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SUITE = "bookworm"


def debian(*packages: str) -> Path:
    """A file system with these packages and what they need; kept in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubernetes-cloud-provider" / "image"
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / f"{SUITE}-{'-'.join(packages)}.tar"
    if not target.exists():
        partial = target.with_suffix(".partial.tar")
        excluded = [f"--dpkgopt=path-exclude=/usr/share/{place}/*" for place in ("doc", "man", "locale")]
        command = ["mmdebstrap", "--quiet", "--variant=essential", f"--include={','.join(packages)}", *excluded]
        subprocess.run([*command, SUITE, str(partial)], check=True)
        partial.rename(target)
    return target
