"""Certificates: given, in a folder, self-signed; what changes is followed, what is broken is told
once."""

from __future__ import annotations

import logging
import os
import ssl
import stat
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from cloudprovider.internal import certificates
from controllers.httpserver.certificates import FileCA, FilePair, FolderPair, MemoryPair, names_for
from controllers.httpserver.tls import ServerTLS
from tests.support.clock import FakeClock
from tests.support.pki import Authority, write_pair


def shake(server: ServerTLS, client: ssl.SSLContext, name: str = "localhost") -> tuple[str, ssl.SSLObject]:
    """A handshake in memory; the common name that the client saw, and the server's side."""
    pipes = [ssl.MemoryBIO() for _ in range(2)]
    near = client.wrap_bio(pipes[0], pipes[1], server_hostname=name)
    far = server.context().wrap_bio(pipes[1], pipes[0], server_side=True)
    done: set[int] = set()
    for _ in range(10):
        for number, side in enumerate((near, far)):
            try:
                side.do_handshake()
                done.add(number)
            except ssl.SSLWantReadError:
                continue
        if len(done) == 2:
            break
    shown = x509.load_der_x509_certificate(near.getpeercert(binary_form=True) or b"")
    return str(shown.subject.rdns[-1].rfc4514_string().removeprefix("CN=")), far


def trusting(pem: bytes, pair: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cadata=pem.decode())
    if pair is not None:
        made.load_cert_chain(*pair)
    return made


