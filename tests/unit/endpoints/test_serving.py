"""What the flags of HTTPS serving set up, by what a client meets."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from controllers.endpoints.health import Health
from controllers.endpoints.options import ServingOptions
from controllers.endpoints.serving import Serving, ServingError
from controllers.runtime.api import ClientBuilder
from controllers.runtime.metrics import Metrics
from tests.support.https import ask, context, free_port


@contextmanager
def served(metrics: Metrics | None = None, **options: object) -> Iterator[int]:
    """The port of a manager's HTTPS server with these options."""
    port = free_port()
    given = ServingOptions(**{"bind_address": "127.0.0.1", "secure_port": port, **options})  # type: ignore[arg-type]
    clients = ClientBuilder.from_options(master="http://127.0.0.1:1")
    try:
        serving = Serving(given, Health(), metrics or Metrics(), clients)
    except ServingError:
        clients.close()
        raise
    try:
        serving.start()
        serving._tls.load()  # type: ignore[union-attr]  # made by these options
        yield serving.secure_address[1]  # type: ignore[index]
    finally:
        serving.stop(5.0)
        clients.close()


def test_the_cipher_suites_of_the_flag_are_those_of_the_server() -> None:
    other = context()
    other.maximum_version = ssl.TLSVersion.TLSv1_2
    other.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    with served() as port:
        assert ask(port, "/livez", tls=other)[0] in (200, 500)
    with served(tls_cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",)) as port:
        with pytest.raises(ssl.SSLError):
            ask(port, "/livez", tls=other)
        assert ask(port, "/livez")[0] in (200, 500)


@pytest.mark.row("O15")
def test_how_long_the_certificate_holds_is_shown() -> None:
    metrics = Metrics()
    with served(metrics):
        left = metrics.value("serving_certificate_remaining_seconds", port="secure")
        assert left == pytest.approx(365 * 86400, abs=60)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tls_cert_file": "missing.crt", "tls_private_key_file": "missing.key"}, "missing.crt"),
        ({"client_ca_file": "missing.crt"}, "--client-ca-file=missing.crt: "),
        ({"client_ca_file": __file__}, f"--client-ca-file={__file__}: the client CA is no PEM text"),
        ({"authentication_kubeconfig": "missing"}, "--authentication-kubeconfig=missing: "),
        ({"authorization_kubeconfig": "missing"}, "--authorization-kubeconfig=missing: "),
        ({"cert_dir": "/proc/nowhere"}, "--cert-dir=/proc/nowhere: "),
    ],
)
def test_what_cannot_be_served_is_told_with_its_flag(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ServingError) as refused, served(**options):
        pass
    assert told in str(refused.value)


def test_a_shared_port_is_asked_for_by_its_flag() -> None:
    with served(permit_port_sharing=True) as port:
        with served(permit_port_sharing=True, secure_port=port) as same:
            assert same == port
        with pytest.raises(ServingError, match="cannot listen there"), served(secure_port=port):
            pass
