"""Requests and answers as handlers see them, and what a server takes. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from controllers.httpserver.peers import group_of

Certificate = Mapping[str, Any]
"""The subject of a client certificate, in the form that `ssl.SSLSocket.getpeercert` gives it."""


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
