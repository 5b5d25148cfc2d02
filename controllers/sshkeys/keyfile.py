"""The file of --ssh-keyfile: read, parsed and read again. The one place that touches it.

No problem shows any part of the file: it may be a private key. Of contents that cannot be used only
the digest is kept.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from typing import Final

from cloudprovider.helpers.sshkeys import SSHPublicKey, parse_ssh_public_key

LARGEST: Final = 64 * 1024
"""Bytes of a file."""
_MOST: Final = 50  # keys of a file
_ARMOUR: Final = re.compile(rb"-{4,5} ?BEGIN |PuTTY-User-Key-File")


class KeyFileProblems(ValueError):
    """A key file cannot be used. `problems` are clauses, about a line or the whole."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def parse_keys(data: bytes) -> tuple[SSHPublicKey, ...]:
    """Pure: the keys of a file, each once, in its order. Without empty lines and comments.

    Raises KeyFileProblems with all that is wrong; then none of it may be used."""
    if len(data) > LARGEST:
        raise KeyFileProblems([f"it is larger than {LARGEST} bytes"])
    # As a whole: line by line a private key would be called damaged, and its owner not warned.
    if _ARMOUR.search(data):
        try:
            parse_ssh_public_key(data)
        except ValueError as error:
            raise KeyFileProblems([str(error)]) from None
    keys: dict[SSHPublicKey, None] = {}
    problems = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith(b"#"):
            continue
        try:
            keys[parse_ssh_public_key(line)] = None
        except ValueError as error:
            problems.append(f"line {number}: {error}")
    if not keys and not problems:
        problems.append("it holds no key")
    if len(keys) > _MOST:
        problems.append(f"it holds {len(keys)} keys, and {_MOST} are the most")
    if problems:
        raise KeyFileProblems(problems)
    return tuple(keys)


class KeyFile:
    """The keys of a file, by fingerprint. Raises KeyFileProblems. `look` is for one thread."""

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
        """Whether the file has other contents than at the last look but one; `keys` are the new
        ones.

        Raises KeyFileProblems, once for each contents, that cannot be used: the keys stay."""
        try:
            data = _read(self.path)
        except KeyFileProblems as problem:
            if not self._settled(str(problem)):
                return False
            raise
        # The digest is taken before the parsing: what cannot be used is told of once.
        if not self._settled(_digest(data)):
            return False
        self._keys = _by_fingerprint(parse_keys(data))
        return True

    def _settled(self, now: str) -> bool:
        # A change counts when two looks in a row show the same: never a file that is half written.
        # Contents are compared, not times, so a link that is turned to another folder counts, as
        # the kubelet does with the volume of a Secret.
        settled, self._seen = now == self._seen, now
        if not settled or now == self._taken:
            return False
        self._taken = now
        return True


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", opener=_open) as file:
            # A pipe or a device has no contents that two looks could compare.
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
