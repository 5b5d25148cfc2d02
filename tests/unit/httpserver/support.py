"""A server on a free port of the loopback, and raw sockets as its clients."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from controllers.httpserver.messages import Handler, Limits
from controllers.httpserver.server import Server

__all__ = ["PATIENCE", "connected", "read_all", "running", "served"]

S = TypeVar("S", bound=Server)

PATIENCE = 20.0
"""Seconds for what takes milliseconds, on a machine with other things to do."""


@contextmanager
def running(server: S) -> Iterator[S]:
    """It serves in the body, and can be stopped twice."""
    server.start()
    try:
        yield server
    finally:
        assert server.stop(PATIENCE)
        assert server.stop(PATIENCE)


@contextmanager
def served(answer: Handler, **limits: Any) -> Iterator[Server]:
    with running(Server(("127.0.0.1", 0), answer, limits=Limits(**limits))) as made:
        yield made


def connected(server: Server, data: bytes = b"", peer: str = "127.0.0.1") -> socket.socket:
    """A connection of this peer, on which this was sent."""
    sock = socket.create_connection(server.address, timeout=PATIENCE, source_address=(peer, 0))
    sock.sendall(data)
    return sock


def read_all(sock: socket.socket) -> bytes:
    """What comes until the server closes."""
    data = b""
    try:
        while more := sock.recv(65536):
            data += more
    except ConnectionResetError:  # closed with bytes of ours unread
        return data
    return data
