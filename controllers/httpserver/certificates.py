"""Where HTTPS gets its certificate and the CA of client certificates from: files, a folder, or
self-signed in memory.

`tls.py` reads them again every few seconds, so that rotated files are noticed. As k8s.io/apiserver
does (options/serving.go): a folder without the pair gets a self-signed one. Unlike there, that one
is renewed.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from cloudprovider.internal.certificates import LIFETIME, self_signed
from controllers.httpserver.pairs import Pair, inspect
from controllers.program import PROGRAM
from controllers.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

T_co = TypeVar("T_co", covariant=True)

_RENEW_BEFORE: Final = LIFETIME.total_seconds() / 3
_TRY_AGAIN: Final = 86400.0  # seconds


class Source(Protocol[T_co]):
    """Where the present one of something comes from."""

    @property
    def name(self) -> str:
        """For log lines and errors."""

    def read(self) -> T_co:
        """The present one. Raises OSError."""


PairSource = Source[Pair]
"""Of the certificate and its key."""
AuthoritySource = Source[bytes]
"""Of the CA of client certificates, in PEM; empty: they are not asked for."""


class FilePair:
    """Two files, read again each time."""

    def __init__(self, certificate: str, key: str) -> None:
        self._files = (certificate, key)
        self.name = f"{certificate} and {key}"

    def read(self) -> Pair:
        """The files' contents, unchecked. Raises OSError with the name of the file."""
        certificate, key = (_contents(path) for path in self._files)
        return Pair(certificate, key)


class FolderPair(FilePair):
    """The pair in a folder: whoever put it there, or a self-signed one of ours, made where there is
    none and again after two thirds of its life. For one thread at a time."""

    def __init__(
        self,
        folder: str,
        names: Sequence[str],
        *,
        pair_name: str = PROGRAM,
        maker: Callable[[str, list[str]], bytes] = self_signed,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Raises OSError."""
        self._certificate, self._key = (os.path.join(folder, f"{pair_name}{suffix}") for suffix in (".crt", ".key"))
        super().__init__(self._certificate, self._key)
        self._names = list(names)
        self._make = maker
        self._clock = clock
        self._pair: Pair | None = None
        self._renew_at = 0.0
        self.former = b""
        """The certificate that was renewed last, in PEM, for those who trust it still."""
        if not (os.path.exists(self._certificate) and os.path.exists(self._key)):
            os.makedirs(folder, exist_ok=True)
            self._write()

    def read(self) -> Pair:
        """The files' contents, unchecked; renews them when due. Raises OSError with the name of the
        file."""
        pair = super().read()
        if pair != self._pair:
            self._pair, self._renew_at = pair, _renewal(pair)
        if self._clock.time() < self._renew_at:
            return pair
        self._renew_at = self._clock.time() + _TRY_AGAIN
        try:
            self._write()
        except OSError as error:  # it may be mounted read-only, and holds for months
            log.warning("the self-signed certificate %s is due and cannot be renewed: %s", self._certificate, error)
            return pair
        self.former = pair.certificate
        log.info("the self-signed certificate %s was renewed", self._certificate)
        return super().read()

    def _write(self) -> None:
        made = Pair.of(self._make(self._names[0], self._names))
        files = ((self._key, made.key, 0o600), (self._certificate, made.certificate, 0o644))
        for path, data, mode in files:
            _write(f"{path}.new", data, mode)
        for path, _, _ in files:  # a full disk leaves the former pair whole
            os.replace(f"{path}.new", path)


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
            self._renew_at = now + LIFETIME.total_seconds() - _RENEW_BEFORE
        return self._pair


class NoCA:
    """No client certificates."""

    name = "none"

    def read(self) -> bytes:
        """Nothing."""
        return b""


class FileCA:
    """A file, read again each time."""

    def __init__(self, path: str) -> None:
        self.name = path

    def read(self) -> bytes:
        """Its contents, unchecked. Raises OSError."""
        return _contents(self.name)


def _renewal(pair: Pair) -> float:
    """When this pair is to be made again; infinite for what is not proved to be ours."""
    try:
        found = inspect(pair)
    except OSError:
        return float("inf")  # half written, say: whoever serves it tells
    return found.ends - _RENEW_BEFORE if found.ours else float("inf")


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
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with open(descriptor, "wb") as file:
        file.write(data)
