"""The webhook server over a real socket: whatever comes gets an answer, and nothing ends it."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloudprovider.testing.waiting import eventually
from controllers.endpoints.serving import ServingError
from controllers.runtime.api import NotFound, RestClient
from controllers.runtime.clock import ClockEvent
from controllers.runtime.metrics import Metrics
from controllers.webhooks import AdmissionRequest, Answer, change
from controllers.webhooks.options import WebhookOptions
from controllers.webhooks.router import WebhookRouter
from controllers.webhooks.serving import WebhookServing
from tests.support.anyjson import json_values
from tests.support.https import free_port
from tests.support.pki import Authority
from tests.unit.webhooks.support import WEBHOOK, Told, response, review

LIMIT = 20.0
GOOD = json.dumps(review()).encode()
AUTHORITY = Authority()


class NoCluster:
    def get(self, path: str, *, timeout: float) -> Any:
        if "/secrets/" in path:
            return {"metadata": {"resourceVersion": "1"}}  # as the manifests make it
        raise NotFound("nothing is there")


def label(request: AdmissionRequest) -> Answer:
    changed = request.object
    changed["metadata"]["labels"] = {"seen": "1"}
    return change(request, changed)


def served(folder: Path, metrics: Metrics | None = None, **options: Any) -> WebhookServing:
    given = WebhookOptions(bind_address="127.0.0.1", secure_port=free_port(), **options)
    router = WebhookRouter([(WEBHOOK, Told(label))], metrics=Metrics())
    rest = cast(RestClient, NoCluster())
    return WebhookServing(given, router, rest, leads=lambda: False, metrics=metrics or Metrics())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServing]:
    folder = tmp_path_factory.mktemp("pair")
    certificate, key = AUTHORITY.server_files(folder)
    made = served(folder, tls_cert_file=str(certificate), tls_private_key_file=str(key))
    yield from running(made)


def running(made: WebhookServing) -> Iterator[WebhookServing]:
    made.start()
    stop = ClockEvent()
    thread = threading.Thread(target=made.run, args=(stop,), daemon=True)
    thread.start()
    eventually(lambda: made.ready()[0].ok, LIMIT)
    yield made
    stop.set()
    assert made.stop(LIMIT)
    thread.join(LIMIT)


def context() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=AUTHORITY.pem.decode())


def secured(server: WebhookServing) -> ssl.SSLSocket:
    plain = socket.create_connection(server.address, timeout=LIMIT)
    return context().wrap_socket(plain, server_hostname="127.0.0.1")


def connect(server: WebhookServing) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection(*server.address, timeout=LIMIT, context=context())


def post(
    server: WebhookServing, body: bytes, headers: dict[str, str] | None = None, target: str = "/volumes?timeout=10s"
) -> tuple[int, bytes]:
    connection = connect(server)
    try:
        connection.request("POST", target, body, {"Content-Type": "application/json"} if headers is None else headers)
        got = connection.getresponse()
        return got.status, got.read()
    finally:
        connection.close()


def works(server: WebhookServing) -> bool:
    status, body = post(server, GOOD)
    patch = [{"op": "add", "path": "/metadata/labels", "value": {"seen": "1"}}]
    return status == 200 and response(body)["patch"] == patch


def test_reviews_are_answered_on_kept_connections(server: WebhookServing) -> None:
    connection = connect(server)
    for _ in range(3):
        connection.request("POST", "/volumes", GOOD, {"Content-Type": "application/json"})
        got = connection.getresponse()
        assert (got.status, got.getheader("Content-Type")) == (200, "application/json")
        assert response(got.read())["uid"] == "u-1"
    connection.close()


def test_a_body_of_the_greatest_size_is_read_and_one_byte_more_refused(server: WebhookServing) -> None:
    filled = GOOD + b" " * (WEBHOOK.max_body - len(GOOD))
    assert post(server, filled)[0] == 200
    assert post(server, filled + b" ")[0] == 413


BODIES = (
    st.binary(max_size=200)
    | st.dictionaries(st.sampled_from(list(review()["request"])), json_values()).map(
        lambda one: json.dumps(review(**one)).encode()
    )
    | st.integers(0, len(GOOD)).map(lambda at: GOOD[:at])
    | st.sampled_from([b"[" * 100_000, b"{" * 50_000, b'{"a":' * 20_000, b"1" * 10_000])
)
HEADER = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":"), min_size=1, max_size=12)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    body=BODIES,
    headers=st.dictionaries(
        HEADER, st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12), max_size=3
    ),
    target=st.sampled_from(
        ["/volumes", "/volumes?timeout=1s", "/volumes?timeout=%00", "/volumes?timeout=-5s", "//", "/%"]
    ),
    kind=st.sampled_from(["application/json", "application/json; charset=utf-16", "text/html", "\x01"]),
)
def test_junk_is_always_answered(
    server: WebhookServing, body: bytes, headers: dict[str, str], target: str, kind: str
) -> None:
    own = {"content-length", "transfer-encoding", "host", "expect", "connection", "content-type"}
    sent = {name: value for name, value in headers.items() if name.lower() not in own}
    status, told = post(server, body, sent | {"Content-Type": kind}, target)
    assert status in (200, 400, 404, 415, 500, 504), told  # 500: an object that the handler cannot work with
    if status == 200:
        assert response(told)["uid"]


def test_a_changed_certificate_is_served_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controllers.webhooks.serving.LOOK_SECONDS", 0.05)
    certificate, key = AUTHORITY.server_files(tmp_path)
    for made in running(served(tmp_path, tls_cert_file=str(certificate), tls_private_key_file=str(key))):
        before = shown(made)
        AUTHORITY.server_files(tmp_path)
        eventually(lambda made=made, before=before: shown(made) != before, LIMIT)  # type: ignore[misc]
        assert works(made)
        certificate.write_text("junk")  # and what cannot be used changes nothing
        assert works(made)


def shown(server: WebhookServing) -> bytes | None:
    with secured(server) as sock:
        return sock.getpeercert(binary_form=True)


def test_a_folder_keeps_the_self_signed_pair(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    served(tmp_path, cert_dir=str(folder))
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["cloud-controller-manager-webhook.crt", "cloud-controller-manager-webhook.key"]
    first = [path.read_bytes() for path in sorted(folder.iterdir())]
    served(tmp_path, cert_dir=str(folder))
    assert [path.read_bytes() for path in sorted(folder.iterdir())] == first


@pytest.mark.row("O15")
def test_how_long_the_certificate_holds_is_shown(tmp_path: Path) -> None:
    metrics = Metrics()
    made = served(tmp_path, metrics, cert_dir=str(tmp_path))
    made._look()
    assert metrics.value("serving_certificate_remaining_seconds", port="webhook") == pytest.approx(365 * 86400, abs=60)


def test_without_a_certificate_a_replica_is_not_ready_and_refuses(tmp_path: Path) -> None:
    made = served(tmp_path)  # the Secret holds nothing, and this process does not lead
    made.start()
    made._look()
    assert [(check.ok, check.detail) for check in made.ready()] == [(False, "there is no certificate yet")]
    with pytest.raises(OSError, match=r".*"):
        post(made, GOOD)
    assert made.stop(LIMIT)


def test_a_certificate_or_port_that_cannot_be_used_is_told_with_its_flag(tmp_path: Path) -> None:
    (tmp_path / "junk").write_text("junk")
    junk = str(tmp_path / "junk")
    with pytest.raises(ServingError, match="--webhook-tls-cert-file: webhooks cannot be served"):
        served(tmp_path, tls_cert_file=junk, tls_private_key_file=junk)
    with pytest.raises(ServingError, match=f"--webhook-cert-dir={junk}"):
        served(tmp_path, cert_dir=junk)
    one = served(tmp_path)
    one.start()
    other = WebhookServing(
        WebhookOptions(bind_address="127.0.0.1", secure_port=one.address[1]),
        WebhookRouter([]),
        cast(RestClient, NoCluster()),
        leads=lambda: False,
        metrics=Metrics(),
    )
    with pytest.raises(ServingError, match="--webhook-secure-port="):
        other.start()
    assert one.stop(LIMIT)


@pytest.mark.row("X12")
def test_with_a_client_ca_whoever_shows_no_certificate_is_refused_before_the_body(tmp_path: Path) -> None:
    certificate, key = AUTHORITY.server_files(tmp_path)
    ca = tmp_path / "clients.pem"
    ca.write_bytes(AUTHORITY.pem)
    files: dict[str, Any] = {"tls_cert_file": str(certificate), "tls_private_key_file": str(key)}
    files["client_ca_file"] = str(ca)
    for made in running(served(tmp_path, **files)):
        with secured(made) as sock:
            sock.sendall(b"POST /volumes HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n")
            assert sock.recv(1000).startswith(b"HTTP/1.1 401"), "and not one byte of the body was sent"
        assert post(made, GOOD)[0] == 401
        known, stranger = context(), context()
        known.load_cert_chain(*AUTHORITY.client_files(tmp_path, "kube-apiserver"))
        stranger.load_cert_chain(*Authority().client_files(tmp_path, "kube-apiserver"))
        connection = http.client.HTTPSConnection(*made.address, timeout=LIMIT, context=known)
        connection.request("POST", "/volumes", GOOD, {"Content-Type": "application/json"})
        assert connection.getresponse().status == 200
        connection.close()
        connection = http.client.HTTPSConnection(*made.address, timeout=LIMIT, context=stranger)
        with pytest.raises(OSError, match=r".*"):  # noqa: PT012 - which of them fails is the TLS version's affair
            connection.request("POST", "/volumes", GOOD, {"Content-Type": "application/json"})
            connection.getresponse()
        connection.close()


@pytest.mark.row("X12")
def test_a_client_ca_that_cannot_be_used_is_told_with_its_flag(tmp_path: Path) -> None:
    (tmp_path / "junk").write_text("junk")
    for name in ("junk", "missing"):
        with pytest.raises(ServingError, match=f"--webhook-client-ca-file={tmp_path / name}"):
            served(tmp_path, client_ca_file=str(tmp_path / name))


@pytest.mark.row("X12")
def test_the_api_servers_reviews_are_answered_beside_a_client_that_floods(tmp_path: Path) -> None:
    certificate, key = AUTHORITY.server_files(tmp_path)
    free, stop = threading.Event(), threading.Event()

    def slow(request: AdmissionRequest) -> Answer:
        if request.name == "slow":
            free.wait(LIMIT)
        return label(request)

    flags = WebhookOptions(
        bind_address="127.0.0.1",
        secure_port=free_port(),
        tls_cert_file=str(certificate),
        tls_private_key_file=str(key),
    )
    router = WebhookRouter([(WEBHOOK, Told(slow))], metrics=Metrics())
    held = json.dumps(review(name="slow")).encode() + b" " * 20_000
    for made in running(
        WebhookServing(flags, router, cast(RestClient, NoCluster()), leads=lambda: False, metrics=Metrics())
    ):

        def flood(made: WebhookServing = made) -> None:
            while not stop.is_set():
                connection = http.client.HTTPSConnection(
                    *made.address, timeout=LIMIT, context=context(), source_address=("127.0.0.9", 0)
                )
                try:
                    connection.request("POST", "/volumes?timeout=5s", held, {"Content-Type": "application/json"})
                    connection.getresponse().read()
                except (OSError, http.client.HTTPException):
                    continue
                finally:
                    connection.close()

        threads = [threading.Thread(target=flood, daemon=True) for _ in range(40)]
        for thread in threads:
            thread.start()
        try:
            eventually(lambda made=made: len(busy(router)) >= 16, LIMIT)  # type: ignore[misc]
            assert all(works(made) for _ in range(20))
        finally:
            stop.set()
            free.set()
            for thread in threads:
                thread.join(2 * LIMIT)


def busy(router: WebhookRouter) -> list[object]:
    return list(router._running)
