"""Makes certificates: self-signed ones for servers that were given none, and those of a small
authority for tests. Also a script, see `self_signed`. `cryptography` is not imported before the
first call: it costs 10 MB and a fifth of a second of CPU."""

from __future__ import annotations

import datetime
import ipaddress
import logging
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

log = logging.getLogger(__name__)

LIFETIME: Final = datetime.timedelta(days=365)
MADE_BY: Final = "cloud-controller-manager, self-signed"
"""The organization in what `self_signed` makes: nobody else's are renewed."""
_PATIENCE: Final = 20.0  # seconds for the other process
_LATE_CLOCKS: Final = datetime.timedelta(hours=1)


def self_signed(name: str, alternatives: Sequence[str]) -> bytes:
    """A PEM text: a certificate for this common name and these names and IP addresses, and its key.

    Valid for `LIFETIME` from now. Blocks for a part of a second. It is made by this file, run as a
    program in another process that imports nothing else of ours; without a process, here."""
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
    return issue(name, alternatives, groups=[MADE_BY]).text


class Issued:
    """A certificate and its key, in PEM, and as `cryptography` has them."""

    def __init__(self, signed: Any, private: Any) -> None:
        from cryptography.hazmat.primitives import serialization

        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        self.signed = signed
        self.private = private
        self.certificate: bytes = signed.public_bytes(pem)
        self.key: bytes = private.private_bytes(pem, form, serialization.NoEncryption())

    @property
    def text(self) -> bytes:
        """Certificate and key."""
        return self.certificate + self.key


def issue(
    name: str,
    alternatives: Sequence[str] = (),
    *,
    groups: Sequence[str] = (),
    issuer: Issued | None = None,
    authority: bool = False,
    client: bool = False,
    extensions: Sequence[Any] = (),
) -> Issued:
    """A certificate for a server, a client or an authority, signed by `issuer` or by itself.

    `name` is the common name, `groups` are organizations. `extensions` are more ones of
    `cryptography.x509`. Valid for `LIFETIME`, and an hour back for clocks that are late.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def alternative(text: str) -> x509.GeneralName:
        try:
            return x509.IPAddress(ipaddress.ip_address(text))
        except ValueError:
            return x509.DNSName(text)

    key = ec.generate_private_key(ec.SECP256R1())
    signer = issuer.private if issuer is not None else key
    subject = x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
            x509.NameAttribute(NameOID.COMMON_NAME, name[:64]),
        ]
    )
    usage = dict.fromkeys(("content_commitment", "data_encipherment", "key_agreement", "encipher_only"), False)
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.signed.subject if issuer is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LATE_CLOCKS)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_encipherment=not authority,
                key_cert_sign=authority,
                crl_sign=authority,
                decipher_only=False,
                **usage,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if alternatives:
        names = x509.SubjectAlternativeName([alternative(one) for one in alternatives])
        builder = builder.add_extension(names, critical=False)
    if not authority:
        purpose = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return Issued(builder.sign(signer, hashes.SHA256()), key)


if __name__ == "__main__":
    sys.stdout.buffer.write(issue(sys.argv[1], sys.argv[2:], groups=[MADE_BY]).text)
