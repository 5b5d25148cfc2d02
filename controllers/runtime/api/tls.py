"""TLS settings that follow their files: CA bundle, client certificate and key (stages 1 and 6).

`kubeconfig.py` names the files; `transport.py` asks for the present context before it opens a
connection. Rotated files are noticed within `CHECK_SECONDS`; connections made with the former ones
are then no longer reused.
"""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
import threading
import weakref
from collections.abc import Callable
from typing import Final

from attrs import evolve, field, frozen

from cloudprovider.internal.tlssockets import TLSSocket
from controllers.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 5.0
_IN_MEMORY: Final = hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")


class SecretFile:
    """Bytes under a path that this process alone can read; gone with this object. Thread-safe.

    For certificates and keys that came as bytes: the TLS library reads files only. On Linux the
    "files" are anonymous memory (memfd), named by /proc/self/fd: nothing reaches a disk, no
    writable folder is needed, and nothing is left behind however the process ends. Elsewhere they
    are private files in a private folder, deleted at the end.
    """

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
        """Replace the contents; a reader of the path sees the former or the new ones, whole."""
        if _IN_MEMORY:
            fresh = _memory(data)
            try:
                # The path stays the same: the TLS settings name it.
                os.dup2(fresh, self._descriptor, inheritable=False)
            finally:
                os.close(fresh)
            return
        descriptor = os.open(f"{self.path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(f"{self.path}.new", self.path)


@frozen
class TLSSettings:
    """What a TLS context is made of. Empty `ca_file`: the system's trust store."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True
    named: str = ""
    """The files in words, where their paths say nothing."""
    look: Callable[[], object] = field(default=lambda: None, repr=False, eq=False)
    """Brings the files up to date; asked before each look at them."""

    @property
    def has_certificate(self) -> bool:
        """Whether there is a client certificate now: an empty file has none, or none yet."""
        return bool(self.cert_file) and os.path.getsize(self.cert_file) > 0

    def context(self) -> ssl.SSLContext:
        """Read the files and make a context; raises OSError (or ssl.SSLError)."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.sslsocket_class = TLSSocket
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # As Go: a certificate in the bundle is an anchor, self-signed or not.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.ca_file:
            context.load_verify_locations(cafile=self.ca_file)
        else:
            context.load_default_certs()
        # Written later by what rotates it: until then the server sees a client without one.
        if self.has_certificate:
            context.load_cert_chain(self.cert_file, self.key_file or None, password=_no_password)
        return context

    def without_certificate(self) -> TLSSettings:
        """The same settings for a client without a certificate of its own, named by its token."""
        return evolve(self, cert_file="", key_file="")

    def describe(self, error: OSError) -> str:
        """Say which files the error may be about."""
        files = ", ".join(path for path in (self.ca_file, self.cert_file, self.key_file) if path)
        named = self.named or files or "the trust store of the system"
        return f"{named}: {error.strerror or error}; correct or replace them"

    def fingerprint(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Something that changes whenever one of the files does; a missing file counts as None."""
        return tuple(stamp(path) for path in (self.ca_file, self.cert_file, self.key_file))


class TLSFiles:
    """The present SSLContext of some settings; thread-safe.

    While the files are unusable (a rotation is half done, say), the former context stays in use.
    """

    def __init__(self, settings: TLSSettings, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._context: ssl.SSLContext | None = None
        self._fingerprint: object = None
        self._check_at = float("-inf")
        self._failing = False

    def context(self) -> ssl.SSLContext:
        """The context for a new connection; raises OSError if none could ever be made."""
        context = self._context
        # Without the lock: it is asked for each connection that is taken from the pool.
        if context is not None and self._clock.monotonic() < self._check_at:
            return context
        with self._lock:
            now = self._clock.monotonic()
            if self._context is None or now >= self._check_at:
                self._refresh()
                self._check_at = now + CHECK_SECONDS
            assert self._context is not None
            return self._context

    def recheck(self) -> None:
        """Look at the files again at the next call: a handshake failed, or we were refused."""
        self._check_at = float("-inf")

    def _refresh(self) -> None:
        self._settings.look()
        fingerprint = self._settings.fingerprint()
        # The same files: a new context would close every idle connection for nothing.
        if self._context is not None and fingerprint == self._fingerprint:
            return
        try:
            context = self._settings.context()
        except OSError as error:
            if self._context is None:
                raise
            # Once, and not every five seconds while a rotation is stuck.
            if not self._failing:
                log.warning("TLS files changed but cannot be used yet, keeping the previous ones: %s", error)
            self._failing = True
            return
        if self._context is not None:
            log.info("TLS files changed and were loaded again")
        self._context, self._fingerprint, self._failing = context, fingerprint, False


def stamp(path: str) -> tuple[int, int, int] | None:
    """Something that changes whenever the file does; None while there is none."""
    if not path:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def check_pair(certificate: bytes, key: bytes) -> None:
    """Raise OSError where these are no certificate and its key, in PEM."""
    chain, private = SecretFile(certificate), SecretFile(key)
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(chain.path, private.path, password=_no_password)


def _memory(data: bytes) -> int:
    descriptor = os.memfd_create("credentials", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _no_password() -> str:
    """Refuse an encrypted key: without this, OpenSSL would ask on the terminal and hang."""
    raise ssl.SSLError("the client key is encrypted; use one without a passphrase")
