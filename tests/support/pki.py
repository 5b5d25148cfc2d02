"""A certificate authority of a test: certificates for servers on the loopback and for clients, as
PEM texts."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtensionOID

from cloudprovider.internal.certificates import Issued, issue


class Authority:
    """Signs what is asked for; `pem` is what others have to trust. With an `issuer` it is no
    root."""

    def __init__(self, name: str = "test-ca", issuer: Authority | None = None) -> None:
        self._issued: Issued = issue(name, issuer=issuer._issued if issuer else None, authority=True)
        self.pem = self._issued.certificate

    def client(self, name: str, groups: tuple[str, ...] = (), *, san: bytes = b"") -> tuple[bytes, bytes]:
        """A client's certificate and key: the name is the user's, organizations are groups. `san`:
        the value of its alternative names, in DER."""
        odd = [x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, san)] if san else []
        made = issue(name, groups=groups, issuer=self._issued, client=True, extensions=odd)
        return made.certificate, made.key

    def server(self, name: str = "server", names: tuple[str, ...] = ("localhost", "127.0.0.1")) -> tuple[bytes, bytes]:
        """A certificate and key for these names and addresses, with this common name."""
        made = issue(name, names, issuer=self._issued)
        return made.certificate, made.key

    def client_files(self, folder: Path, name: str, groups: tuple[str, ...] = ()) -> tuple[Path, Path]:
        """As `client`, in two files."""
        return write_pair(folder, self.client(name, groups), "client")

    def files(self, folder: Path, name: str = "ca") -> tuple[Path, Path]:
        """Its own certificate and key in two files, for a program that signs."""
        return write_pair(folder, (self._issued.certificate, self._issued.key), name)

    def server_files(self, folder: Path, name: str = "server") -> tuple[Path, Path]:
        """As `server`, in two files, which are replaced if they are there."""
        return write_pair(folder, self.server(name), "server")


def write_pair(folder: Path, pair: tuple[bytes, bytes], name: str) -> tuple[Path, Path]:
    """The pair in two files of the folder."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(pair[0])
    key.write_bytes(pair[1])
    return certificate, key
