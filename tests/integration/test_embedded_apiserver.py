"""The embedded API server over real sockets: HTTP, watches, restarts, TLS."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.waiting import eventually

NODES = "/api/v1/nodes"
MERGE = "application/merge-patch+json"
JSON = dict[str, Any]


@pytest.fixture
def server() -> Iterator[EmbeddedAPIServer]:
    with EmbeddedAPIServer(token="t", bookmark_interval=0.2) as running:
        running.create({"kind": "Node", "metadata": {"name": "a"}})
        yield running


@pytest.fixture
def connection(server: EmbeddedAPIServer) -> Iterator[http.client.HTTPConnection]:
    opened = connect(server)
    yield opened
    opened.close()


def connect(server: EmbeddedAPIServer, timeout: float = 10) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)


def send(
    connection: http.client.HTTPConnection, method: str, target: str, body: object = None
) -> http.client.HTTPResponse:
    headers = {"Authorization": "Bearer t", "Content-Type": MERGE if method == "PATCH" else "application/json"}
    connection.request(method, target, None if body is None else json.dumps(body), headers)
    return connection.getresponse()


def ask(connection: http.client.HTTPConnection, method: str, target: str, body: object = None) -> tuple[int, JSON]:
    response = send(connection, method, target, body)
    return response.status, json.loads(response.read())


class Watch:
    """A watch of nodes on a connection of its own, read line by line."""

    def __init__(self, server: EmbeddedAPIServer, query: str = "", timeout: float = 10) -> None:
        self.connection = connect(server, timeout)
        self.response = send(self.connection, "GET", f"{NODES}?watch=1{query}")
        assert self.response.status == 200

    def next(self) -> JSON:
        event: JSON = json.loads(self.response.readline())
        return event

    def close(self) -> None:
        self.response.close()
        self.connection.close()


@pytest.fixture
def watch(server: EmbeddedAPIServer) -> Iterator[Callable[..., Watch]]:
    opened: list[Watch] = []

    def start(query: str = "", timeout: float = 10) -> Watch:
        opened.append(Watch(server, query, timeout))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def label(server: EmbeddedAPIServer, value: str) -> None:
    server.patch("nodes", "a", {"metadata": {"labels": {"v": value}}})


# ---- HTTP


def test_one_connection_serves_many_requests_and_a_watch_between(
    server: EmbeddedAPIServer, connection: http.client.HTTPConnection
) -> None:
    for _ in range(3):
        assert ask(connection, "GET", f"{NODES}/a")[0] == 200
    assert ask(connection, "GET", f"{NODES}/none")[0] == 404
    watching = send(connection, "GET", f"{NODES}?watch=1&timeoutSeconds=1&resourceVersion={server.version}")
    assert watching.read() == b""
    assert ask(connection, "PATCH", f"{NODES}/a", {"spec": {"unschedulable": True}})[0] == 200
    assert server.connections() == 1


def test_bodies_in_chunks_head_and_connection_close(connection: http.client.HTTPConnection) -> None:
    headers = {"Authorization": "Bearer t", "Content-Type": "application/json"}
    pieces = iter([b'{"metadata":', b'{"name":"b"}}'])
    connection.request("POST", NODES, pieces, headers, encode_chunked=True)
    created = connection.getresponse()
    assert (created.status, json.loads(created.read())["metadata"]["name"]) == (201, "b")
    connection.request("HEAD", "/version", headers=headers)
    head = connection.getresponse()
    assert (head.status, head.read()) == (200, b"")
    assert int(head.headers["Content-Length"]) > 100
    connection.request("GET", f"{NODES}/b", headers={**headers, "Connection": "close"})
    last = connection.getresponse()
    assert (last.status, last.headers["Connection"]) == (200, "close")
    last.read()


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n"]
)
def test_what_is_not_http_is_dropped(server: EmbeddedAPIServer, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(garbage)
        assert raw.recv(100) == b""


def test_a_large_list_arrives_whole(server: EmbeddedAPIServer, connection: http.client.HTTPConnection) -> None:
    images = [{"names": [f"image-{at}-{'x' * 100}"], "sizeBytes": at} for at in range(50)]
    for at in range(300):
        server.create({"kind": "Node", "metadata": {"name": f"n{at:03}"}, "status": {"images": images}})
    response = send(connection, "GET", NODES)
    data = response.read()
    assert len(data) == int(response.headers["Content-Length"]) > 1_500_000
    assert len(json.loads(data)["items"]) == 301


# ---- watches


def test_a_watcher_that_leaves_is_forgotten(server: EmbeddedAPIServer, watch: Callable[..., Watch]) -> None:
    watching = watch()
    watching.next()
    assert len(server.store.collection("nodes").subscriptions) == 1
    watching.close()
    eventually(lambda: not server.store.collection("nodes").subscriptions)


# ---- life


def test_a_restart_keeps_port_and_data_and_breaks_connections(
    server: EmbeddedAPIServer, connection: http.client.HTTPConnection, watch: Callable[..., Watch]
) -> None:
    before = ask(connection, "GET", f"{NODES}/a")[1]
    watching, url = watch(), server.url
    watching.next()
    server.restart()
    assert server.url == url
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        watching.response.read()
    connection.close()
    assert ask(connection, "GET", f"{NODES}/a")[1] == before
    resumed = watch(f"&resourceVersion={before['metadata']['resourceVersion']}")
    label(server, "1")
    assert resumed.next()["type"] == "MODIFIED"
    version = server.version
    label(server, "2")
    server.restart(forget_history=True)
    assert watch(f"&resourceVersion={version}").next()["object"]["reason"] == "Expired"


def test_stop_returns_soon_in_every_state(watch: Callable[..., Watch], server: EmbeddedAPIServer) -> None:
    others = {one for one in threading.enumerate() if one.name.startswith("apiserver")}
    idle = connect(server)
    ask(idle, "GET", NODES)
    watch().next()
    half = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    half.sendall(b"GET /version HTTP/1.1\r\n")
    eventually(lambda: server.connections() == 3)
    server.stop()
    left = {one for one in threading.enumerate() if one.name.startswith("apiserver")} - others
    assert not left, "each thread was waited for, and none until its time was over"
    half.close()
    idle.close()
    assert server.connections() == 0
    with pytest.raises(ConnectionRefusedError):
        ask(connect(server), "GET", NODES)
    server.stop()


def test_a_kubeconfig_is_private_and_works_with_the_official_client(server: EmbeddedAPIServer, tmp_path: Path) -> None:
    from kubernetes import client, config

    path = server.write_kubeconfig(tmp_path / "kubeconfig")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    configuration = client.Configuration()
    config.load_kube_config(str(path), client_configuration=configuration)  # type: ignore[no-untyped-call]  # theirs
    with client.ApiClient(configuration) as api:
        nodes = client.CoreV1Api(api).list_node()
    assert [node.metadata.name for node in nodes.items if node.metadata] == ["a"]


def test_https_with_a_certificate_of_its_own() -> None:
    with EmbeddedAPIServer(token="t", tls=True) as server:
        assert server.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(server.ca_file))
        with socket.create_connection(
            ("127.0.0.1", server.port), timeout=10
        ):  # a silent client does not hold up others
            secure = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=10, context=context)
            assert ask(secure, "GET", NODES)[0] == 200
            secure.close()
