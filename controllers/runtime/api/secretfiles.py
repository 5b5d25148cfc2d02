"""Certificates and keys that came as bytes, as files for the TLS library, which reads nothing else (before stage 1).

`kubeconfig.py` puts a kubeconfig's inline data here, `clients.py` what a credential plugin gave. On Linux the "files"
are anonymous memory (memfd), named by /proc/self/fd: nothing reaches a disk, no writable folder is needed, and nothing
is left behind however the process ends. Elsewhere they are private files in a private folder, deleted at the end.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from typing import Final

_IN_MEMORY: Final = hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")


class SecretFile:
    """Bytes under a path that this process alone can read; gone with this object. Thread-safe."""

    def __init__(self, data: bytes = b"") -> None:
        if _IN_MEMORY:
            self._descriptor = _memory(data)
            self.path = f"/proc/self/fd/{self._descriptor}"
            weakref.finalize(self, os.close, self._descriptor)
        else:
            folder = tempfile.TemporaryDirectory(prefix="credentials-")
            weakref.finalize(self, folder.cleanup)
            self.path = os.path.join(folder.name, "data")
            self.write(data)

    def write(self, data: bytes) -> None:
        """Replace the contents; whoever opens the path sees the former or the new ones, whole."""
        if _IN_MEMORY:
            fresh = _memory(data)
            try:
                os.dup2(fresh, self._descriptor, inheritable=False)
            finally:
                os.close(fresh)
            return
        descriptor = os.open(f"{self.path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(f"{self.path}.new", self.path)


def _memory(data: bytes) -> int:
    descriptor = os.memfd_create("credentials", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
