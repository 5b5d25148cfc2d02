"""Heads of HTTP/1 requests in, bytes of answers out. Pure; what `server.py` speaks.

Stage: beside all of them. Only what kubelets, API servers, load balancers, scrapers and people with curl send: a
request line, headers, and a body of a given length where the server takes bodies. Where it takes none, a request with
one is answered, and its connection closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import attrs

__all__ = [
    "MAX_HEAD",
    "BadRequest",
    "Certificate",
    "Request",
    "Response",
    "body_length",
    "encode",
    "head_end",
    "parse",
]

MAX_HEAD = 16384
"""Bytes of a request's head, its line and headers."""


class BadRequest(Exception):
    """What came is no request; the answer's status."""

    def __init__(self, status: int) -> None:
        super().__init__(HTTPStatus(status).phrase)
        self.status = status


Certificate = Mapping[str, Any]
"""A client certificate as `ssl.SSLSocket.getpeercert` gives it."""


@attrs.frozen(kw_only=True)
class Request:
    """One request. The body is empty where the server takes none."""

    method: str
    target: str
    headers: Mapping[str, str]
    """Names in small letters; of repeated ones the values with commas."""
    peer: str
    """The IP address that the connection comes from."""
    keep_alive: bool = True
    certificate: Certificate | None = None
    """The client's, checked against the CA of client certificates; None without one."""
    body: bytes = attrs.field(default=b"", repr=False)


@attrs.frozen
class Response:
    """An answer: status, body, the body's type, and headers besides."""

    status: int
    body: bytes
    kind: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


def head_end(data: bytes | bytearray) -> int:
    """Where the head ends, with its empty line; 0 while it is not complete. Raises BadRequest when it is too long."""
    end = data.find(b"\r\n\r\n", 0, MAX_HEAD)
    if end < 0 and len(data) >= MAX_HEAD:
        raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    return end + 4 if end >= 0 else 0


def parse(head: bytes, peer: str, certificate: Certificate | None = None, *, bodies: bool = False) -> Request:
    """The request of a complete head, from a client at this address with this certificate. Raises BadRequest.

    `bodies`: its body is going to be read, so that the connection can be used again.
    """
    line, *fields = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = line.split(" ")
    if len(words) != 3 or not words[0].isalpha() or not words[1] or not words[2].startswith("HTTP/1."):
        raise BadRequest(HTTPStatus.BAD_REQUEST)
    headers: dict[str, str] = {}
    for text in fields:
        name, colon, value = text.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest(HTTPStatus.BAD_REQUEST)
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    bodiless = bodies or (headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers)
    asked = headers.get("connection", "").lower()
    return Request(
        method=words[0],
        target=words[1],
        headers=headers,
        peer=peer,
        keep_alive=bodiless and words[2] == "HTTP/1.1" and "close" not in asked,
        certificate=certificate,
    )


def body_length(request: Request, most: int) -> int:
    """Bytes of the body that follows a head. Raises BadRequest: 411 without a length, 413 where it is above `most`."""
    if "transfer-encoding" in request.headers:
        raise BadRequest(HTTPStatus.LENGTH_REQUIRED)
    text = request.headers.get("content-length", "0")
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise BadRequest(HTTPStatus.BAD_REQUEST)
    if int(text) > most:
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return int(text)


def encode(answer: Response, *, head_only: bool = False, close: bool = False) -> bytes:
    """The answer as it is sent."""
    lines = [
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
        f"Content-Type: {answer.kind}",
        f"Content-Length: {len(answer.body)}",
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-cache, private",
    ]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    if close:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (b"" if head_only else answer.body)