class Files:
    """A server with given files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority, self.clients = Authority(), Authority("clients")
        certificate, key = self.authority.server_files(folder, "first")
        self.ca = folder / "ca.crt"
        self.ca.write_bytes(self.clients.pem)
        self.tls = ServerTLS(FilePair(str(certificate), str(key)), FileCA(str(self.ca)))
        self.tls.load()
        self.tls.look()

    def served(self) -> str:
        return shake(self.tls, trusting(self.authority.pem))[0]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_new_files_are_served_from_the_next_look_on(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    before = files.tls.context()
    with caplog.at_level(logging.INFO):
        files.tls.look()
        assert files.tls.context() is before
        assert caplog.records == []
        files.authority.server_files(files.folder, "second")
        assert files.served() == "first"
        files.tls.look()
    assert files.served() == "second"
    [line] = caplog.messages
    assert line.startswith("HTTPS: new connections use the certificate (")


@pytest.mark.parametrize("broken", ["another key", "half", "empty", "missing", "text", "encrypted"])
def test_a_broken_pair_keeps_the_one_before_with_one_line(
    files: Files, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    pair = files.authority.server("second")
    certificate, key = write_pair(files.folder, pair, "server")
    if broken == "another key":
        key.write_bytes(files.authority.server()[1])
    elif broken == "half":
        certificate.write_bytes(pair[0][: len(pair[0]) // 2])
    elif broken == "empty":
        key.write_bytes(b"")
    elif broken == "missing":
        key.unlink()
    elif broken == "text":
        certificate.write_text("not a certificate\n")
    else:
        loaded = serialization.load_pem_private_key(pair[1], None)
        form = serialization.PrivateFormat.PKCS8
        secret = serialization.BestAvailableEncryption(b"x")
        key.write_bytes(loaded.private_bytes(serialization.Encoding.PEM, form, secret))
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            files.tls.look()
    assert files.served() == "first"
    [line] = caplog.records
    assert "server.crt" in line.getMessage()
    assert "stays in use" in line.getMessage()
    assert "PRIVATE KEY" not in line.getMessage()
    write_pair(files.folder, pair, "server")
    files.tls.look()
    assert files.served() == "second"


def test_a_client_certificate_is_asked_for_checked_and_not_required(files: Files) -> None:
    certificate = files.clients.client_files(files.folder, "ann", ("readers", "ops"))
    _, far = shake(files.tls, trusting(files.authority.pem, certificate))
    assert (far.getpeercert() or {})["subject"] == (
        (("organizationName", "readers"),),
        (("organizationName", "ops"),),
        (("commonName", "ann"),),
    )
    _, far = shake(files.tls, trusting(files.authority.pem))
    assert not far.getpeercert()
    other = Authority("clients").client_files(files.folder, "ann")
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        shake(files.tls, trusting(files.authority.pem, other))
    server = files.clients.server_files(files.folder, "ann")
    with pytest.raises(ssl.SSLError, match="unsuitable certificate purpose"):
        shake(files.tls, trusting(files.authority.pem, server))


def test_another_client_ca_counts_from_the_next_look_on(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    other = Authority("clients")
    certificate = other.client_files(files.folder, "ann")
    files.ca.write_bytes(other.pem)
    files.tls.look()
    assert shake(files.tls, trusting(files.authority.pem, certificate))[1].getpeercert()
    [line] = caplog.messages
    assert line.startswith("HTTPS: new connections use the client CA (")


@pytest.mark.parametrize("broken", ["missing", "text"])
def test_a_client_ca_that_cannot_be_used_keeps_no_new_certificate_away(
    files: Files, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = files.clients.client_files(files.folder, "ann")
    if broken == "missing":
        files.ca.unlink()
    else:
        files.ca.write_text("not a certificate")
    with caplog.at_level(logging.ERROR):
        for number in range(3):
            files.authority.server_files(files.folder, f"next-{number}")
            files.tls.look()
            assert files.served() == f"next-{number}"
    assert shake(files.tls, trusting(files.authority.pem, certificate))[1].getpeercert()  # by the CA before
    [line] = caplog.records
    assert "ca.crt" in line.getMessage()
    assert "server.crt" not in line.getMessage()


def test_a_certificate_that_cannot_be_used_keeps_no_new_client_ca_away(files: Files) -> None:
    other = Authority("clients")
    ann = trusting(files.authority.pem, files.clients.client_files(files.folder, "ann"))
    bob = trusting(files.authority.pem, other.client_files(files.folder, "bob"))
    (files.folder / "server.crt").write_text("not a certificate")
    files.ca.write_bytes(other.pem)
    files.tls.look()
    assert shake(files.tls, bob)[1].getpeercert()
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):  # its CA was taken away
        shake(files.tls, ann)


def test_the_lowest_version_is_kept(tmp_path: Path) -> None:
    authority = Authority()
    certificate, key = authority.server_files(tmp_path)
    tls = ServerTLS(FilePair(str(certificate), str(key)), minimum=ssl.TLSVersion.TLSv1_3)
    tls.load()
    old = trusting(authority.pem)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        shake(tls, old)
    assert shake(tls, trusting(authority.pem))[1].version() == "TLSv1.3"


def test_before_the_first_certificate_a_connection_fails_alone() -> None:
    tls = ServerTLS(MemoryPair(names_for("127.0.0.1")))
    with pytest.raises(OSError, match="no certificate yet"):
        tls.context()


def test_a_self_signed_certificate_can_be_trusted_by_name_and_address() -> None:
    text = certificates.self_signed("ccm", ["ccm", "localhost", "127.0.0.1", "::1"])
    pem = text[: text.index(b"-----BEGIN PRIVATE KEY-----")]

    class Given:
        name = "given"

        def read(self) -> object:
            return MemoryPair(names_for("::"), lambda _name, _names: text).read()

    tls = ServerTLS(Given())  # type: ignore[arg-type]  # as much of one as is used
    tls.load()
    for name in ("ccm", "localhost", "127.0.0.1", "::1"):
        assert shake(tls, trusting(pem), name)[0] == "ccm"


@pytest.mark.parametrize("executable", ["", "/nowhere/python", "/bin/false"])
def test_without_another_process_it_is_made_in_this_one(executable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    assert b"PRIVATE KEY" in certificates.self_signed("ccm", ["localhost"])


def test_one_in_memory_is_renewed_in_time() -> None:
    clock = FakeClock()
    made: list[str] = []

    def maker(name: str, names: list[str]) -> bytes:
        made.append(name)
        assert {"localhost", "127.0.0.1", "10.0.0.7"} <= set(names)
        return f"text {len(made)}".encode()

    pair = MemoryPair(names_for("10.0.0.7"), maker, clock)
    assert pair.read() is pair.read()
    clock.advance(200 * 86400.0)
    assert pair.read().certificate == b"text 1"
    clock.advance(50 * 86400.0)
    assert pair.read().certificate == b"text 2"


def test_the_folder_is_written_once_and_read_afterwards(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "certs"
    first = FolderPair(str(folder), names_for("0.0.0.0")).read()
    key = folder / "cloud-controller-manager.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert b"PRIVATE" not in (folder / "cloud-controller-manager.crt").read_bytes()
    assert FolderPair(str(folder), names_for("0.0.0.0")).read() == first
    assert sorted(os.listdir(folder)) == ["cloud-controller-manager.crt", "cloud-controller-manager.key"]


def test_names_of_a_self_signed_certificate() -> None:
    assert {"localhost", "127.0.0.1", "::1"} < set(names_for("0.0.0.0"))
    assert "0.0.0.0" not in names_for("0.0.0.0")
    assert "fd00::1" in names_for("fd00::1")
