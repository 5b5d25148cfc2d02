"""A certificate authority of a test: certificates for servers on the loopback and for clients, as PEM texts."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority"]

_DAY = datetime.timedelta(days=1)


class Authority:
    """Signs what is asked for; `pem` is what others have to trust."""

    def __init__(self, name: str = "test-ca") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        self._certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)

    def client(self, name: str, groups: tuple[str, ...] = ()) -> tuple[bytes, bytes]:
        """A client's certificate and key: the name is the user's, organizations are groups."""
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        parts.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
        return self._issue(x509.Name(parts), ExtendedKeyUsageOID.CLIENT_AUTH)

    def server(self, name: str = "server", names: tuple[str, ...] = ()) -> tuple[bytes, bytes]:
        """A certificate and key for 127.0.0.1, localhost and more names, with this common name."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._issue(subject, ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client_files(self, folder: Path, name: str, groups: tuple[str, ...] = ()) -> tuple[Path, Path]:
        """As `client`, in two files."""
        return write_pair(folder, self.client(name, groups), "client")

    def server_files(self, folder: Path, name: str = "server", names: tuple[str, ...] = ()) -> tuple[Path, Path]:
        """As `server`, in two files, which are replaced if they are there."""
        return write_pair(folder, self.server(name, names), "server")

    def _builder(self, subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )

    def _issue(
        self, subject: x509.Name, usage: x509.ObjectIdentifier, names: tuple[str, ...] = ()
    ) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        hosts = [x509.DNSName(name) for name in ("localhost", *names)]
        certificate = (
            self._builder(subject, key.public_key())
            .add_extension(x509.SubjectAlternativeName([*hosts, loopback]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return certificate.public_bytes(serialization.Encoding.PEM), private


def write_pair(folder: Path, pair: tuple[bytes, bytes], name: str) -> tuple[Path, Path]:
    """The pair in two files of the folder."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(pair[0])
    key.write_bytes(pair[1])
    return certificate, key
