"""buildah with a storage of its own: images are built and run without a daemon, and nothing is left
behind outside that folder.

The driver vfs and the isolation chroot work inside containers and virtual machines too, where
overlay mounts and namespaces may not be allowed.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

TRUST = Path("/etc/ssl/certs/ca-certificates.crt")


class Buildah:
    """Images and containers below `folder`. For one thread at a time.

    With `layers` each step of a build is kept, for later builds in the same folder; that takes a
    host that allows overlay mounts, or much space.
    """

    def __init__(self, folder: Path, *, layers: bool = False) -> None:
        self._layers = layers
        driver = "overlay" if layers and overlay_works(folder) else "vfs"
        self._command = ["buildah", "--root", str(folder / "root"), "--runroot", str(folder / "run")]
        self._command += ["--storage-driver", driver]
        (folder / "pip").mkdir(parents=True, exist_ok=True)
        self._pip = folder / "pip"

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Run one command; returns its standard output. Raises CalledProcessError, its messages are
        on our stderr."""
        done = subprocess.run([*self._command, *arguments], input=stdin, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.strip()

    def has(self, image: str) -> bool:
        command = [*self._command, "inspect", "--type", "image", f"localhost/{image}"]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def push(self, image: str, archive: Path) -> None:
        """Write an image to a docker-archive, under its name."""
        self("push", "--quiet", image, f"docker-archive:{archive}:{image}")

    def base(self, name: str, archive: Path) -> str:
        """An image of one layer, with the files of an archive."""
        container = self("from", "scratch")
        self("add", "--quiet", container, str(archive), "/")
        self("commit", "--quiet", "--rm", container, name)
        return name

    def build(self, name: str, dockerfile: Path, context: Path, **arguments: str) -> str:
        """Build an image; without `layers` one layer for each stage, as vfs copies every layer.

        pip inside it trusts the certificates that pip on this machine trusts.
        """
        options = [option for key, value in arguments.items() for option in ("--build-arg", f"{key}={value}")]
        if os.environ.get("PIP_CERT"):
            (self._pip / "pip.conf").write_text(f"[global]\ncert = {TRUST}\n")
            options += ["--volume", f"{self._pip / 'pip.conf'}:/etc/pip.conf:ro"]
            options += ["--volume", f"{os.environ['PIP_CERT']}:{TRUST}:ro"]
        ignore = dockerfile.with_name(f"{dockerfile.name}.dockerignore")
        self(
            "build", "--isolation", "chroot", f"--layers={json.dumps(self._layers)}", "--quiet",
            "--file", str(dockerfile), "--ignorefile", str(ignore), "--tag", name, *options, str(context),
        )  # fmt: skip
        return name

    def inspect(self, image: str) -> dict[str, Any]:
        """What the image says about itself, as the OCI image configuration."""
        found = json.loads(self("inspect", "--type", "image", image))["OCIv1"]
        assert isinstance(found, dict)
        return found

    def run_command(self, container: str, *command: str, volumes: tuple[str, ...] = (), user: str = "") -> list[str]:
        """The command that runs `command` in a container, with the host's network."""
        options = [option for volume in volumes for option in ("--volume", volume)]
        options += ["--user", user] * bool(user)
        return [*self._command, "run", "--isolation", "chroot", *options, container, "--", *command]


def overlay_works(folder: Path) -> bool:
    """Whether the kernel mounts an overlay with its upper layer in this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="overlay-") as temporary:
        parts = {part: Path(temporary, part) for part in ("lower", "upper", "work", "merged")}
        for part in parts.values():
            part.mkdir()
        options = f"lowerdir={parts['lower']},upperdir={parts['upper']},workdir={parts['work']}"
        # In a mount namespace of its own, so that nothing has to be unmounted.
        command = ["unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", options, str(parts["merged"])]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
