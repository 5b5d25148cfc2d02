"""The TLS context that new connections get: it follows the certificate's files and the CA of client
certificates. What cannot be used is logged once, and the context before it stays."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from cloudprovider.host import StopSignal
from cloudprovider.internal.cleaning import text_of
from controllers.httpserver.certificates import AuthoritySource, NoCA, PairSource, Source
from controllers.httpserver.ciphers import restrict
from controllers.httpserver.pairs import Pair, load

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_SECONDS: Final = 5.0
"""Between two looks at the files."""
_TICK: Final = 0.25


class ServerTLS:
    """`load` once, then `context` from any thread; `look` and `run` from one thread. `ciphers` are
    Go's names."""

    def __init__(
        self,
        pairs: PairSource,
        authorities: AuthoritySource | None = None,
        minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
        ciphers: Sequence[str] = (),
        *,
        served: Callable[[str, Pair], object] = lambda _name, _pair: None,
    ) -> None:
        """`served(name, pair)` is told at each look what new connections get, and from where."""
        self._pairs = pairs
        self._served = served
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
        self._served(self._pairs.name, pair)

    def look(self) -> None:
        """Make a new context if something has changed. What cannot be used is logged once, and
        keeps neither the certificate nor the client CA from being followed."""
        pair = self._latest("certificate", self._pairs, self._pair, lambda found: self._made(found, b""))
        self._served(self._pairs.name, pair)
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

    def _latest(self, what: str, source: Source[T], before: T, check: Callable[[T], object]) -> T:
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
        # A renegotiation costs the server more than the client, and nobody needs one.
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
        context.num_tickets = 0  # a resumed session would outlive a changed CA
        context.set_alpn_protocols(["http/1.1"])
        load(context, pair)
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
    # As Go: each certificate of the bundle is an anchor.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
