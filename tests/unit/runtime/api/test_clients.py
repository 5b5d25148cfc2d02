"""Clients: what is sent, what is repeated and what never, and that closing ends everything."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client import ApiException, CoreV1Api
from kubernetes.client.configuration import Configuration
from kubernetes.client.exceptions import ApiValueError
from kubernetes.client.rest import RESTClientObject
from kubernetes.stream import stream
from urllib3.exceptions import ReadTimeoutError

from controllers.cloudcalls.options import CloudCallOptions
from controllers.options.declare import flags_of
from controllers.runtime.api import (
    MERGE_PATCH,
    METADATA_ONLY,
    ApiError,
    ClientBuilder,
    ClientClosed,
    ClientConfigError,
    CredentialsUnavailable,
    HalfOpen,
    RestClient,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from controllers.runtime.api.credentials import Fixed, TokenFile
from controllers.runtime.api.kubeconfig import Access
from controllers.runtime.api.wire import Endpoint
from controllers.runtime.metrics import Metrics
from controllers.runtime.protobuf import unusable
from tests.support.clock import FakeClock
from tests.unit.runtime.loopback import EMPTY_LIST, LIMIT, Call, Peer, Server, answer_none, settings_from


def builder_for(server: Server, **options: Any) -> ClientBuilder:
    source = options.pop("source", Fixed("Bearer t"))
    access = Access(Endpoint.parse(server.url), source, headers=options.pop("headers", ()))
    return ClientBuilder(access, settings_from(options), **options)


@contextmanager
def serving(*answers: tuple[int, dict[str, str]], **options: Any) -> Iterator[tuple[Server, ClientBuilder]]:
    """A server that gives these answers in turn, then empty lists for ever: (status, headers); and
    clients of it."""
    left = list(answers)

    def serve(peer: Peer) -> None:
        while peer.request():
            status, headers = left.pop(0) if left else (200, {})
            peer.answer(status, {"kind": "Status", "code": status} if status >= 300 else EMPTY_LIST, **headers)

    with Server(serve) as server, builder_for(server, **options) as clients:
        yield server, clients


def write(rest: RestClient) -> int:
    return rest.request("PATCH", "/api/v1/nodes/n1", body={"a": 1}, content_type=MERGE_PATCH).status


class TestRequests:
    def test_what_is_sent(self) -> None:
        with Server() as server, builder_for(server, program="ccm", metrics=Metrics()) as clients:
            rest = clients.rest("node-controller")
            rest.request(
                "PATCH",
                "/api/v1/nodes/n1",
                body={"metadata": {"labels": {"ä": "b"}}},
                content_type=MERGE_PATCH,
                accept=METADATA_ONLY,
                query={"dryRun": "All"},
            )
            (request,) = server.requests
            assert (request.method, request.target) == (
                "PATCH",
                "/api/v1/nodes/n1?dryRun=All&fieldValidation=Ignore",
            )
            assert request.json() == {"metadata": {"labels": {"ä": "b"}}}
            expected = {
                "host": f"127.0.0.1:{server.port}",
                "authorization": "Bearer t",
                "content-type": MERGE_PATCH,
                "accept": METADATA_ONLY,
                "content-length": str(len(request.body)),
            }
            assert expected.items() <= request.headers.items()
            agent = request.headers["user-agent"]
            assert agent == rest.user_agent
            assert agent.startswith("ccm/")
            assert agent.endswith(" node-controller")

    def test_reads_carry_no_body_and_no_validation_and_a_write_without_a_body_says_so(self) -> None:
        with Server() as server, builder_for(server) as clients:
            assert clients.rest("x").get("/api/v1/nodes", query={"limit": "5"}) == EMPTY_LIST
            clients.rest("x").request("DELETE", "/api/v1/nodes/n1")
            request, write = server.requests
            assert (request.method, request.target) == ("GET", "/api/v1/nodes?limit=5")
            assert not {"content-length", "content-type"} & request.headers.keys()
            assert write.headers["content-length"] == "0"

    def test_bytes_are_sent_as_they_are(self) -> None:
        with Server() as server, builder_for(server, field_validation="Strict") as clients:
            clients.rest("x").request("POST", "/p", body=b'{"raw": 1}')
            (request,) = server.requests
            assert (request.body, request.target) == (b'{"raw": 1}', "/p?fieldValidation=Strict")

    def test_impersonation_goes_with_every_request(self) -> None:
        headers = (("Impersonate-User", "jane"), ("Impersonate-Group", "dev"))
        with Server() as server, builder_for(server, headers=headers) as clients:
            clients.rest("x").get("/a")
            with closing(clients.rest("x").stream("/b", read_timeout=LIMIT)) as stream:
                stream.open()
            CoreV1Api(clients.client("v")).list_namespace()
            assert [request.headers["impersonate-user"] for request in server.requests] == ["jane"] * 3
            assert [request.headers["impersonate-group"] for request in server.requests] == ["dev"] * 3

    def test_what_cannot_impersonate_gets_no_rights_of_the_user_itself(self) -> None:
        with Server() as server, builder_for(server, headers=(("Impersonate-User", "jane"),)) as clients:
            with pytest.raises(ClientConfigError, match=r"use ClientBuilder\.client\(\)"):
                clients.config("v")
            api = CoreV1Api(clients.client("v"))
            with pytest.raises(ApiValueError, match="act as another"):
                stream(api.connect_get_namespaced_pod_exec, "p", "default", command=["true"])
            assert server.requests == []

    def test_a_base_path_is_kept(self) -> None:
        with Server() as server:
            access = Access(Endpoint.parse(f"{server.url}/k8s/clusters/c-1"), Fixed())
            with ClientBuilder(access) as clients:
                clients.rest("x").get("/api/v1/nodes")
                CoreV1Api(clients.client("v")).list_namespace()
            assert [request.target for request in server.requests] == [
                "/k8s/clusters/c-1/api/v1/nodes",
                "/k8s/clusters/c-1/api/v1/namespaces",
            ]
            assert "authorization" not in server.requests[0].headers

    @pytest.mark.row("K14")
    def test_no_path_no_value_and_no_method_can_smuggle_a_header(self) -> None:
        values = ("application/json\r\nX-Evil: 1", "application/json\nX", "a\rb", "é", "a\x00")
        asks: list[tuple[str, dict[str, Any]]] = [
            *[("encoded path", {"path": path}) for path in ("api/v1", "/a b", "/a\r\nX: y", "/é", "")],
            *[("holds line breaks", {"accept": value}) for value in values],
            *[("holds line breaks", {"content_type": value}) for value in values],
            *[("not a method", {"method": one}) for one in ("GET / HTTP/1.1\r\nX: y\r\n\r\nGET", "GET /other", "")],
        ]
        with Server() as server, builder_for(server) as clients:
            for told, ask in asks:
                with pytest.raises(ValueError, match=told):
                    clients.rest("x").request(**{"method": "PATCH", "path": "/a", "body": {}, **ask})
            assert not server.requests

    @pytest.mark.row("K14")
    def test_nor_can_a_token(self) -> None:
        with Server() as server, builder_for(server, source=Fixed("Bearer secret\r\nX: y")) as clients:
            with pytest.raises(ValueError, match="header Authorization holds line breaks") as caught:
                clients.rest("x").get("/a")
            assert "secret" not in str(caught.value)
            assert not server.requests

    @pytest.mark.row("K14")
    @pytest.mark.parametrize("header", [("X", "a\r\nY: b"), ("X\r\nY", "a"), ("X: y", "a"), ("", "a")])
    def test_nor_can_a_header_of_the_kubeconfig(self, header: tuple[str, str]) -> None:
        with serving(headers=(header,)) as (_, clients), pytest.raises(ValueError, match="header"):
            clients.rest("x")

    def test_the_same_client_for_the_same_name_of_one_word_and_one_pool_for_all(self) -> None:
        with Server() as server, builder_for(server) as clients:
            assert clients.rest("a") is clients.rest("a")
            assert clients.rest("a") is not clients.rest("b")
            clients.rest("a").get("/")
            clients.rest("b").get("/")
            assert server.connections == 1
            for name in ("", "two words", "a\nb"):
                with pytest.raises(ValueError, match="user agent"):
                    clients.rest(name)

    @pytest.mark.parametrize("body", ["<html>", "[]", "null", "3"])
    def test_an_answer_that_is_no_json_object(self, body: str) -> None:
        def page(peer: Peer) -> None:
            peer.request()
            peer.answer(200, body.encode())

        with (
            Server(page) as server,
            builder_for(server) as clients,
            pytest.raises(ServerError, match=re.escape(f"no JSON object: '{body}'")),
        ):
            clients.rest("x").get("/")

    def test_a_redirect_is_no_success(self) -> None:
        with serving((302, {"Location": "/elsewhere"})) as (_, clients):
            with pytest.raises(ApiError) as caught:
                clients.rest("x").get("/")
            assert caught.value.status == 302


class TestRepetition:
    """Nothing is repeated, but what the server did not apply and asked to repeat."""

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 500, 502, 503, 504])
    def test_errors_are_raised_at_once_and_name_the_request(self, status: int) -> None:
        with serving((status, {})) as (server, clients):
            with pytest.raises(ApiError, match=f"PATCH /api/v1/nodes/n1: {status}") as caught:
                write(clients.rest("x"))
            assert caught.value.status == status
            assert len(server.requests) == 1

    @pytest.mark.parametrize(
        ("method", "answers", "timeout", "pauses", "outcome"),
        [
            pytest.param("PATCH", [(429, "2")], 30, [2], 200, id="a write that was not applied"),
            pytest.param("PATCH", [(503, "1")], 30, [], ServerError, id="a write answered 503"),
            pytest.param("GET", [(503, "1")], 30, [1], 200, id="a read answered 503"),
            pytest.param("PATCH", [(429, "1")] * 5, 30, [1, 1], TooManyRequests, id="three tries at most"),
            pytest.param("GET", [(429, "30")], 30, [], TooManyRequests, id="a delay as long as the timeout"),
            pytest.param("GET", [(429, "4")] * 5, 6, [4], TooManyRequests, id="all tries within the timeout"),
            pytest.param("GET", [(429, "")], 30, [], TooManyRequests, id="429 without a delay"),
        ],
    )
    def test_what_is_repeated(
        self, method: str, answers: list[tuple[int, str]], timeout: float, pauses: list[float], outcome: object
    ) -> None:
        clock = FakeClock()
        given = [(status, {"Retry_After": after} if after else {}) for status, after in answers]
        with serving(*given, clock=clock) as (server, clients):
            call = Call(lambda: clients.rest("x").request(method, "/", timeout=timeout))
            for tries, pause in enumerate(pauses, 1):
                clock.wait_for_timeout(pause)
                assert len(server.requests) == tries
                clock.advance(pause)
            found = call.outcome()
            assert len(server.requests) == len(pauses) + 1
        if outcome == 200:
            assert found.status == 200
        else:
            after = answers[len(pauses)][1]
            assert (type(found), found.retry_after) == (outcome, float(after) if after else None)

    def test_hurrying_ends_the_wait_and_later_ones_with_the_servers_word(self) -> None:
        clock, busy = FakeClock(), (429, {"Retry_After": "5"})
        with serving(busy, busy, clock=clock) as (_, clients):
            call = Call(lambda: write(clients.rest("x")))
            clock.wait_for_timeout(5)
            clients.stop_retrying()
            assert isinstance(call.outcome(), TooManyRequests)
            with pytest.raises(TooManyRequests):
                write(clients.rest("x"))
            assert write(clients.rest("x")) == 200

    def test_closing_ends_the_wait(self, clock: FakeClock) -> None:
        with serving((429, {"Retry_After": "5"}), clock=clock) as (_, clients):
            call = Call(lambda: write(clients.rest("x")))
            clock.wait_for_timeout(5)
            clients.close()
            assert isinstance(call.outcome(), ClientClosed)


class Fenced(Exception):
    pass


class TestGuard:
    """The guard is asked right before each write, and stops ours and the vendors' alike."""

    def test_a_refused_write_is_not_sent(self) -> None:
        with Server() as server, builder_for(server) as clients:
            refused: list[tuple[str, str]] = []

            def guard(method: str, path: str) -> None:
                refused.append((method, path))
                raise Fenced

            clients.guard = guard
            rest = clients.rest("x")
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                with pytest.raises(Fenced):
                    rest.request(method, "/p")
            rest.get("/p")
            rest.request("HEAD", "/p")
            assert [request.method for request in server.requests] == ["GET", "HEAD"]
            assert refused == [(method, "/p") for method in ("POST", "PUT", "PATCH", "DELETE")]

    def test_it_is_asked_again_before_a_repetition(self, clock: FakeClock) -> None:
        """The lease may have been lost while the client waited as the server had asked."""
        with serving((429, {"Retry_After": "5"}), clock=clock) as (server, clients):
            call = Call(lambda: write(clients.rest("x")))
            clock.wait_for_timeout(5)

            def guard(method: str, path: str) -> None:
                raise Fenced

            clients.guard = guard
            clock.advance(5)
            assert isinstance(call.outcome(), Fenced)
            assert len(server.requests) == 1

    def test_the_lease_itself_is_written_without_it(self) -> None:
        def guard(method: str, path: str) -> None:
            raise Fenced

        with Server() as server, builder_for(server, guard=guard) as clients:
            assert write(clients.rest("leader-election", guarded=False)) == 200
            with pytest.raises(Fenced):
                write(clients.rest("leader-election"))


