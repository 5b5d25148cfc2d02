"""Requests to a manager's HTTPS port as a client of one's own sends them: by `http.client`, with a
token or a certificate."""

from __future__ import annotations

import http.client
import random
import socket
import ssl
import sys
from pathlib import Path

_RANDOM = random.SystemRandom()  # Hypothesis seeds the shared one
_CLAIMS: list[socket.socket] = []  # names that end with the process


def free_port() -> int:
    """A port of the loopback that is free now, for a program that starts in a moment.

    It is below the kernel's range for outgoing connections: one of those would otherwise take it
    meanwhile, now and then. No other process gets it from here as long as this one lives, although
    the program may take seconds to listen.
    """
    while True:
        port = _RANDOM.randrange(11_000, 31_000)
        claim = socket.socket(socket.AF_UNIX)
        try:
            if sys.platform == "linux":  # elsewhere there are no names without a file
                claim.bind(f"\0port {port} of a test")
            with socket.socket() as sock:
                sock.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
        else:
            _CLAIMS.append(claim)
            return port


def context(ca_file: Path | None = None, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    """Trusts this CA, or anybody; shows this certificate and key."""
    if ca_file is not None:
        made = ssl.create_default_context(cafile=str(ca_file))
    else:  # and does not read the system's authorities each time
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        made.load_cert_chain(*(str(path) for path in certificate))
    return made


def status(port: int, path: str, token: str | None = None) -> int:
    """The status of one answer; 0 where nobody listens yet."""
    try:
        return ask(port, path, token=token)[0]
    except OSError:
        return 0


def ask(
    port: int,
    path: str,
    *,
    token: str | None = None,
    method: str = "GET",
    tls: ssl.SSLContext | None = None,
    timeout: float = 20.0,
    body: bytes | None = None,
) -> tuple[int, str]:
    """Status and text of one answer, on a connection of its own. Raises OSError."""
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout, context=tls or context())
    try:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
