"""urllib3 over a unix socket, and over HTTPS with a client certificate and a pinned server."""

from __future__ import annotations

import hashlib
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import override
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

HOST = "incus"
"""What requests over the socket have as their host: nobody looks it up."""


class UnixConnection(HTTPConnection):
    """A connection to a unix socket. Its time limits hold as over TCP."""

    def __init__(self, *args: Any, path: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self._path = path

    @override
    def _new_conn(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if isinstance(self.timeout, int | float):
                made.settimeout(self.timeout)
            made.connect(self._path)
        except BaseException:
            made.close()
            raise
        return made


class UnixPool(HTTPConnectionPool):
    """Connections to one unix socket."""

    ConnectionCls = UnixConnection

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(HOST, path=path, **options)


def https_pool(url: str, certificate: str, key: str, server_certificate: str, **options: Any) -> HTTPSConnectionPool:
    """Connections to a server with a client certificate. With the server's certificate, that one
    alone is taken, whatever name it has: a server of Incus or LXD signs its own.

    Raises OSError or ssl.SSLError for files that cannot be used.
    """
    parts = urlsplit(url)
    if server_certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Not less than a verified name: urllib3 compares the whole certificate before it sends.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        der = ssl.PEM_cert_to_DER_cert(Path(server_certificate).read_text(encoding="ascii"))
        options |= {"assert_fingerprint": hashlib.sha256(der).hexdigest(), "cert_reqs": "CERT_NONE"}
    else:
        context = ssl.create_default_context()
    context.load_cert_chain(certificate, key)
    return HTTPSConnectionPool(str(parts.hostname), parts.port or 8443, ssl_context=context, **options)