class TestLimit:
    def test_off_by_default(self, clock: FakeClock) -> None:
        with Server() as server, builder_for(server, clock=clock) as clients:
            for _ in range(50):
                clients.rest("x").get("/")  # a wait would never end, for the clock stands still

    def test_the_burst_then_the_rate(self, clock: FakeClock) -> None:
        metrics = Metrics()
        with Server() as server, builder_for(server, clock=clock, qps=2, burst=3, metrics=metrics) as clients:
            rest = clients.rest("x")
            for _ in range(3):
                rest.get("/")
            call = Call(lambda: rest.get("/"))
            clock.wait_for_timeout(0.5)
            assert len(server.requests) == 3
            clients.rest("other").get("/")  # another identity has its own
            clock.advance(0.5)
            call.outcome()
            assert len(server.requests) == 5
            counted = metrics.value("rest_client_rate_limiter_duration_seconds_count", verb="GET", host=_host(server))
            assert counted == 1

    @pytest.mark.parametrize("hurry", [False, True])
    def test_a_vendor_shares_the_limit_of_its_name_which_holds_while_we_hurry(
        self, hurry: bool, clock: FakeClock
    ) -> None:
        """Stopping is no reason to flood the server of an operator who set a limit."""
        with Server() as server, builder_for(server, clock=clock, qps=1, burst=1) as clients:
            if hurry:
                clients.stop_retrying()
            clients.rest("acme").get("/")
            for ask in (lambda: clients.rest("acme").get("/"), CoreV1Api(clients.client("acme")).list_namespace):
                call = Call(ask)
                clock.wait_for_timeout(1)
                clock.advance(1)
                call.outcome()

    def test_the_timeout_begins_after_the_wait(self, clock: FakeClock) -> None:
        with Server() as server, builder_for(server, clock=clock, qps=0.01, burst=1) as clients:
            clients.rest("x").get("/")
            call = Call(lambda: clients.rest("x").get("/", timeout=5))
            clock.wait_for_timeout(100)
            clock.advance(100)
            assert call.outcome() == EMPTY_LIST


