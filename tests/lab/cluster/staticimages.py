"""Container images of one static program each, as docker-archives: no registry and no builder.

The same inputs give the same bytes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.lab.image.layers import Layer, write_archive

PAUSE = "registry.local/pause:1"
BUSYBOX = "registry.local/busybox:1"
COREDNS = "registry.local/coredns:1"


def static_image(archive: Path, name: str, program: Path, command: Sequence[str], links: Sequence[str] = ()) -> None:
    """Write an image with one program in /bin, links to it, and the folders that programs expect.

    A pod that names no command runs `command`. The archive is replaced in one step.
    """
    layer_file = archive.with_suffix(".layer")
    try:
        with Layer(layer_file) as layer:
            for folder, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777), ("var", 0o755)):
                layer.folder(folder, mode=mode)
            layer.file(f"bin/{program.name}", program)
            for link in links:
                layer.link(f"bin/{link}", program.name)
        write_archive(archive, [name], [layer_file], {"Cmd": list(command), "Env": ["PATH=/bin"]})
    finally:
        layer_file.unlink(missing_ok=True)


def busybox_image(archive: Path, name: str, busybox: Path, command: Sequence[str]) -> None:
    """An image with a static busybox and all of its commands. Raises CalledProcessError where it
    cannot say which those are."""
    listed = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout
    static_image(archive, name, busybox, command, sorted({*listed.split()} - {busybox.name}))
