"""A throw-away certificate for serving HTTPS on loopback: Go clients, kubectl too, send bearer
tokens over TLS only."""

from __future__ import annotations

import shutil
import ssl
import tempfile
import weakref
from pathlib import Path

from cloudprovider.internal.certificates import issue
from cloudprovider.internal.tlssockets import TLSSocket


class Certificates:
    """A self-signed certificate for 127.0.0.1 and localhost, in a temporary folder that goes away
    with this object.

    `ca_file` is what a client must trust, `context` what the server wraps its connections with.
    """

    def __init__(self) -> None:
        issued = issue("embedded-apiserver", ["127.0.0.1", "localhost"])
        folder = Path(tempfile.mkdtemp(prefix="embedded-apiserver-"))  # readable by its owner only
        self._remove = weakref.finalize(self, shutil.rmtree, folder, True)
        self.ca_file = folder / "ca.crt"
        self.ca_file.write_bytes(issued.certificate)
        key_file = folder / "server.key"
        key_file.write_bytes(issued.key)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.sslsocket_class = TLSSocket
        self.context.load_cert_chain(self.ca_file, key_file)
