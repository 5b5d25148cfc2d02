"""What faults put into the proxy: over a plain HTTP server, with both encodings of a watch."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tests.faults.networks import (
    Before,
    Cutting,
    EmptyLists,
    Expiring,
    Hanging,
    LosingAnswers,
    Refusing,
    Replaying,
    about,
    expired,
    is_lease,
)
from tests.support.proxy import Answer, Asked, Broken, ChaosProxy, Network

FRAMES = [len(data).to_bytes(4, "big") + data for data in (b"one\ntwo", b"", b"three" * 100)]
LINES = [b'{"type":"ADDED","object":{}}\n', b'{"type":"MODIFIED","object":{}}\n']
WATCH = Asked("GET", "/api/v1/nodes?watch=true", "t")


class Upstream(BaseHTTPRequestHandler):
    """Answers watches in the encoding that is asked for, and other requests with their own path."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        type(self).seen.append(f"{self.command} {self.path}")
        protobuf = "protobuf" in self.headers.get("Accept", "")
        if "watch=" in self.path:
            self.send_response(200)
            kind = "application/vnd.kubernetes.protobuf;stream=watch" if protobuf else "application/json"
            self.send_header("Content-Type", kind)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in FRAMES if protobuf else LINES:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
            return
        body = self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PATCH = do_GET  # noqa: N815 - a name of the base class

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def proxy() -> Iterator[ChaosProxy]:
    Upstream.seen = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        with ChaosProxy(f"http://127.0.0.1:{server.server_address[1]}", None) as made:
            yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(proxy: ChaosProxy, path: str, method: str = "GET", accept: str = "application/json") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(proxy.url).netloc, timeout=10)
    try:
        connection.request(method, path, headers={"Accept": accept, "Authorization": "Bearer t"})
        answer = connection.getresponse()
        try:
            return answer.status, answer.read()
        except http.client.IncompleteRead as error:
            return answer.status, error.partial
    finally:
        connection.close()


PROTOBUF = "application/vnd.kubernetes.protobuf;stream=watch"


@pytest.mark.parametrize(("accept", "events"), [("application/json", LINES), (PROTOBUF, FRAMES)])
def test_events_pass_one_by_one_in_both_encodings(proxy: ChaosProxy, accept: str, events: list[bytes]) -> None:
    class Noting(Network):
        def __init__(self) -> None:
            self.seen: list[bytes] = []

        def on_event(self, asked: Asked, event: bytes) -> list[bytes]:
            self.seen.append(event)
            return [event]

    proxy.network = noting = Noting()
    assert ask(proxy, "/api/v1/nodes?watch=true", accept=accept) == (200, b"".join(events))
    assert noting.seen == events


@pytest.mark.parametrize(("accept", "protobuf"), [("application/json", False), (PROTOBUF, True)])
def test_a_watch_expires_in_its_own_encoding(proxy: ChaosProxy, accept: str, protobuf: bool) -> None:
    proxy.network = Expiring()
    assert ask(proxy, "/api/v1/nodes?watch=true", accept=accept) == (200, expired(protobuf=protobuf))


def test_the_status_of_an_expired_watch() -> None:
    assert json.loads(expired(protobuf=False))["object"]["code"] == 410
    frame = expired(protobuf=True)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert b"k8s\x00" in frame
    assert b"\x30\x9a\x03" in frame  # field 6, the code, is 410 as a varint


