"""A server on loopback whose every byte the test decides, and certificates for it."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controllers.runtime.api import ClientSettings

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

    def __exit__(self, *exc: object) -> None:
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


class Authority:
    """A certificate authority that signs server and client certificates into files."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.pem = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        self.file = folder / f"{name}.crt"
        self.file.write_bytes(self.pem)

    def issue(self, name: str, *alternatives: str) -> tuple[Path, Path]:
        """A certificate and its key, for these host names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(subject, key).add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_general, alternatives))), False)
        certificate, private = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, private

    def server_context(self, *alternatives: str, ask_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue("server", *(alternatives or ("127.0.0.1",))))
        if ask_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.file)
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


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


def wait_until(predicate: Callable[[], bool]) -> None:
    """Wait for what another thread or the kernel is about to do."""
    give_up = time.monotonic() + LIMIT
    while not predicate():
        assert time.monotonic() < give_up, "it did not happen"
        threading.Event().wait(0.001)


def settings_from(options: dict[str, Any]) -> ClientSettings:
    """The ClientSettings among some options, which are taken out."""
    names = set(attrs.fields_dict(ClientSettings)) & set(options)
    return ClientSettings(**{name: options.pop(name) for name in names})
