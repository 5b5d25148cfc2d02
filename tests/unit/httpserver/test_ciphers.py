"""Cipher suites by Go's names: what the flag takes, and what a client may then speak."""

from __future__ import annotations

import ssl

import pytest

from controllers.catalog import CATALOG
from controllers.flags.parse import parse
from controllers.httpserver import ciphers
from controllers.httpserver.certificates import MemoryPair
from controllers.httpserver.ciphers import check_ciphers, restrict
from controllers.httpserver.tls import ServerTLS
from tests.unit.httpserver.test_tls import shake

EC = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


def client(*, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2, suites: str = "") -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.maximum_version = newest
    if suites:
        made.set_ciphers(suites)
    return made


def server(*names: str) -> ServerTLS:
    made = ServerTLS(MemoryPair(["localhost"]), ciphers=names)
    made.load()
    return made


def spoken(serving: ServerTLS, asking: ssl.SSLContext) -> str:
    _, far = shake(serving, asking)
    found = far.cipher()
    assert found is not None
    return found[0]


def test_only_the_named_suites_of_tls_1_2_are_spoken() -> None:
    assert spoken(server(EC), client()) == "ECDHE-ECDSA-AES128-GCM-SHA256"
    other = client(suites="ECDHE-ECDSA-AES256-GCM-SHA384")
    assert spoken(server(), other) == "ECDHE-ECDSA-AES256-GCM-SHA384"
    with pytest.raises(ssl.SSLError):
        spoken(server(EC), other)
    assert spoken(server(EC), client(newest=ssl.TLSVersion.TLSv1_3)).startswith("TLS_")


def test_with_suites_of_tls_1_3_alone_nothing_older_is_spoken() -> None:
    serving = server("TLS_AES_256_GCM_SHA384")
    assert serving.context().minimum_version is ssl.TLSVersion.TLSv1_3
    with pytest.raises(ssl.SSLError):
        spoken(serving, client())
    assert spoken(serving, client(newest=ssl.TLSVersion.TLSv1_3)).startswith("TLS_")


@pytest.mark.parametrize("name", sorted(ciphers._TLS12))
def test_the_library_knows_every_suite_that_the_flag_takes(name: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    restrict(context, [name])
    offered = {one["name"] for one in context.get_ciphers() if one["protocol"] != "TLSv1.3"}
    assert offered == {ciphers._TLS12[name]}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((), None),
        ((EC, "TLS_CHACHA20_POLY1305_SHA256"), None),
        (("TLS_FOO", EC, "ECDHE-RSA-AES128-SHA"), "unknown: TLS_FOO, ECDHE-RSA-AES128-SHA. Names look like"),
        (("TLS_RSA_WITH_RC4_128_SHA",), "RC4 and 3DES are broken and not offered: leave out TLS_RSA_WITH_RC4_128_SHA"),
    ],
)
def test_what_the_flag_takes(names: tuple[str, ...], said: str | None) -> None:
    found = check_ciphers(names)
    assert found is None if said is None else found is not None and found.startswith(said)


def test_both_servers_have_the_flag_and_all_problems_are_told() -> None:
    flags = ["--tls-cipher-suites=A", "--webhook-tls-cipher-suites=B,C"]
    told = parse(["--cloud-provider=fake", *flags], CATALOG).problems
    assert [one.partition(". Names")[0] for one in told] == [
        "--tls-cipher-suites=A: unknown: A",
        "--webhook-tls-cipher-suites=B,C: unknown: B, C",
    ]
    good = parse(["--cloud-provider=fake", f"--tls-cipher-suites={EC}"], CATALOG)
    assert good.problems == good.warnings == ()