def test_a_cut_event_arrives_in_part(proxy: ChaosProxy) -> None:
    network = Cutting()
    network.on_event(WATCH, b"a")
    network.on_event(WATCH, b"b")
    proxy.network = network
    assert ask(proxy, "/api/v1/nodes?watch=true") == (200, LINES[0][: len(LINES[0]) // 2])


def test_every_second_answer_is_lost_after_the_write(proxy: ChaosProxy) -> None:
    proxy.network = LosingAnswers(about("nodes"), seconds=0.0)
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        ask(proxy, "/api/v1/nodes/n", "PATCH")
    assert Upstream.seen == ["PATCH /api/v1/nodes/n"]  # the server did it
    assert ask(proxy, "/api/v1/nodes/n", "PATCH")[0] == 200
    assert ask(proxy, "/apis/coordination.k8s.io/v1/leases/l", "PATCH")[0] == 200


def test_refusals_are_statuses_with_their_headers() -> None:
    network = Refusing(503, 429, headers={"Retry-After": "1"}, matches=about("nodes"))
    first, second = (network.on_request(Asked("PATCH", "/api/v1/nodes/n", "t")) for _ in range(2))
    assert isinstance(first, Answer)
    assert isinstance(second, Answer)
    assert (first.status, second.status) == (503, 429)
    assert second.headers["Retry-After"] == "1"
    assert json.loads(second.body)["reason"] == "TooManyRequests"
    assert isinstance(network.on_request(Asked("GET", "/api/v1/nodes/n", "t")), Asked)
    assert network.paths["PATCH /api/v1/nodes/n"] == network.refused == 2


def test_lists_of_the_watch_cache_are_emptied_and_quorum_reads_are_not(proxy: ChaosProxy) -> None:
    proxy.network = EmptyLists("nodes")
    assert ask(proxy, "/api/v1/nodes?watch=true&resourceVersion=5")[0] == 410
    assert b"labelSelector=nothing" in ask(proxy, "/api/v1/nodes?resourceVersion=0&limit=500")[1]
    assert b"labelSelector=nothing" not in ask(proxy, "/api/v1/nodes?limit=500")[1]
    assert b"labelSelector=nothing" not in ask(proxy, "/api/v1/pods?resourceVersion=0")[1]
    watch = proxy.network.on_request(Asked("GET", "/api/v1/nodes?watch=true&resourceVersion=5", "t"))
    assert isinstance(watch, Asked)
    assert "labelSelector" not in watch.path
    first = proxy.network.on_request(Asked("GET", "/api/v1/nodes?watch=true&sendInitialEvents=true", "t"))
    assert isinstance(first, Asked)
    assert "labelSelector" in first.path


def test_events_are_repeated_in_an_older_order_and_end_with_the_newest() -> None:
    network = Replaying()
    assert list(network.on_event(WATCH, b"1")) == [b"1"]
    assert list(network.on_event(WATCH, b"2")) == [b"2", b"1", b"2"]
    assert list(network.on_event(WATCH, b"3")) == [b"3", b"1", b"2", b"3"]
    assert network.repeated == 3


def test_what_hangs_is_not_done_unless_it_is_done_late() -> None:
    lease = Asked("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l", "t")
    for late in (False, True):
        network = Hanging(is_lease, done_late=late)
        ended: list[object] = []

        def send(network: Hanging = network, ended: list[object] = ended) -> None:
            try:
                ended.append(network.on_request(lease))
            except Broken as broken:
                ended.append(broken)

        thread = threading.Thread(target=send)
        thread.start()
        assert network.hung.wait(10)
        assert not ended
        network.release()
        thread.join(10)
        assert isinstance(ended[0], Asked if late else Broken)


def test_one_act_before_the_first_matching_request() -> None:
    acts: list[Asked] = []
    network = Before(about("services"), acts.append)
    status = Asked("PATCH", "/api/v1/namespaces/default/services/s/status", "t")
    for asked in (Asked("GET", status.path, "t"), status, status):
        assert network.on_request(asked) == asked
    assert acts == [status]
    assert network.came.is_set()


def test_the_proxys_own_kubeconfig_still_leads_to_it(proxy: ChaosProxy, tmp_path: Path) -> None:
    told = json.loads(proxy.write_kubeconfig(tmp_path / "k", "t").read_text())
    assert told["clusters"][0]["cluster"]["server"] == proxy.url
