"""A throw-away certificate for serving HTTPS on loopback. Needs the `cryptography` package, which the SDK
itself does not.

Used by `server` where TLS is asked for: kubectl and other Go clients send bearer tokens over TLS only.
"""

from __future__ import annotations

import datetime
import ipaddress
import shutil
import ssl
import tempfile
import weakref
from pathlib import Path
from typing import Final

_LIFETIME: Final = datetime.timedelta(days=30)


class Certificates:
    """A self-signed certificate for 127.0.0.1 and localhost, in a temporary folder that goes away with this object.

    `ca_file` is what a client must trust, `context` what the server wraps its connections with.
    Raises ImportError, naming the package, where `cryptography` is missing.
    """

    def __init__(self) -> None:
        try:
            certificate, key = _make()
        except ImportError as error:
            raise ImportError("HTTPS in the embedded API server needs the package 'cryptography'") from error
        folder = Path(tempfile.mkdtemp(prefix="embedded-apiserver-"))
        self._remove = weakref.finalize(self, shutil.rmtree, folder, True)
        self.ca_file = folder / "ca.crt"
        self.ca_file.write_bytes(certificate)
        key_file = folder / "server.key"
        key_file.touch(mode=0o600)
        key_file.write_bytes(key)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.ca_file, key_file)

    def close(self) -> None:
        """Remove the files. May be called twice; happens by itself at the latest when the process ends."""
        self._remove()


def _make() -> tuple[bytes, bytes]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "embedded-apiserver")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain),
    )
