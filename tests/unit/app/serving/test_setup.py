"""What the flags of HTTPS serving set up, by what a client meets."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from controllers.app.serving import Health
from controllers.app.serving.options import ServingOptions
from controllers.app.serving.setup import Serving, ServingError
from controllers.runtime.api import ClientBuilder
from controllers.runtime.metrics import Metrics
from tests.support.https import ask, context, free_port


@contextmanager
def served(**options: object) -> Iterator[int]:
    """The port of a manager's HTTPS server with these options."""
    port = free_port()
    given = ServingOptions(**{"bind_address": "127.0.0.1", "secure_port": port, **options})  # type: ignore[arg-type]
    clients = ClientBuilder.from_options(master="http://127.0.0.1:1")
    serving = Serving(given, Health(), Metrics(), clients)
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


def test_a_shared_port_is_asked_for_by_its_flag() -> None:
    with served(permit_port_sharing=True) as port:
        with served(permit_port_sharing=True, secure_port=port) as same:
            assert same == port
        with pytest.raises(ServingError, match="cannot listen there"), served(secure_port=port):
            pass
