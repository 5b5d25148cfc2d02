"""Through a proxy to the API server: HTTP's CONNECT (RFC 9110), SOCKS5 (RFC 1928 and 1929), and TLS
inside of the TLS to a proxy (stages 1 and 6). Names are looked up by the proxy, as Go has it."""

from __future__ import annotations

import ipaddress
import ssl
import struct
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from controllers.runtime.api.wire.endpoint import Endpoint, Proxy
from controllers.runtime.api.wire.http1 import ProtocolError, Reader

T = TypeVar("T")

_RECV_SIZE: Final = 65536
_SOCKS_REFUSALS: Final = {
    1: "general failure",
    2: "not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "time to live expired",
    7: "command not supported",
    8: "address type not supported",
}


class _Wire(Protocol):
    reader: Reader

    def send(self, data: bytes) -> None: ...
    def recv(self, size: int) -> bytes: ...


def open_tunnel(wire: _Wire, endpoint: Endpoint, proxy: Proxy) -> None:
    """Have the proxy connect to the API server; raises ProtocolError when it refuses."""
    if proxy.scheme == "socks5":
        _socks5(wire, endpoint, proxy)
    else:
        _connect(wire, endpoint, proxy)


def _connect(wire: _Wire, endpoint: Endpoint, proxy: Proxy) -> None:
    lines = [f"CONNECT {endpoint.authority} HTTP/1.1", f"Host: {endpoint.authority}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    wire.send("\r\n".join([*lines, "", ""]).encode("latin-1"))
    answer = wire.reader.answer("CONNECT")
    if not 200 <= answer.status < 300 or wire.reader.pending:
        raise ProtocolError(f"proxy {proxy.host}:{proxy.port} answered CONNECT with {answer.status}")


def _socks5(wire: _Wire, endpoint: Endpoint, proxy: Proxy) -> None:
    where = f"SOCKS5 proxy {proxy.host}:{proxy.port}"
    methods = b"\x00\x02" if proxy.user else b"\x00"
    wire.send(bytes((5, len(methods))) + methods)
    version, method = _exactly(wire, 2, where)
    if version != 5 or method not in methods:
        raise ProtocolError(f"{where} accepts none of our ways to log in" if version == 5 else f"{where}: not SOCKS5")
    if method == 2:
        user, password = proxy.user.encode(), proxy.password.encode()
        wire.send(bytes((1, len(user))) + user + bytes((len(password),)) + password)
        if _exactly(wire, 2, where)[1]:
            raise ProtocolError(f"{where} does not accept our user name and password")
    wire.send(b"\x05\x01\x00" + _socks_address(endpoint.host.partition("%")[0]) + struct.pack("!H", endpoint.port))
    version, refusal, _, kind = _exactly(wire, 4, where)
    if version != 5 or refusal:
        raise ProtocolError(
            f"{where} did not connect to {endpoint.authority}: {_SOCKS_REFUSALS.get(refusal, f'code {refusal}')}"
        )
    size = _exactly(wire, 1, where)[0] if kind == 3 else {1: 4, 4: 16}.get(kind)
    if size is None:
        raise ProtocolError(f"{where} answered with an unknown type of address, {kind}")
    _exactly(wire, size + 2, where)  # from where the proxy connects, which is not needed


def _socks_address(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.encode()
        if len(name) > 255:
            raise ProtocolError("the server's name is too long for a SOCKS5 proxy") from None
        return bytes((3, len(name))) + name
    return (b"\x01" if address.version == 4 else b"\x04") + address.packed


def _exactly(wire: _Wire, size: int, where: str) -> bytes:
    """Read so many bytes and not one more: what follows belongs to the API server."""
    data = b""
    while len(data) < size:
        more = wire.recv(size - len(data))
        if not more:
            raise ProtocolError(f"{where} closed the connection")
        data += more
    return data


class TLSInTLS:
    """TLS to the API server inside of the TLS to a proxy; like a non-blocking SSLSocket.

    The ssl module wraps sockets only, so the inner layer works on buffers, and the outer one
    carries their contents. Each method raises SSLWantReadError or SSLWantWriteError when it would
    block; it is then called again, with the same arguments.
    """

    def __init__(self, context: ssl.SSLContext, outer: ssl.SSLSocket, server_name: str) -> None:
        self._outer = outer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._inner = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._unsent = b""
        self._accepted = 0  # bytes that are encrypted and not all sent

    def do_handshake(self) -> None:
        self._step(self._inner.do_handshake)
        self._flush()

    def send(self, data: bytes | memoryview) -> int:
        """Encrypt and send; returns the number of bytes taken."""
        if not self._accepted:
            self._accepted = self._step(lambda: self._inner.write(data))
        self._flush()
        taken, self._accepted = self._accepted, 0
        return taken

    def recv(self, size: int) -> bytes:
        """Return up to `size` bytes, b"" at the end."""
        try:
            return self._step(lambda: self._inner.read(size))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def pending(self) -> int:
        """Bytes, encrypted or not, that need no reading from the network."""
        return self._inner.pending() + self._incoming.pending + self._outer.pending()

    def _step(self, act: Callable[[], T]) -> T:
        while True:
            self._flush()
            try:
                return act()
            except ssl.SSLWantReadError:
                self._flush()
                if data := self._outer.recv(_RECV_SIZE):
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()

    def _flush(self) -> None:
        self._unsent += self._outgoing.read()
        while self._unsent:
            self._unsent = self._unsent[self._outer.send(self._unsent) :]
