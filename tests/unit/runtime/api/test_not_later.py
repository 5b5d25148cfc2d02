"""What the kernel holds of a write is not sent after its time or the lease's, and no way leads past
the guard."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client import ApiClient, AppsV1Api, CoreV1Api
from kubernetes.client.rest import RESTClientObject
from kubernetes.dynamic import DynamicClient
from kubernetes.stream import portforward, stream

from controllers.runtime.api import ClientBuilder, ClientSettings, vendorclient
from controllers.runtime.api.credentials import Fixed
from controllers.runtime.api.kubeconfig import Access
from controllers.runtime.api.tls import TLSSettings
from controllers.runtime.api.wire import Endpoint, connection, dialing
from tests.support.pki import Authority
from tests.unit.runtime.loopback import EMPTY_LIST, LIMIT, Peer, Server, settings_from

Write = Callable[[ClientBuilder, Any], object]


def ours(clients: ClientBuilder, body: Any) -> object:
    return clients.rest("x").request("PATCH", "/api/v1/nodes/n1", body=body)


def vendors(clients: ClientBuilder, body: Any) -> object:
    return CoreV1Api(clients.client("acme")).patch_node("n1", body)


def builder(server: Server, **options: Any) -> ClientBuilder:
    access = Access(Endpoint.parse(server.url), Fixed("Bearer t"))
    return ClientBuilder(access, settings_from(options), **options)


@pytest.mark.row("K18")
@pytest.mark.parametrize("write", [ours, vendors])
def test_what_the_kernel_holds_of_a_write_that_was_given_up_is_dropped(write: Write) -> None:
    """The server stands still and wakes after the request's time: it must not get the rest of
    it."""
    given_up, ended, ends = threading.Event(), threading.Event(), list[object]()

    def sleeps(peer: Peer) -> None:
        given_up.wait(LIMIT)
        try:
            while data := peer.sock.recv(1 << 20):
                del data
            ends.append("all that was in the kernel, in order, and the end")
        except OSError as error:
            ends.append(error)
        ended.set()

    with Server(sleeps) as server, builder(server, timeout=0.3) as clients:
        with pytest.raises(Exception, match="timed out"):
            write(clients, {"data": "x" * 8_000_000})
        given_up.set()
        assert ended.wait(LIMIT)
        assert [type(end) for end in ends] == [ConnectionResetError]


def options(sock: socket.socket) -> tuple[tuple[int, int], float]:
    """(SO_LINGER, TCP_USER_TIMEOUT in seconds) of a socket."""
    linger = struct.unpack("ii", sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))
    return (linger[0], linger[1]), sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) / 1000


def answers(peer: Peer) -> None:
    while peer.request():
        peer.answer(200, EMPTY_LIST)


def answers_tls(peer: Peer, context: ssl.SSLContext) -> None:
    with context.wrap_socket(peer.sock.dup(), server_side=True) as peer.sock, contextlib.suppress(OSError):
        answers(peer)


@pytest.mark.row("K18")
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("write", [ours, vendors])
def test_the_kernel_sends_a_write_no_longer_than_the_lease_is_certain(
    write: Write, tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that stands still cannot close its connection."""
    authority, leave = Authority(), list[float | None]([7.0])
    seen: list[tuple[tuple[int, int], float]] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server_files(tmp_path))
    (tmp_path / "ca.crt").write_bytes(authority.pem)

    def handle(peer: Peer) -> None:
        answers(peer) if not tls else answers_tls(peer, context)

    made: list[socket.socket] = []

    def noting(sock: socket.socket, seconds: float) -> None:
        deliver(sock, seconds)
        made.append(sock)
        seen.append(options(sock))

    deliver = dialing.deliver_within
    monkeypatch.setattr(connection, "deliver_within", noting)
    monkeypatch.setattr(vendorclient, "deliver_within", noting)
    with Server(handle) as server:
        endpoint = Endpoint.parse(f"https://127.0.0.1:{server.port}" if tls else server.url)
        with ClientBuilder(
            Access(endpoint, Fixed("Bearer t"), TLSSettings(ca_file=str(tmp_path / "ca.crt"))),
            ClientSettings(timeout=20),
            guard=lambda _method, _path: leave[0],
        ) as clients:
            write(clients, {})
            leave[0] = None  # no election: as long as the request may take
            write(clients, {})
    assert [one[0] for one in seen] == [(1, 0), (1, 0)]
    assert seen[0][1] == pytest.approx(7.0, abs=0.01)
    assert 15 < seen[1][1] <= 20
    assert all(isinstance(sock, ssl.SSLSocket) is tls for sock in made)


