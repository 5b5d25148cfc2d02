"""One client's socket: how far its handshake, its request or its answer has come.

Stage: beside all of them. `server.py` says when the socket can go on; nothing here waits. With TLS the handshake is
one more phase before the first request, under the same deadline, and each step may have to wait for the socket to be
readable or writable, whatever the phase: what it waits for is `wanted`.
"""

from __future__ import annotations

import selectors
import socket
import ssl
from contextlib import suppress

import attrs

from controllers.app.serving.http1 import Certificate, Request, body_length, head_end, parse

__all__ = ["Connection"]

CHUNK = 65536
"""Bytes read at once: more than a TLS record holds, so that nothing stays behind in the TLS library unseen."""
_SENT_AT_ONCE = 16  # records of an answer over TLS, until the other connections have their turn
_PLAIN_TEXT = (
    b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
    b"This port speaks HTTPS.\n"
)


class Connection:
    """Only the server's thread touches it. `shake`, `receive` and `send` raise OSError when it is broken.

    `deadline` is in seconds of the monotonic clock.
    """

    def __init__(
        self, sock: socket.socket, peer: str, now: float, deadline: float, tls: ssl.SSLContext | None = None
    ) -> None:
        sock.setblocking(False)
        self.tls = tls is not None
        if tls is not None:
            sock = tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self.sock = sock
        self.peer = peer
        self.group = group_of(peer)
        self.began = now
        self.deadline = deadline
        self.certificate: Certificate | None = None
        self.shaking = self.tls
        self.received = bytearray()
        self._head: Request | None = None  # complete, while its body comes
        self._body = 0  # how long that is
        self._answering = 0  # bytes of the body whose answer is being made
        self.to_send = memoryview(b"")
        self.wanted = selectors.EVENT_READ
        self.idle = False  # answered, and nothing of a further request is there
        self.busy = False  # its request is complete, and its answer is being made
        self.last = False  # close after this answer
        self.refused = False  # answered before its request was complete
        self.closed = False
        self._lingers = False

    def shake(self) -> None:
        """Go on with the handshake; `shaking` is False when it is done."""
        sock = self.sock
        assert isinstance(sock, ssl.SSLSocket)
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            self.wanted = selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            self.wanted = selectors.EVENT_WRITE
        except ssl.SSLError as error:
            if error.reason == "HTTP_REQUEST":
                with suppress(OSError):
                    socket.socket.send(sock, _PLAIN_TEXT)  # the plain socket's own
            raise
        else:
            self.shaking = False
            self.wanted = selectors.EVENT_READ
            self.certificate = sock.getpeercert() or None

    def receive(self) -> bool:
        """Take what has come; False at the end of the stream."""
        self.wanted = selectors.EVENT_READ
        try:
            data = self.sock.recv(CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except ssl.SSLWantWriteError:
            self.wanted = selectors.EVENT_WRITE
            return True
        self.received += data
        return bool(data)

    @property
    def awaits_body(self) -> bool:
        """Whether the head of a request is there, and its body is not."""
        return self._head is not None

    @property
    def held(self) -> int:
        """Bytes of requests that are kept for it."""
        return len(self.received) + (self._answering if self.busy else 0)

    def take_request(self, max_body: int) -> Request | None:
        """A whole request, taken from what was received; None while it is not there. Raises BadRequest.

        Without `max_body` no body is read, and it stays behind.
        """
        if self._lingers:
            self.received.clear()
            return None
        if self._head is None:
            end = head_end(self.received)
            if not end:
                return None
            head = parse(bytes(self.received[:end]), self.peer, self.certificate, bodies=max_body > 0)
            self._body = body_length(head, max_body) if max_body else 0
            del self.received[:end]
            self._head = head
        if len(self.received) < self._body:
            return None
        request = attrs.evolve(self._head, body=bytes(self.received[: self._body])) if self._body else self._head
        del self.received[: self._body]
        self._answering = self._body
        self._head = None
        return request

    def send(self) -> None:
        """Send what can be sent now."""
        self.wanted = selectors.EVENT_WRITE
        try:
            for _ in range(_SENT_AT_ONCE if self.tls else 1):
                if not self.to_send:
                    return
                self.to_send = self.to_send[self.sock.send(self.to_send) :]
        except (BlockingIOError, ssl.SSLWantWriteError):
            return
        except ssl.SSLWantReadError:
            self.wanted = selectors.EVENT_READ

    def linger(self, deadline: float) -> None:
        """Take what still comes, and forget it: closing now would reset the connection, and the answer be lost."""
        self._lingers, self.deadline, self.wanted = True, deadline, selectors.EVENT_READ
        self.received.clear()
        if not self.tls:
            with suppress(OSError):  # the client is gone already
                self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket, with TLS's own farewell where it can be sent at once."""
        self.closed = True
        if isinstance(self.sock, ssl.SSLSocket) and not self.shaking:
            with suppress(OSError, ValueError):  # it is broken, or its buffer is full
                self.sock.unwrap()
        self.sock.close()


def group_of(peer: str) -> bytes:
    """What counts as one peer: an IPv4 address, or an IPv6 network of the size that one customer gets."""
    address = peer.partition("%")[0].removeprefix("::ffff:")
    if ":" in address:
        return socket.inet_pton(socket.AF_INET6, address)[:8]
    return address.encode()
