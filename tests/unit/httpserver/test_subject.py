"""Who a client certificate says that the client is: its subject, whatever else is in it."""

from __future__ import annotations

import datetime
import http.client
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider.testing.waiting import eventually
from controllers.endpoints.access import user_of_certificate
from controllers.httpserver.messages import Request, Response, subject_of
from controllers.httpserver.server import Server
from controllers.httpserver.tls import trust
from tests.support.https import ask, context
from tests.support.pki import Authority, write_pair
from tests.support.there import there
from tests.unit.httpserver.support import running, served

KEY = ec.generate_private_key(ec.SECP256R1())
NO_UTF8 = bytes.fromhex("3005820361ff62")
"""The alternative name of type dNSName that reads a, byte 255, b."""


def der(*relative: list[x509.NameAttribute[Any]]) -> bytes:
    """A certificate of this subject, each list a relative name."""
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.RelativeDistinguishedName(one) for one in relative])
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(x509.Name([attribute("i" * 200)]))
    made = made.public_key(KEY.public_key()).serial_number(2**150).not_valid_before(now)
    signed = made.not_valid_after(now + datetime.timedelta(1)).sign(KEY, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.DER)


def attribute(
    value: str, oid: x509.ObjectIdentifier = NameOID.ORGANIZATION_NAME, kind: _ASN1Type = _ASN1Type.UTF8String
) -> x509.NameAttribute[str]:
    return x509.NameAttribute(oid, value, _type=kind, _validate=False)


@pytest.mark.row("X13")
def test_names_and_organizations_are_read_in_their_order_and_of_every_type() -> None:
    name, unit = NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
    found = subject_of(
        der(
            [attribute("readers")],
            [attribute("unit", unit)],
            [attribute("jörg", name), attribute("ops", kind=_ASN1Type.PrintableString)],
            [attribute("last", name, _ASN1Type.BMPString)],
        )
    )
    user = there(user_of_certificate(found))
    assert user.name == "last"
    assert set(user.groups) == {"readers", "ops", "system:authenticated"}
    assert user_of_certificate(subject_of(der())) is None
    long = there(user_of_certificate(subject_of(der([attribute("x", name)], [attribute("y" * 70_000)]))))
    assert long.groups[0] == "y" * 70_000


@pytest.mark.row("X13")
@given(st.binary(max_size=200) | st.integers(0, 250).map(lambda at: der([attribute("x", NameOID.COMMON_NAME)])[:at]))
def test_what_is_no_certificate_is_an_error_of_the_connection(data: bytes) -> None:
    with pytest.raises(OSError, match="cannot be read"):
        subject_of(data)


@pytest.mark.row("X13")
def test_a_certificate_with_a_name_that_is_no_utf_8_does_not_end_the_server(tmp_path: Path) -> None:
    authority = Authority()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.server_files(tmp_path))
    trust(tls, authority.pem)

    def answer(request: Request) -> Response:
        user = user_of_certificate(request.certificate) if request.certificate else None
        return Response(200, (user.name if user else "nobody").encode())

    with running(Server(("127.0.0.1", 0), answer, tls=lambda: tls)) as server:
        odd = write_pair(tmp_path, authority.client("odd", san=NO_UTF8), "odd")
        assert ask(server.address[1], "/", tls=context(certificate=odd)) == (200, "odd")
        assert ask(server.address[1], "/") == (200, "nobody")


@pytest.mark.row("X13")
def test_a_mistake_of_ours_costs_its_connection_alone_and_few_lines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with served(lambda _request: Response(200, b"well")) as server:
        with monkeypatch.context() as patch:
            patch.setattr("controllers.httpserver.connections._request_of", lambda *_, **__: 1 // 0)
            for _ in range(50):
                with pytest.raises(OSError, match=r".*"):
                    plain(server)
        eventually(lambda: plain(server) == 200)
        lines = [one for one in caplog.records if "ZeroDivisionError" in one.getMessage()]
        assert 2 <= len(lines) <= 8
        assert lines[0].exc_info, "with the stack"


def plain(server: Server) -> int:
    connection = http.client.HTTPConnection(*server.address, timeout=20)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    except http.client.HTTPException as error:
        raise OSError("closed") from error
    finally:
        connection.close()