class TestCredentials:
    def test_a_rotated_token_is_used_and_a_rejected_one_read_again(self, tmp_path: Path, clock: FakeClock) -> None:
        token = tmp_path / "token"
        token.write_text("one\n")
        with serving((200, {}), (401, {}), source=TokenFile(str(token)), clock=clock) as (server, clients):
            rest = clients.rest("x")
            rest.get("/")
            token.write_text("two\n")
            clock.advance(1)
            with pytest.raises(Unauthorized):
                rest.get("/")
            rest.get("/")
            assert [r.headers["authorization"] for r in server.requests] == ["Bearer one", "Bearer one", "Bearer two"]

    def test_an_empty_token_file_is_waited_out(self, tmp_path: Path, clock: FakeClock) -> None:
        token = tmp_path / "token"
        token.touch()
        with Server() as server, builder_for(server, source=TokenFile(str(token)), clock=clock) as clients:
            with pytest.raises(CredentialsUnavailable, match=f"GET /: token file {token} is empty") as caught:
                clients.rest("x").get("/")
            assert not caught.value.sent
            assert not server.requests
            token.write_text("late")
            clock.advance(1)
            clients.rest("x").get("/")
            token.write_text("")
            clock.advance(60)
            clients.rest("x").get("/")
            assert [r.headers["authorization"] for r in server.requests] == ["Bearer late"] * 2

    def test_vendors_get_the_fresh_token(self, tmp_path: Path, clock: FakeClock) -> None:
        token = tmp_path / "token"
        token.write_text("one")
        with Server() as server, builder_for(server, source=TokenFile(str(token)), clock=clock) as clients:
            api = CoreV1Api(clients.client("vendor"))
            api.list_namespace()
            token.write_text("two")
            clock.advance(60)
            api.list_namespace()
            assert [r.headers["authorization"] for r in server.requests] == ["Bearer one", "Bearer two"]


