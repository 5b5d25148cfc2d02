"""The TLS context that new connections get: it follows the certificate's files and the CA of client
certificates. What cannot be used is logged once, and the context before it stays."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol, TypeVar

import attrs

from cloudprovider.host import StopSignal
from controllers.httpserver.certificates import AuthoritySource, NoCA, Pair, PairSource
from controllers.httpserver.ciphers import restrict
from controllers.runtime.api import SecretFile
from controllers.runtime.cleaning import text_of

log = logging.getLogger(__name__)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

LOOK_SECONDS: Final = 5.0
"""Between two looks at the files."""
_TICK: Final = 0.25
_EXPIRED: Final = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_ROUNDS: Final = 10  # of a handshake


class _Source(Protocol[T_co]):
    @property
    def name(self) -> str: ...
    def read(self) -> T_co: ...


class ServerTLS:
    """`load` once, then `context` from any thread; `look` and `run` from one thread. `ciphers` are
    Go's names."""

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
        self._pair = Pair(b"", b"")
        self._ca = b""
        self._refused: dict[str, object] = {}  # what could not be used, by the source's name

    def context(self) -> ssl.SSLContext:
        """The present one; never blocks. Raises OSError before `load`."""
        if self._context is None:
            raise OSError("there is no certificate yet")
        return self._context

    def load(self) -> None:
        """Make the first context. Raises OSError saying what is wrong.

        The client CA comes with the first `look`: no start waits for the network."""
        pair = self._pairs.read()
        context = self._made(pair, b"")
        self._pair, self._context = pair, context

    def look(self) -> None:
        """Make a new context if something has changed. What cannot be used is logged once, and
        keeps neither the certificate nor the client CA from being followed."""
        pair = self._latest("certificate", self._pairs, self._pair, lambda found: self._made(found, b""))
        ca = self._latest("client CA", self._authorities, self._ca, lambda found: self._made(pair, found))
        if (pair, ca) == (self._pair, self._ca):
            return
        self._context = self._made(pair, ca)
        changed = [f"certificate ({self._pairs.name})"] if pair != self._pair else []
        changed += [f"client CA ({self._authorities.name})"] if ca != self._ca else []
        self._pair, self._ca = pair, ca
        log.info("HTTPS: new connections use the %s", " and the ".join(changed))

    def run(self, stop: StopSignal) -> None:
        """Look until stopped; what `load` does is waited for."""
        while True:
            if self._context is not None:
                self.look()
            if stop.wait(LOOK_SECONDS if self._context else _TICK):
                return

    def _latest(self, what: str, source: _Source[T], before: T, check: Callable[[T], object]) -> T:
        """What there is now; what there was before, where that cannot be read or used."""
        found = None
        try:
            found = source.read()
            if found != before:
                check(found)
        except OSError as error:
            mark = (found, str(error))
            if self._refused.get(source.name) != mark:
                self._refused[source.name] = mark
                problem = f"cannot be {'read' if found is None else 'used'}: {text_of(error)}"
                log.error("HTTPS: the %s (%s) %s. The one before stays in use", what, source.name, problem)
            return before
        self._refused.pop(source.name, None)
        return found

    def _made(self, pair: Pair, authorities: bytes) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._minimum
        restrict(context, self._ciphers)
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
        context.num_tickets = 0  # a resumed session would outlive a changed CA
        context.set_alpn_protocols(["http/1.1"])
        _load(context, pair)
        if authorities.strip():
            trust(context, authorities)
        return context


def trust(context: ssl.SSLContext, authorities: bytes) -> None:
    """Ask clients for certificates of these authorities, in PEM. Raises OSError without one."""
    try:
        context.load_verify_locations(cadata=authorities.decode("ascii"))
    except (ValueError, ssl.SSLError):
        raise OSError("the client CA is no PEM text with certificates") from None
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Go: each certificate of the bundle is an anchor


@attrs.frozen
class Inspected:
    """What a client would see of a pair that can be served."""

    self_signed: bool
    ends: float
    """When a self-signed one ends, in Unix time; 0 where it has ended, or is not self-signed."""


def inspect(pair: Pair) -> Inspected:
    """What a client that trusts this certificate, and nothing else, makes of it.

    The standard library reads certificates in no other way than by a handshake. Raises OSError
    where the certificate and key cannot be served together.
    """
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load(server, pair)
    client.check_hostname = False
    try:
        # The first one alone: with its root behind it, any certificate would pass for self-signed.
        first, end, _ = pair.certificate.partition(b"-----END CERTIFICATE-----")
        client.load_verify_locations(cadata=(first + end).decode("ascii"))
    except ValueError as error:
        raise OSError("the certificate is no PEM text") from error
    try:
        seen = _shaken(server, client)
    except ssl.SSLCertVerificationError as error:
        return Inspected(error.verify_code == _EXPIRED, 0.0)
    return Inspected(True, ssl.cert_time_to_seconds(str(seen["notAfter"])))


def _shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, object]:
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(there, back, server_side=True)
    theirs = client.wrap_bio(back, there)
    for _ in range(_ROUNDS):
        with suppress(ssl.SSLWantReadError):
            theirs.do_handshake()
            return dict(theirs.getpeercert() or {})
        with suppress(ssl.SSLWantReadError):
            ours.do_handshake()
    raise OSError("the certificate cannot be used for TLS")


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    """The TLS library reads nothing but files. What was compared is what is used, whatever happens
    to the given files."""
    chain, private = SecretFile(pair.certificate), SecretFile(pair.key)
    context.load_cert_chain(chain.path, private.path, password=_no_password)


def _no_password() -> str:
    """Refuse an encrypted key: without this, OpenSSL would ask on the terminal and hang."""
    raise ssl.SSLError("the private key is encrypted; use one without a passphrase")
