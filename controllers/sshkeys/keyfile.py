"""The file of --ssh-keyfile, read and read again (beside the stages): the one place that touches it.

Bytes come from the disk; keys go to the reconciler. Contents are compared, not times, so that a link that is turned to
another folder counts (as the kubelet does with the volume of a Secret), and a change counts only when two looks in a
row show the same: a file that is half written is never read. Of what cannot be used only the digest is kept.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING

from controllers.sshkeys.changes import LARGEST, KeyFileProblems, parse_keys

if TYPE_CHECKING:
    from cloudprovider.helpers.sshkeys import SSHPublicKey

__all__ = ["KeyFile"]


class KeyFile:
    """The keys of a file, by fingerprint. Raises KeyFileProblems where it cannot be used. `look` is for one thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        data = _read(path)
        self._keys = _by_fingerprint(parse_keys(data))
        self._taken = self._seen = _digest(data)

    @property
    def keys(self) -> Mapping[str, SSHPublicKey]:
        """The keys as the file was when it last could be used. From any thread."""
        return self._keys

    def look(self) -> bool:
        """Whether the file has other contents than at the last look but one; `keys` are then those of the new ones.

        Raises KeyFileProblems, once for each contents, where they cannot be used: the keys stay as they are.
        """
        try:
            data = _read(self.path)
        except KeyFileProblems as problem:
            if not self._settled(str(problem)):
                return False
            raise
        if not self._settled(_digest(data)):
            return False
        self._keys = _by_fingerprint(parse_keys(data))
        return True

    def _settled(self, now: str) -> bool:
        settled, self._seen = now == self._seen, now
        if not settled or now == self._taken:
            return False
        self._taken = now
        return True


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", opener=_open) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise KeyFileProblems(["it is not a regular file"])
            return file.read(LARGEST + 1)
    except OSError as error:
        raise KeyFileProblems([f"it cannot be read: {error.strerror or type(error).__name__}"]) from None


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not hold the manager


def _by_fingerprint(keys: tuple[SSHPublicKey, ...]) -> dict[str, SSHPublicKey]:
    return {key.fingerprint: key for key in keys}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
