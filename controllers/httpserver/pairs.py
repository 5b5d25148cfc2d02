"""A certificate chain and its key, and what can be known of them: who made them, and how long they
hold, with a gauge and a warning in time.

`cryptography` is not loaded for it: the standard library reads certificates by a handshake."""

from __future__ import annotations

import logging
import ssl
from contextlib import suppress
from typing import Any, Final

import attrs

from cloudprovider.internal.certificates import MADE_BY
from controllers.runtime.api import SecretFile
from controllers.runtime.clock import Clock
from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

WARN_SECONDS: Final = 30 * 86400.0
"""Before its end; of one that lives for less than four months, a quarter of its life."""
_AGAIN: Final = 86400.0  # seconds between two warnings
_NO_CHECK_TIME: Final = 0x200000  # X509_V_FLAG_NO_CHECK_TIME: an expired one is read, too
_ROUNDS: Final = 10  # of a handshake


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


@attrs.frozen
class Inspected:
    """What is known of a pair that can be served. Times are Unix seconds."""

    self_signed: bool
    ours: bool
    """Self-signed, under the name that this program gives: it may be made again."""
    began: float
    ends: float


def inspect(pair: Pair) -> Inspected:
    """What a client sees of this certificate.

    Raises OSError where the certificate and key cannot be served together.
    """
    try:
        seen, self_signed = _seen(pair), True
    except ssl.SSLCertVerificationError:
        seen, self_signed = _seen(pair, ssl.VERIFY_X509_PARTIAL_CHAIN), False
    subject = dict(one for part in seen["subject"] for one in part)
    return Inspected(
        self_signed,
        self_signed and subject.get("organizationName") == MADE_BY,
        ssl.cert_time_to_seconds(seen["notBefore"]),
        ssl.cert_time_to_seconds(seen["notAfter"]),
    )


def load(context: ssl.SSLContext, pair: Pair) -> None:
    """Have the context serve this pair. Raises OSError.

    The TLS library reads nothing but files. What was compared is what is used, whatever happens to
    the given files."""
    chain, private = SecretFile(pair.certificate), SecretFile(pair.key)
    context.load_cert_chain(chain.path, private.path, password=_no_password)


class Expiry:
    """`look` from one thread, at each look at the certificate."""

    def __init__(self, port: str, metrics: Metrics, clock: Clock) -> None:
        """`port` names it in the metric: secure, webhook."""
        self._port = port
        self._clock = clock
        self._left = metrics.gauge(
            "serving_certificate_remaining_seconds",
            "Seconds until the certificate that is served on a port (secure, webhook) ends; negative afterwards.",
            ("port",),
        )
        self._pair: Pair | None = None
        self._found: Inspected | None = None
        self._quiet_until = float("-inf")

    def look(self, name: str, pair: Pair) -> None:
        """This pair is served; `name` says where it comes from."""
        if pair != self._pair:
            self._pair, self._found, self._quiet_until = pair, _inspected(pair), float("-inf")
        found, now = self._found, self._clock.time()
        if found is None:
            return
        left = found.ends - now
        self._left.labels(port=self._port).set(left)
        if left > min(WARN_SECONDS, (found.ends - found.began) / 4) or self._clock.monotonic() < self._quiet_until:
            return
        self._quiet_until = self._clock.monotonic() + _AGAIN
        how = f"ends in {left / 86400:.1f} days" if left > 0 else f"ended {-left / 86400:.1f} days ago"
        log.warning("HTTPS: the certificate of the %s port (%s) %s: replace it", self._port, name, how)


def _seen(pair: Pair, flags: int = 0) -> Any:
    """What a client that trusts this certificate, and nothing else, is shown."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    load(server, pair)
    client.check_hostname = False
    client.verify_flags |= _NO_CHECK_TIME | flags
    try:
        # The first one alone: with its root behind it, any certificate would pass for self-signed.
        first, end, _ = pair.certificate.partition(b"-----END CERTIFICATE-----")
        client.load_verify_locations(cadata=(first + end).decode("ascii"))
    except ValueError as error:
        raise OSError("the certificate is no PEM text") from error
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(there, back, server_side=True)
    theirs = client.wrap_bio(back, there)
    for _ in range(_ROUNDS):
        with suppress(ssl.SSLWantReadError):
            theirs.do_handshake()
            return theirs.getpeercert()
        with suppress(ssl.SSLWantReadError):
            ours.do_handshake()
    raise OSError("the certificate cannot be used for TLS")


def _inspected(pair: Pair) -> Inspected | None:
    try:
        return inspect(pair)
    except OSError as error:  # it is served all the same, or the log says why not
        log.debug("a certificate cannot be inspected: %s", error)
        return None


def _no_password() -> str:
    """Refuse an encrypted key: without this, OpenSSL would ask on the terminal and hang."""
    raise ssl.SSLError("the private key is encrypted; use one without a passphrase")
