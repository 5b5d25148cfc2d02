"""A server on loopback whose every byte the test decides, and certificates for it."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from controllers.runtime.api import ClientSettings
from tests.support import pki

LIMIT = 10.0
"""Seconds of real time after which a test that waits for another thread fails."""


@frozen
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Peer:
    """The server's side of one connection."""

    def __init__(self, sock: socket.socket, server: Server) -> None:
        self.sock = sock
        self._server = server
        self._buffer = b""

    def request(self) -> Request | None:
        """The next request, None at the end of the connection."""
        while b"\r\n\r\n" not in self._buffer:
            data = self.sock.recv(65536)
            if not data:
                return None
            self._buffer += data
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        method, target, _ = lines[0].split(" ")
        pairs = [line.split(": ", 1) for line in lines[1:]]
        headers = {name.lower(): value for name, value in pairs}
        size = int(headers.get("content-length", "0"))
        while len(self._buffer) < size:
            self._buffer += self.sock.recv(65536)
        body, self._buffer = self._buffer[:size], self._buffer[size:]
        request = Request(method, target, headers, body)
        self._server.requests.append(request)
        return request

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def answer(self, status: int = 200, body: object = b"{}", **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.send("\r\n".join([*lines, "", ""]).encode() + data)

    def reset(self) -> None:
        """Break the connection with a reset instead of an orderly end."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


Handler = Callable[[Peer], None]


EMPTY_LIST: dict[str, Any] = {"items": []}


def answer_all(peer: Peer) -> None:
    """Answer every request of the connection with an empty list."""
    while peer.request():
        peer.answer(200, EMPTY_LIST)


def answer_none(peer: Peer) -> None:
    """Take requests and never answer."""
    while peer.request():
        pass


class Server:
    """Serves each connection with `handler` in a thread; `with` ends it."""

    def __init__(
        self, handler: Handler = answer_all, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> None:
        self.handler = handler
        self.requests: list[Request] = []
        self.connections = 0
        self.errors: list[OSError] = []
        self._tls = tls
        self._host = host
        self._listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http{'s' if self._tls else ''}://{host}:{self.port}"

    def __enter__(self) -> Server:
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            for sock in self._open:
                shut_down(sock)
        for thread in self._threads:
            thread.join(LIMIT)
            assert not thread.is_alive()

    def wait_for_connections(self, count: int) -> None:
        """Wait until so many connections were made, TLS handshake done."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.connections >= count, LIMIT)

    def _spawn(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._spawn(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        with self._changed:
            self._open.add(sock)
        try:
            if self._tls is not None:
                plain = sock
                sock = self._tls.wrap_socket(sock, server_side=True)
                with self._changed:
                    self._open = self._open - {plain} | {sock}
            with self._changed:
                self.connections += 1
                self._changed.notify_all()
            self.handler(Peer(sock, self))
        except OSError as error:
            self.errors.append(error)
        finally:
            with self._changed:
                self._open.discard(sock)
            sock.close()


def shut_down(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may have ended already
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


@contextlib.contextmanager
def full_backlog(host: str = "127.0.0.1") -> Iterator[int]:
    """The port of a listener that accepts nothing, so that connecting to it neither succeeds nor
    fails."""
    listener = socket.create_server((host, 0), backlog=0)
    fillers = []
    for _ in range(8):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
        fillers.append(filler)
    yield listener.getsockname()[1]
    for sock in [*fillers, listener]:
        sock.close()


class Authority(pki.Authority):
    """A certificate authority that keeps its certificate, and those that it signs, in a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        super().__init__(name)
        self._folder = folder
        self.file = folder / f"{name}.crt"
        self.file.write_bytes(self.pem)

    def issue(self, name: str) -> tuple[Path, Path]:
        """A client's certificate and its key."""
        return pki.write_pair(self._folder, self.client(name), name)

    def server_context(self, *alternatives: str, ask_client: bool = False) -> ssl.SSLContext:
        """For a server of these host names and addresses; default: the loopback."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pair = self.server("server", alternatives or ("127.0.0.1",))
        context.load_cert_chain(*pki.write_pair(self._folder, pair, "server"))
        if ask_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.file)
        return context


class Call:
    """A call in a thread of its own."""

    def __init__(self, target: Callable[[], object]) -> None:
        self._target = target
        self._outcome: object = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def outcome(self) -> Any:
        """What the call returned, or the exception that it raised."""
        self._thread.join(LIMIT)
        assert not self._thread.is_alive(), "the call did not return"
        return self._outcome

    def wait_until_blocked(self) -> None:
        """Wait until the thread sleeps in the kernel: it waits for the network, or for another
        thread."""
        stat = Path(f"/proc/self/task/{self._thread.native_id}/stat")
        seen = 0
        while seen < 20:
            assert self._thread.is_alive(), self._outcome
            seen = seen + 1 if stat.read_text().rpartition(")")[2].split()[0] == "S" else 0
            threading.Event().wait(0.001)

    def _run(self) -> None:
        try:
            self._outcome = self._target()
        except Exception as error:  # noqa: BLE001 - handed to the test
            self._outcome = error


def settings_from(options: dict[str, Any]) -> ClientSettings:
    """The ClientSettings among some options, which are taken out."""
    names = set(attrs.fields_dict(ClientSettings)) & set(options)
    return ClientSettings(**{name: options.pop(name) for name in names})