class TestMetrics:
    def test_by_code_and_method(self) -> None:
        metrics = Metrics()
        with serving((404, {}), metrics=metrics) as (server, clients):
            rest, host = clients.rest("x"), _host(server)
            with pytest.raises(ApiError):
                rest.get("/")
            rest.get("/")
            write(rest)
        with builder_for(server, metrics=metrics) as clients, pytest.raises(Unreachable):
            clients.rest("x").get("/")
        expected = {("404", "GET"): 1, ("200", "GET"): 1, ("200", "PATCH"): 1, ("<error>", "GET"): 1}
        for (code, method), count in expected.items():
            assert metrics.value("rest_client_requests_total", code=code, host=host, method=method) == count
        assert metrics.value("rest_client_request_duration_seconds_count", verb="GET", host=host) == 3


class TestVendorClient:
    def test_urllib3_repeats_nothing(self, metrics: Metrics) -> None:
        """It would obey Retry-After by sleeping inside the call, whatever the timeout."""
        with serving((429, {"Retry_After": "9"}), metrics=metrics, program="ccm") as (server, clients):
            api = CoreV1Api(clients.client("acme"))
            with pytest.raises(ApiException) as caught:
                api.list_namespace()
            assert caught.value.status == 429
            assert len(server.requests) == 1
            assert server.requests[0].headers["user-agent"].endswith(" acme")
            assert server.requests[0].headers["user-agent"].startswith("ccm/")
            count = metrics.value("rest_client_requests_total", code="429", host=_host(server), method="GET")
            assert count == 1

    @pytest.mark.row("K6")
    def test_the_fence_is_asked_again_when_the_vendors_connection_is_ready(self) -> None:
        asked: list[str] = []

        def guard(method: str, path: str) -> None:
            asked.append(f"{method} {path}")
            if len(asked) == 2:
                raise Fenced

        with Server() as server, builder_for(server, guard=guard) as clients:
            with pytest.raises(Fenced):
                CoreV1Api(clients.client("acme")).delete_node("n1")
            server.wait_for_connections(1)
            assert asked == ["DELETE /api/v1/nodes/n1"] * 2
        assert not server.requests

    def test_our_timeout_holds_where_the_vendor_gives_none(self) -> None:
        with (
            Server(answer_none) as server,
            builder_for(server, timeout=0.05) as clients,
            pytest.raises(ReadTimeoutError),
        ):
            CoreV1Api(clients.client("acme")).list_namespace()

    @pytest.mark.row("O17")
    def test_a_watch_ends_in_time_and_is_not_cut_before(self, monkeypatch: pytest.MonkeyPatch) -> None:
        timeouts: dict[str, Any] = {}

        def note(_self: object, _method: str, url: str, **options: Any) -> Any:
            timeouts[url.partition("?")[2]] = options["_request_timeout"]
            return SimpleNamespace(status=200)

        monkeypatch.setattr(RESTClientObject, "request", note)
        with Server() as server, builder_for(server, timeout=7) as clients:
            client = clients.client("acme")
            for query in ("limit=1", "watch=False", "watch=True", "watch=1", "watch=True&timeoutSeconds=300"):
                client.call_api("GET", f"{server.url}/x?{query}", {})
            client.call_api("GET", f"{server.url}/x?watch=yes&timeoutSeconds=0&limit=1", {})
            client.call_api("GET", f"{server.url}/x?watch=True&limit=9", {}, _request_timeout=5)
        assert timeouts == {
            "limit=1": 7,
            "watch=False": 7,
            "watch=True&timeoutSeconds=30": (7, 40),
            "watch=1&timeoutSeconds=30": (7, 40),
            "watch=True&timeoutSeconds=300": (7, 310),
            "watch=yes&limit=1&timeoutSeconds=30": (7, 40),
            "watch=True&limit=9": 5,
        }

    @pytest.mark.row("O17")
    def test_as_many_connections_are_kept_as_threads_may_call(self) -> None:
        (most,) = (flag.check for flag in flags_of(CloudCallOptions) if flag.name == "cloud-api-concurrency")
        with Server() as server, builder_for(server) as clients:
            kept = clients.client("acme").configuration.connection_pool_maxsize
            assert most is not None
            assert most(kept) is None
            assert most(kept + 1) is not None

    @pytest.mark.row("O14")
    def test_a_name_has_one_client_with_one_connection(self) -> None:
        with Server() as server, builder_for(server) as clients:
            for _ in range(20):
                CoreV1Api(clients.client("acme")).list_namespace()
            assert clients.client("acme") is clients.client("acme")
            assert clients.client("acme") is not clients.client("other")
            assert server.connections == 1

    def test_a_copied_configuration_stays_fresh_and_apart(self, tmp_path: Path) -> None:
        token = tmp_path / "token"
        token.write_text("one")
        with Server() as server, builder_for(server, source=TokenFile(str(token))) as clients:
            mine, other = clients.config("acme"), clients.config("acme")
            mine.host = "http://elsewhere"
            assert other.host == server.url
            assert mine.get_api_key_with_prefix("BearerToken") == "Bearer one"
            assert mine.retries is False
            assert mine.connection_pool_maxsize >= 16
            assert "one" not in json.dumps(other.api_key)
            assert Configuration._default is None

    def test_after_closing_nothing_is_sent(self) -> None:
        with Server() as server:
            clients = builder_for(server)
            api = CoreV1Api(clients.client("acme"))
            clients.close()
            with pytest.raises(ClientClosed):
                api.list_namespace()
            assert not server.requests


