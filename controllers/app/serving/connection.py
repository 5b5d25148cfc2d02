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

from controllers.app.serving.http1 import Certificate

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
        self.to_send = memoryview(b"")
        self.wanted = selectors.EVENT_READ
        self.busy = False  # its request is complete, and its answer is being made
        self.last = False  # close after this answer
        self.closed = False

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
