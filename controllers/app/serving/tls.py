"""The TLS context that new connections get: it follows the certificate's files and the CA of client certificates.

Stage: beside all of them. Data comes from `certificates.py` and `clientca.py`, asked every few seconds by a thread of
the manager; the present context goes to `server.py`. Connections that are there keep theirs. What cannot be used is
told once, and the context before it stays.
"""

from __future__ import annotations

import hashlib
import logging
import ssl
from collections.abc import Sequence
from typing import Final

from cloudprovider.host import StopSignal
from controllers.app.serving.certificates import PairSource
from controllers.app.serving.ciphers import restrict
from controllers.app.serving.clientca import AuthoritySource, NoCA
from controllers.runtime.api import SecretFile
from controllers.runtime.cleaning import text_of

__all__ = ["LOOK_SECONDS", "ServerTLS", "trust"]

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""Between two looks at the files."""
_TICK: Final = 0.25


class ServerTLS:
    """`load` once, then `context` from any thread; `look` and `run` from one thread. `ciphers` are Go's names."""

    def __init__(
        self,
        pairs: PairSource,
        authorities: AuthoritySource | None = None,
        minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
        ciphers: Sequence[str] = (),
    ) -> None:
        self._pairs = pairs
        self._authorities = authorities or NoCA()
        self._minimum = minimum
        self._ciphers = ciphers
        self._context: ssl.SSLContext | None = None
        self._digest = b""
        self._refused = b""  # the digest of what could not be used

    def context(self) -> ssl.SSLContext:
        """The present one; never blocks. Raises OSError before `load`."""
        if self._context is None:
            raise OSError("there is no certificate yet")
        return self._context

    def load(self) -> None:
        """Make the first context. Raises OSError saying what is wrong.

        The client CA comes with the first `look`: it may have to be asked for over the network, and no start waits.
        """
        pair = self._pairs.read()
        self._context = self._made(pair.certificate, pair.key, b"")
        self._digest = _digest(pair.certificate, pair.key, b"")

    def look(self) -> None:
        """Make a new context if something has changed; what cannot be used is told once."""
        try:
            pair, authorities = self._pairs.read(), self._authorities.read()
        except OSError as error:
            self._refuse(str(error).encode(), f"cannot be read: {text_of(error)}")
            return
        digest = _digest(pair.certificate, pair.key, authorities)
        if digest == self._digest:
            self._refused = b""
            return
        try:
            context = self._made(pair.certificate, pair.key, authorities)
        except OSError as error:
            self._refuse(digest, f"cannot be used: {text_of(error)}")
            return
        log.info("HTTPS: new connections get the changed certificate or client CA")
        self._context, self._digest, self._refused = context, digest, b""

    def run(self, stop: StopSignal) -> None:
        """Look until stopped; what `load` does is waited for."""
        while True:
            if self._context is not None:
                self.look()
            if stop.wait(LOOK_SECONDS if self._context else _TICK):
                return

    def _refuse(self, mark: bytes, problem: str) -> None:
        if mark != self._refused:
            self._refused = mark
            log.error(
                "HTTPS: the certificate (%s) or the client CA (%s) %s. The one before stays in use",
                self._pairs.name, self._authorities.name, problem,
            )  # fmt: skip

    def _made(self, certificate: bytes, key: bytes, authorities: bytes) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._minimum
        restrict(context, self._ciphers)
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
        context.num_tickets = 0  # a resumed session would outlive a changed CA
        context.set_alpn_protocols(["http/1.1"])
        # The TLS library reads nothing but files. What was compared is what is used, whatever happens to the files.
        chain, private = SecretFile(certificate), SecretFile(key)
        context.load_cert_chain(chain.path, private.path, password=_no_password)
        if authorities.strip():
            trust(context, authorities)
        return context


def trust(context: ssl.SSLContext, authorities: bytes) -> None:
    """Ask clients for certificates of these authorities, in PEM. Raises OSError when there is none among them."""
    try:
        context.load_verify_locations(cadata=authorities.decode("ascii"))
    except (ValueError, ssl.SSLError):
        raise OSError("the client CA is no PEM text with certificates") from None
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Go: each certificate of the bundle is an anchor


def _digest(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()


def _no_password() -> str:
    """Refuse an encrypted key: without this, OpenSSL would ask on the terminal and hang."""
    raise ssl.SSLError("the private key is encrypted; use one without a passphrase")
