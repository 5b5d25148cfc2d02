"""Where HTTPS gets its certificate and the CA of client certificates from: files, a folder, or
self-signed in memory.

`tls.py` reads them again every few seconds, so that rotated files are noticed. As k8s.io/apiserver
does (options/serving.go): a folder without the pair gets a self-signed one.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import attrs

from cloudprovider.internal.certificates import LIFETIME, self_signed
from controllers.program import PROGRAM
from controllers.runtime.clock import SYSTEM_CLOCK, Clock

_RENEW: Final = LIFETIME.total_seconds() * 2 / 3


@attrs.frozen
class Pair:
    """A certificate chain and its key, in PEM."""

    certificate: bytes
    key: bytes = attrs.field(repr=False)

    @classmethod
    def of(cls, text: bytes) -> Pair:
        """The pair in a text with the certificate and then its key."""
        certificate, begin, key = text.partition(b"-----BEGIN PRIVATE KEY-----")
        return cls(certificate, begin + key)


class PairSource(Protocol):
    """Where the present pair comes from."""

    name: str
    """For log lines and errors."""

    def read(self) -> Pair:
        """The present pair. Raises OSError."""


class FilePair:
    """Two files, read anew each time."""

    def __init__(self, certificate: str, key: str) -> None:
        self._files = (certificate, key)
        self.name = f"{certificate} and {key}"

    def read(self) -> Pair:
        """The files' contents, unchecked. Raises OSError with the name of the file."""
        certificate, key = (_contents(path) for path in self._files)
        return Pair(certificate, key)


class MemoryPair:
    """A self-signed pair, made at the first `read` and again after two thirds of its life. For one
    thread at a time."""

    name = "self-signed, in memory"

    def __init__(
        self, names: Sequence[str], maker: Callable[[str, list[str]], bytes] = self_signed, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """`names`: of the certificate, as of `names_for`."""
        self._names = list(names)
        self._make = maker
        self._clock = clock
        self._pair: Pair | None = None
        self._renew_at = 0.0

    def read(self) -> Pair:
        """The present pair."""
        now = self._clock.time()
        if self._pair is None or now >= self._renew_at:
            self._pair = Pair.of(self._make(self._names[0], self._names))
            self._renew_at = now + _RENEW
        return self._pair


class AuthoritySource(Protocol):
    """Where the present CA of client certificates comes from."""

    name: str
    """For log lines and errors."""

    def read(self) -> bytes:
        """Certificates in PEM; empty: client certificates are not asked for. Raises OSError."""


class NoCA:
    """No client certificates."""

    name = "none"

    def read(self) -> bytes:
        """Nothing."""
        return b""


class FileCA:
    """A file, read anew each time."""

    def __init__(self, path: str) -> None:
        self.name = path

    def read(self) -> bytes:
        """Its contents, unchecked. Raises OSError."""
        return _contents(self.name)


def folder_pair(folder: str, names: Sequence[str], *, pair_name: str = PROGRAM) -> FilePair:
    """The pair in this folder; or a new self-signed one. Raises OSError."""
    certificate, key = (os.path.join(folder, f"{pair_name}{suffix}") for suffix in (".crt", ".key"))
    if not (os.path.exists(certificate) and os.path.exists(key)):
        os.makedirs(folder, exist_ok=True)
        made = Pair.of(self_signed(names[0], list(names)))
        _write(key, made.key, 0o600)
        _write(certificate, made.certificate, 0o644)
    return FilePair(certificate, key)


def names_for(bind_address: str) -> list[str]:
    """The names and addresses of a self-signed certificate: this machine's, loopback, bound."""
    host = socket.gethostname()
    names = [host] if host.isascii() and host else []
    names += ["localhost", "127.0.0.1", "::1"]
    if not ipaddress.ip_address(bind_address).is_unspecified:
        names.append(bind_address)
    return list(dict.fromkeys(names))


def _contents(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write(path: str, data: bytes, mode: int) -> None:
    """Whole or not at all."""
    descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with open(descriptor, "wb") as file:
        file.write(data)
    os.replace(f"{path}.new", path)
