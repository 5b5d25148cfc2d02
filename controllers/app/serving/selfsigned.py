"""A self-signed certificate for serving: where nobody gave one, HTTPS is still encrypted. Also a script, see below.

Stage: beside all of them. `certificates.py` asks for one; a PEM text with the certificate and its key comes back.

The only package that makes certificates costs 10 MB and a fifth of a second of CPU just to import, which the manager
would pay at every start and keep for its whole life. So this file is run as a program of its own in another process,
which imports nothing of ours; where no process can be started, the work is done here.
"""

from __future__ import annotations

import datetime
import ipaddress
import logging
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

__all__ = ["LIFETIME", "make"]

log = logging.getLogger(__name__)

LIFETIME: Final = datetime.timedelta(days=365)
_PATIENCE: Final = 20.0  # seconds for the other process


def make(name: str, alternatives: Sequence[str]) -> bytes:
    """A PEM text: a certificate for this common name and these names and IP addresses, and its key without passphrase.

    Valid for `LIFETIME` from now, and an hour back for clocks that are late. Blocks for a part of a second.
    """
    if sys.executable:
        try:
            done = subprocess.run(
                [sys.executable, "-I", __file__, name, *alternatives],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE,
                check=True,
            )
            if b"PRIVATE KEY-----" in done.stdout:
                return done.stdout
        except (OSError, subprocess.SubprocessError) as error:
            log.debug("a self-signed certificate is made in this process: %s", type(error).__name__)
    return _make(name, alternatives)


def _make(name: str, alternatives: Sequence[str]) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def alternative(text: str) -> x509.GeneralName:
        try:
            return x509.IPAddress(ipaddress.ip_address(text))
        except ValueError:
            return x509.DNSName(text)

    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    now = datetime.datetime.now(datetime.UTC)
    usage = dict.fromkeys(
        ("content_commitment", "data_encipherment", "key_agreement", "key_cert_sign", "crl_sign", "encipher_only"),
        False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName([alternative(one) for one in alternatives]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(digital_signature=True, key_encipherment=True, decipher_only=False, **usage), critical=True
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    return certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(_make(sys.argv[1], sys.argv[2:]))
