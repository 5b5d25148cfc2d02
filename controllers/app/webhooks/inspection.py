"""What a client would see of a certificate that it trusts and nothing else: is it self-signed, and until when?

Stage: beside all of them. A pair comes in; out goes what a TLS handshake in memory told about it, as the standard
library reads certificates in no other way.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Final

import attrs

from controllers.app.serving.certificates import Pair
from controllers.runtime.api import SecretFile

__all__ = ["Inspected", "inspect"]

_EXPIRED: Final = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_ROUNDS: Final = 10


@attrs.frozen
class Inspected:
    """What is known of a pair that can be served."""

    self_signed: bool
    ends: float
    """When a self-signed one ends, in Unix time; 0 where it has ended, or is not self-signed."""


def inspect(pair: Pair) -> Inspected:
    """Raises OSError where the certificate and key cannot be served together."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    chain, private = SecretFile(pair.certificate), SecretFile(pair.key)
    server.load_cert_chain(chain.path, private.path, password=_no_password)
    client.check_hostname = False
    try:
        client.load_verify_locations(cadata=pair.certificate.decode("ascii"))
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


def _no_password() -> str:
    raise ssl.SSLError("the private key is encrypted")
