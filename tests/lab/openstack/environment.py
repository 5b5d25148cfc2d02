"""The virtual environment with OpenStack's services, in the user's cache: built once for each
change of requirements.txt (a minute and a half, 640 MB). No compiler is needed."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.lab.envtest.build import cache

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
"""Written by `make lock`, from requirements.in."""


def built() -> Path:
    """The environment's folder, built where needed. Raises subprocess.CalledProcessError where a
    package cannot be had; the installer has said why."""
    digest = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:16]
    venv = cache().with_name("openstack") / f"venv-{digest}"
    venv.parent.mkdir(parents=True, exist_ok=True)
    with (venv.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be building it
        if not (ready := venv / ".ready").exists():
            shutil.rmtree(venv, ignore_errors=True)
            uv = [sys.executable, "-m", "uv", "--quiet"]
            subprocess.run([*uv, "venv", "--python", sys.executable, str(venv)], check=True)
            install = [*uv, "pip", "install", "--python", str(venv / "bin" / "python")]
            subprocess.run([*install, "--require-hashes", "-r", str(REQUIREMENTS)], check=True)
            ready.touch()
    return venv
