"""Clouds, logins and proxies that answer what nobody asked for."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import pytest
import urllib3
from pydantic import Field
from typing_extensions import override

from cloudprovider import Call, CloudProviderError, InvalidService, Pending, Throttled, call_scope
from cloudprovider.http import (
    Cached,
    Client,
    ClientCredentials,
    CloudError,
    ConflictError,
    Failures,
    FileToken,
    Marks,
    NotFoundError,
    Operation,
    Operations,
    RefusedError,
    Resource,
    Said,
    StaticToken,
    Token,
    TokenSource,
    from_tags,
    next_link,
    readable_name,
    sending,
)
from cloudprovider.http.sending import pool_for
from cloudprovider.internal.errorchain import means
from cloudprovider.testing.conformance import new_service
from tests.unit.cloudprovider.http.cloud import Cloud, fields, reply


class Thing(Resource):
    id: str


# logins


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (404, {"error": {"code": "not_found", "message": "no such realm"}}, {}),
        (409, {"error": {"code": "busy"}}, {}),
        (409, {"error": {"code": "taken"}}, {}),
        (422, {"error": {"message": "unknown scope"}}, {}),
        (423, b"", {}),
        (403, {"error": {"code": "quota_exceeded"}}, {}),
    ],
)
def test_what_a_login_answers_says_nothing_about_a_machine(
    cloud: Cloud, status: int, body: object, headers: dict[str, str]
) -> None:
    client = Client(cloud.url, ClientCredentials(f"{cloud.url}/token", "me", "s3cret"))
    asks: list[Callable[[], object]] = [lambda: client.find(Thing, "/things/1"), lambda: client.delete("/things/1")]
    for ask in asks:
        cloud.answers.append(reply(status, body, **headers))
        with pytest.raises(CloudError, match="login: ") as caught:
            ask()
        assert not means(caught.value, NotFoundError, ConflictError, InvalidService, Pending)
    assert [one.path for one in cloud.asked] == ["/token", "/token"]


def test_an_operation_is_not_over_because_of_a_login(cloud: Cloud) -> None:
    class Own(TokenSource):
        @override
        def fetch(self) -> Token:
            raise NotFoundError("no such account", status=404)

    client = Client(cloud.url, Own())
    operations = Operations(lambda one: Operation(client.get(Thing, f"/operations/{one}").id, False))
    with pytest.raises(CloudError):
        operations.begin("lb-1", Operation("op-1", False))


@pytest.mark.parametrize("status", [302, 400, 409, 422, 429, 500])
def test_a_secret_that_the_login_quotes_is_not_shown_and_a_login_asked_too_often_slows_down(
    cloud: Cloud, status: int
) -> None:
    body = {"error": {"message": "no client with the secret s3cret-of-mine"}}
    cloud.answers.append(reply(status, body, Retry_After="7"))
    with pytest.raises(CloudProviderError, match=r"^login: ") as caught:
        ClientCredentials(cloud.url, "me", "s3cret-of-mine").token()
    assert "s3cret" not in f"{caught.value!r} {caught.value.__context__!r}"
    assert isinstance(caught.value, Throttled) is (status == 429)


@pytest.mark.parametrize("text", ["s3c\nret", "s3cr\u20act", "s3c\x00ret", "s3c\tret"])
def test_a_token_that_no_header_can_have_is_not_shown(
    cloud: Cloud, text: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(text, "utf-8")
    with pytest.raises(CloudProviderError, match="the token cannot be sent") as caught:
        Client(cloud.url, FileToken(str(tmp_path / "token"))).get(Thing, "/things/1")
    assert "s3c" not in f"{caught.value!r} {caught.value.__cause__!r}"
    with pytest.raises(CloudProviderError, match="the token cannot be sent"):
        StaticToken(text)
    cloud.answers.append(reply(200, {"access_token": text}))
    with pytest.raises(CloudProviderError, match="the token cannot be sent"):
        ClientCredentials(cloud.url, "me", "s3cret").token()


def test_id_and_secret_in_the_header_may_have_any_letter(cloud: Cloud) -> None:
    cloud.answers.append(reply(200, {"access_token": "t"}))
    ClientCredentials(cloud.url, "me:you", "s\u20ac cret", basic=True).token()
    sent = {name.lower(): value for name, value in cloud.asked[0].headers.items()}["authorization"]
    assert sent == urllib3.make_headers(basic_auth="me%3Ayou:s%E2%82%AC+cret")["authorization"]


# answers


@pytest.mark.parametrize("found", [["x"], {"a": 1}, None, 4.5])
@pytest.mark.parametrize("status", [404, 409, 422, 429, 500])
def test_words_of_another_type_are_no_bug_of_ours(cloud: Cloud, status: int, found: object) -> None:
    client = Client(cloud.url, failures=Failures(said=lambda body: Said(body["code"], body["text"])))
    cloud.answers.append(reply(status, {"code": found, "text": found}))
    with pytest.raises(CloudProviderError):
        client.get(Thing, "/things/1")


def test_a_code_may_be_a_number_and_words_are_cut_and_refusals_keep_what_they_say(cloud: Cloud) -> None:
    failures = Failures(said=lambda body: Said(body["code"], body["text"]), not_found=frozenset({"4041"}))
    cloud.answers.append(reply(404, {"code": 4041, "text": "x" * 5000}))
    with pytest.raises(NotFoundError) as caught:
        Client(cloud.url, failures=failures).get(Thing, "/things/1")
    assert len(str(caught.value)) < 1100
    assert RefusedError("port 80 is reserved", status=422).problems == ("port 80 is reserved",)


def test_a_link_that_cannot_be_read_fails_the_listing(cloud: Cloud) -> None:
    cloud.answers.append(reply(200, {"id": "1"}, Link='<http://[>; rel="next"'))
    with pytest.raises(CloudProviderError, match="GET /things: the header Link cannot be read"):
        Client(cloud.url).pages(Thing, "/things", following=next_link)


def test_an_answer_that_is_too_large(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "LARGEST", 10_000)
    for data, headers in ((b"x" * 20_000, {}), (gzip.compress(b"x" * 20_000), {"Content-Encoding": "gzip"})):
        cloud.answers.append(reply(200, data, **headers))
        with pytest.raises(CloudProviderError, match="GET /things: the answer is more than 10000 bytes"):
            Client(cloud.url).get(Thing, "/things")


@contextmanager
def dripping() -> Generator[str]:
    """A server that sends a byte of its answer every 20 ms."""
    over = threading.Event()

    class Handler(BaseRequestHandler):
        @override
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not over.wait(0.02):
                try:
                    self.request.sendall(b" ")
                except OSError:
                    return

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            over.set()
            server.shutdown()
            thread.join(10)


def test_an_answer_that_drips_ends_with_the_call() -> None:
    with dripping() as url, call_scope(Call(deadline=time.monotonic() + 1.7)):
        started = time.monotonic()
        with pytest.raises(CloudProviderError, match="not whole when its time was over"):
            Client(url).get(Thing, "/things")
        assert time.monotonic() - started < 20  # it would drip for ever


# requests


class Port(Resource):
    target_port: int = Field(alias="targetPort")


def test_names_of_the_api_are_sent_as_they_are_read(cloud: Cloud) -> None:
    client = Client(cloud.url)
    cloud.answers.append(reply(200, {"targetPort": 80}))
    client.send("POST", "/ports", Port(targetPort=80))
    assert fields(cloud.asked[0]) == {"targetPort": 80}
    cloud.answers.append(reply(200, {"targetPort": 80}))
    assert client.get(Port, "/ports/1").is_as(Port.model_validate({"target_port": 80}))


# proxies


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy.example:3128"}, "http://proxy.example:3128"),
        ({"https_proxy": "proxy.example:3128"}, "http://proxy.example:3128"),
        ({"HTTP_PROXY": "http://proxy.example:3128"}, None),
        ({"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": ".cloud.example"}, None),
    ],
)
def test_the_proxy_of_the_environment(environ: dict[str, str], proxy: str | None) -> None:
    pool = pool_for("https://api.cloud.example/v1", environ=environ)
    found = pool.proxy.url if pool.proxy is not None else None
    assert found == proxy
    assert pool_for("https://127.0.0.1:8443", environ=environ).proxy is None


def test_a_proxys_password_is_sent_and_never_shown() -> None:
    pool = pool_for("https://cloud.example", environ={"HTTPS_PROXY": "http://me:s3%40cret@proxy.example:3128"})
    assert isinstance(pool, urllib3.ProxyManager)
    login = urllib3.make_headers(proxy_basic_auth="me:s3@cret")
    assert pool.proxy_headers == login
    for wrong in ("socks5://me:s3cret@proxy.example", "http://me:s3cret@[", "http://me:s3cret@:0x"):
        with pytest.raises(CloudProviderError, match="HTTPS_PROXY in the environment cannot be used") as caught:
            pool_for("https://cloud.example", environ={"HTTPS_PROXY": wrong})
        assert "s3cret" not in f"{caught.value!r}{caught.value.__cause__!r}"


def test_a_request_goes_through_the_proxy(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", cloud.url)
    cloud.answers.append(reply(200, {"id": "1"}))
    assert Client("http://api.cloud.example/v1").get(Thing, "/things/1").id == "1"
    assert cloud.asked[0].path == "http://api.cloud.example/v1/things/1"
    for url in ("https://[", "https://cloud.example:99999", "https://cloud.example:x"):
        with pytest.raises(CloudProviderError, match="cannot be used as an endpoint"):
            Client(url)


# names, tags, listings


def test_others_tags_may_have_two_values() -> None:
    tags = ["role=web", "role=db", "node=web-1"]
    assert from_tags(tags, ["node"]) == {"node": "web-1"}
    with pytest.raises(CloudProviderError, match="role is there twice"):
        from_tags(tags)
    with pytest.raises(CloudProviderError, match="node is there twice"):
        from_tags([*tags, "node=web-2"], ["node"])


def test_labels_that_cannot_hold_a_services_name() -> None:
    marks, service = Marks(service=""), new_service("web", "u-1")
    labels = marks.of_service("c", service)
    assert labels == {"kubernetes-cluster": "c", "kubernetes-service-uid": "u-1"}
    assert marks.fit(labels, "c", service)
    owned = marks.owned("c", "lb", labels)
    assert owned is not None
    assert (owned.service, owned.service_uid) == ("", "u-1")
    assert marks.names == ("kubernetes-cluster", "kubernetes-service-uid", "kubernetes-kept")


def test_a_name_is_never_longer_than_it_may_be() -> None:
    service = new_service("w" * 63, "u-1", namespace="n" * 63)
    assert all(len(readable_name("c" * 63, service, most=most)) <= most for most in range(16, 200))
    with pytest.raises(ValueError, match="needs 16 letters"):
        readable_name("c", service, most=15)


def test_a_value_that_is_forgotten_while_it_is_loaded_is_not_kept() -> None:
    answers = iter(["old", "new"])

    def load() -> str:
        found = next(answers)
        if found == "old":
            zones.clear()
        return found

    zones = Cached(load, 60.0)
    assert [zones.get(), zones.get(), zones.get()] == ["old", "new", "new"]