@pytest.mark.row("K22")
def test_a_vendors_client_takes_a_ca_that_is_not_self_signed_as_ours_does(tmp_path: Path) -> None:
    authority = Authority("intermediate", Authority("root"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server_files(tmp_path))
    (tmp_path / "ca.crt").write_bytes(authority.pem)

    with Server(lambda peer: answers_tls(peer, context)) as server:
        endpoint, tls = Endpoint.parse(f"https://127.0.0.1:{server.port}"), TLSSettings(str(tmp_path / "ca.crt"))
        with ClientBuilder(Access(endpoint, Fixed("Bearer t"), tls)) as clients:
            assert clients.rest("x").request("GET", "/api/v1/namespaces").status == 200
            assert CoreV1Api(clients.client("acme")).list_namespace().items == []


class Lost(Exception):
    pass


def own_call(client: ApiClient) -> object:
    """As a library that brings its own way to the server."""
    elsewhere = RESTClientObject(client.configuration)
    client.call_api = elsewhere.request  # type: ignore[method-assign]
    return CoreV1Api(client).delete_node("n1")


WAYS: dict[str, Callable[[ApiClient], object]] = {
    "exec": lambda client: stream(CoreV1Api(client).connect_get_namespaced_pod_exec, "p", "default", command=["rm"]),
    "attach": lambda client: stream(CoreV1Api(client).connect_get_namespaced_pod_attach, "p", "default"),
    "post exec": lambda client: stream(CoreV1Api(client).connect_post_namespaced_pod_exec, "p", "default"),
    "portforward": lambda client: portforward(
        CoreV1Api(client).connect_get_namespaced_pod_portforward, "p", "default", ports="80"
    ),
    "call_api": lambda client: client.call_api("DELETE", f"{client.configuration.host}/api/v1/nodes/n1", {}),
    "own call_api": own_call,
    "rest_client": lambda client: client.rest_client.request(  # type: ignore[no-untyped-call]  # without annotations
        "DELETE", f"{client.configuration.host}/api/v1/nodes/n1"
    ),
    "another API": lambda client: AppsV1Api(client).delete_namespaced_deployment("d", "default"),
    "DynamicClient": lambda client: DynamicClient.request(
        SimpleNamespace(client=client, configuration=client.configuration), "DELETE", "/api/v1/nodes/n1"
    ),
}


@pytest.mark.row("K25")
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_no_way_through_a_vendors_client_leads_past_the_guard(way: Callable[[ApiClient], object]) -> None:
    def guard(_method: str, _path: str) -> float:
        raise Lost

    with Server(answers) as server, builder(server, guard=guard) as clients:
        client = clients.client("acme")
        with pytest.raises(Lost):
            way(client)
        assert not server.requests


@pytest.mark.row("K25")
def test_reads_pass_what_took_the_place_of_call_api_and_it_is_put_back() -> None:
    def guard(_method: str, _path: str) -> float:
        raise Lost

    with Server(answers) as server, builder(server, guard=guard) as clients:
        client = clients.client("acme")
        before, seen = client.call_api, list[str]()

        def traced(method: str, url: str, *args: Any, **options: Any) -> Any:
            seen.append(method)
            return before(method, url, *args, **options)

        client.call_api = traced  # type: ignore[method-assign]
        assert CoreV1Api(client).list_namespace().items == []
        client.call_api = before  # type: ignore[method-assign]
        assert CoreV1Api(client).list_namespace().items == []
        assert seen == ["GET"]
        with pytest.raises(AttributeError, match="cannot be replaced"):
            client.rest_client = RESTClientObject(client.configuration)