class TestIdentity:
    def test_it_is_asked_for_once(self) -> None:
        def serve(peer: Peer) -> None:
            while peer.request():
                peer.answer(200, {"metadata": {"uid": "u-1"}})

        with Server(serve) as server, builder_for(server) as clients:
            assert [clients.cluster_identity(), clients.cluster_identity()] == ["u-1", "u-1"]
            assert [request.target for request in server.requests] == ["/api/v1/namespaces/kube-system"]

    def test_a_missing_right_is_told_once_with_the_rule(self, caplog: pytest.LogCaptureFixture) -> None:
        def serve(peer: Peer) -> None:
            while peer.request():
                details = {"name": "kube-system", "kind": "namespaces"}
                peer.answer(403, {"kind": "Status", "code": 403, "reason": "Forbidden", "details": details})

        with Server(serve) as server, builder_for(server) as clients:
            assert [clients.cluster_identity(), clients.cluster_identity()] == [None, None]
            warnings = [record.getMessage() for record in caplog.records]
            assert len(warnings) == 1
            assert "resources [namespaces]" in warnings[0]
            assert "verbs [get]" in warnings[0]

    @pytest.mark.row("K15")
    def test_a_slow_answer_holds_up_nobody_else(self) -> None:
        asked, answer = threading.Event(), threading.Event()

        def serve(peer: Peer) -> None:
            while peer.request():
                asked.set()
                answer.wait(2 * LIMIT)
                peer.answer(200, {"metadata": {"uid": "u-1"}})

        with Server(serve) as server, builder_for(server) as clients:
            identity = Call(clients.cluster_identity)
            assert asked.wait(5)
            others = [Call(lambda: clients.rest("leader-election")), Call(lambda: clients.client("vendor"))]
            try:
                for other in others:
                    other.outcome()
                assert not answer.is_set()
            finally:
                answer.set()
            assert identity.outcome() == "u-1"

    @pytest.mark.row("S21")
    @pytest.mark.parametrize(
        ("status", "error"), [(403, ApiError), (404, ApiError), (200, ApiError), (500, ServerError)]
    )
    def test_a_proxys_word_is_no_answer_nor_is_a_passing_failure(self, status: int, error: type[ApiError]) -> None:
        """A load balancer before the API server, say, that refuses, finds nothing, or shows a page
        of its own."""
        with serving((status, {})) as (_, clients), pytest.raises(error):
            clients.cluster_identity()


