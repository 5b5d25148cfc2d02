"""Requests and answers as handlers see them, who the client is by its certificate, what counts as
one client, and what a server takes. No I/O."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

Certificate = Mapping[str, Any]
"""The subject of a client certificate, in the form that `ssl.SSLSocket.getpeercert` gives it."""
_NAMES: Final = {b"\x55\x04\x03": "commonName", b"\x55\x04\x0a": "organizationName"}
_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_VERSION: Final = 0xA0
_CODECS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x16: "ascii", 0x14: "latin-1", 0x1E: "utf-16-be", 0x1C: "utf-32-be"}
"""UTF8String, PrintableString, IA5String, TeletexString, BMPString, UniversalString."""


def group_of(peer: str) -> bytes:
    """What counts as one peer: an IPv4 address, or an IPv6 network of one customer."""
    address = peer.partition("%")[0].removeprefix("::ffff:")
    if ":" in address:
        return socket.inet_pton(socket.AF_INET6, address)[:8]
    return address.encode()


class Shares:
    """An amount of something, of which a peer may hold as much as it leaves free. Thread-safe.

    One peer alone gets half, two get a third each, and so on: however many take all that they can
    have, the next one finds something. `most` is an upper limit for one peer.
    """

    def __init__(self, total: int, most: int | None = None) -> None:
        self._total = total
        self._most = total if most is None else most
        self._lock = threading.Lock()
        self._used = 0
        self._held: dict[bytes, int] = {}

    def take(self, peer: bytes, amount: int = 1) -> Callable[[], None] | None:
        """Hold so much; returns what gives it back, once. None: there is no room now."""
        with self._lock:
            if self._held.get(peer, 0) + amount > min(self._most, self._total - self._used):
                return None
            self._used += amount
            self._held[peer] = self._held.get(peer, 0) + amount
        return lambda: self._give_back(peer, amount)

    def _give_back(self, peer: bytes, amount: int) -> None:
        with self._lock:
            self._used -= amount
            self._held[peer] -= amount
            if not self._held[peer]:
                del self._held[peer]


@attrs.frozen(kw_only=True)
class Request:
    """One request. The body is empty where the server reads none."""

    method: str
    target: str
    headers: Mapping[str, str]
    """Names in small letters; repeated headers are joined with commas."""
    peer: str
    """The IP address that the connection comes from."""
    certificate: Certificate | None = None
    """The client's, checked against the CA of client certificates; None without one."""
    body: bytes = attrs.field(default=b"", repr=False)

    @property
    def group(self) -> bytes:
        """The peer that limits count this request for, as of `group_of`."""
        return group_of(self.peer)


@attrs.frozen
class Response:
    """An answer: status, body, the body's type, and further headers."""

    status: int
    body: bytes
    kind: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


Later = Callable[[], Response]
"""Makes an answer that may have to wait for another machine."""
Handler = Callable[[Request], Response | Later]
"""Called in one of a few threads, several at once."""


@attrs.frozen(kw_only=True)
class Limits:
    """What one server takes; times in seconds."""

    connections: int = 256
    """Connections at once. Above that, the oldest one whose answer is not being made is closed."""
    per_peer: int = 128
    """Connections of one peer, likewise."""
    request_seconds: float = 10.0
    """From the start of a connection, TLS handshake included, or from the first byte of a further
    request, until the request is complete."""
    answer_seconds: float = 20.0
    """From then until the client has taken the whole answer."""
    idle_seconds: float = 10.0
    """From an answer until the next request begins. Longer than the clients keep idle connections,
    so that no request meets a connection that is being closed."""
    connection_seconds: float = 300.0
    """The first answer after so long closes its connection."""
    max_body: int = 0
    """Bytes of a request's body; a longer one is refused with 413. 0: bodies are not read."""
    all_bodies: int = 0
    """Bytes of all bodies that are being received or answered. A peer has as much of it as it
    leaves free; above that, the oldest of its connections that send bodies are closed."""
    require_certificate: bool = False
    """A client without a certificate of the client CA gets 401, and its body is not read."""
    slow_threads: int = 8
    """Threads for answers that wait for another machine."""
    slow_places: int = 64
    """Such answers under way or waiting; the next one is refused with 503."""
    slow_per_peer: int = 16
    """Those of one peer, and never more than it leaves free."""


def subject_of(certificate: bytes) -> Certificate:
    """The subject of a certificate in DER form, which the TLS library has checked: the common names
    and organizations, in order. Raises OSError if they cannot be read. RFC 5280, 4.1."""
    # Nothing else is read: `getpeercert()` reads alternative names too, and raises where one of
    # them is no UTF-8.
    try:
        [(_, body)] = _parts(certificate)
        signed = _parts(_parts(body)[0][1])
        # The fifth field.
        _, _, _, _, (_, subject) = signed[1 if signed[0][0] == _VERSION else 0 :][:5]
        pairs = [
            ((_NAMES[kind], value.decode(_CODECS[tag])),)
            for of_set, relative in _parts(subject)
            for of_pair, pair in _parts(relative)
            for (_, kind), (tag, value) in [_parts(pair)]
            if (of_set, of_pair) == (_SET, _SEQUENCE) and kind in _NAMES
        ]
    except (ValueError, IndexError, KeyError) as error:
        raise OSError(f"the subject of the client's certificate cannot be read: {error}") from error
    return {"subject": tuple(pairs)}


def _parts(data: bytes) -> list[tuple[int, bytes]]:
    """(tag, content) of values that follow each other. Raises ValueError and IndexError."""
    found, at = [], 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length >= 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        if at + length > len(data):
            raise ValueError("a value is longer than what holds it")
        found.append((tag, data[at : at + length]))
        at += length
    return found