class TestClosing:
    def test_every_request_and_stream_ends_at_once(self) -> None:
        with Server(answer_none) as server:
            clients = builder_for(server, timeout=10 * LIMIT)  # what ends within LIMIT was ended by `close`
            rest = clients.rest("x")
            calls = [Call(lambda: rest.get("/")) for _ in range(4)]
            calls.append(Call(lambda: list(rest.stream("/w", read_timeout=10 * LIMIT))))
            for call in calls:
                call.wait_until_blocked()
            clients.close()
            assert [type(call.outcome()) for call in calls] == [ClientClosed] * 5
            clients.close()
            with pytest.raises(ClientClosed):
                rest.get("/")

    def test_a_wait_for_the_limit_ends_too(self, clock: FakeClock) -> None:
        with Server() as server:
            clients = builder_for(server, clock=clock, qps=0.001, burst=1)
            clients.rest("x").get("/")
            call = Call(lambda: clients.rest("x").get("/"))
            clock.wait_for_timeout(1000)
            clients.close()
            assert isinstance(call.outcome(), ClientClosed)


def _host(server: Server) -> str:
    return f"127.0.0.1:{server.port}"


class TestProtobuf:
    def test_it_is_used_where_its_part_in_c_is_there(self) -> None:
        with serving() as (_, clients):
            assert clients.rest("nodes").protobuf

    def test_without_that_all_is_json_and_a_line_says_how_to_mend_it(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setitem(sys.modules, "google._upb._message", None)
        with serving() as (_, clients):
            assert not clients.rest("nodes").protobuf
        (line,) = [one.getMessage() for one in caplog.records if "Protobuf" in one.getMessage()]
        assert "google._upb._message" in line
        assert "libstdc++6" in line

    def test_an_implementation_that_is_chosen_by_hand_counts_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("google.protobuf.internal.api_implementation.Type", lambda: "python")
        assert unusable() == "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python"


@pytest.mark.row("K4")
def test_the_election_finds_it_for_all_clients_of_the_server(clock: FakeClock) -> None:

    def handler(peer: Peer) -> None:
        while request := peer.request():
            if request.target.startswith("/watch"):
                peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n")
            elif request.target != "/lost":
                peer.answer()

    with Server(handler) as server, builder_for(server, clock=clock) as clients:
        election, stream = clients.rest("lease", apart=True), clients.rest("nodes").stream("/watch", read_timeout=9e9)
        with closing(stream):
            assert next(stream) == b"first"
            clock.advance(1)
            lost = Call(lambda: election.request("GET", "/lost", timeout=0.05))
            lost.wait_until_blocked()
            clock.advance(1)
            assert "timed out" in str(lost.outcome())
            election.get("/lease")
            assert isinstance(Call(lambda: next(stream)).outcome(), HalfOpen)
