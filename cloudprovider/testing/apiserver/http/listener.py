"""The listening socket and its connections: the stdlib's TCPServer, made stoppable in every state.

Started and stopped by `server`, which also says what handles a connection; each in its thread."""

from __future__ import annotations

import contextlib
import logging
import shutil
import socket
import ssl
import tempfile
import threading
import weakref
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer
from typing import Any, Final

from cloudprovider.internal.certificates import issue
from cloudprovider.internal.tlssockets import TLSSocket
from cloudprovider.testing.apiserver.faults import Action, Faults
from cloudprovider.testing.apiserver.rest.api import API

_LOG: Final = logging.getLogger("cloudprovider.testing.apiserver")
_HANDSHAKE_TIMEOUT: Final = 10.0


class Listener(TCPServer):
    """Accepts connections on loopback. `begin()` once, `end()` once; a start makes a new one."""

    allow_reuse_address = True
    request_queue_size = 256

    def __init__(
        self, port: int, api: API, faults: Faults, tls: ssl.SSLContext | None, handler: type[BaseRequestHandler]
    ) -> None:
        self.api = api
        self.faults = faults
        self.stopping = threading.Event()
        self._tls = tls
        self._lock = threading.Lock()
        self._open: dict[int, socket.socket] = {}
        self._workers: set[threading.Thread] = set()
        super().__init__(("127.0.0.1", port), handler)
        self._thread = threading.Thread(target=self._accept, name="apiserver-accept", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self.server_address[1])

    def begin(self) -> None:
        """Start accepting."""
        self._thread.start()

    def end(self) -> None:
        """Stop accepting, break every connection, and wait for their threads (5 s at most)."""
        self.stopping.set()
        with contextlib.suppress(OSError):  # a listening socket may refuse shutdown; closing it follows
            self.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self.socket.close()
        with self._lock:
            connections = list(self._open.values())
            workers = list(self._workers)
        for connection in connections:
            with contextlib.suppress(OSError):  # closed by its own thread in this moment
                connection.shutdown(socket.SHUT_RDWR)
        self.faults.break_watches(Action.CLOSE)
        for worker in workers:
            worker.join(5)

    def connections(self) -> int:
        """How many connections are open."""
        with self._lock:
            return len(self._open)

    def _accept(self) -> None:
        while not self.stopping.is_set():
            try:
                connection, address = self.socket.accept()
            except OSError as error:
                if not self.stopping.is_set():
                    _LOG.error("the embedded API server stops accepting: %s", error)
                return
            worker = threading.Thread(target=self._run, args=(connection, address), name="apiserver", daemon=True)
            with self._lock:
                self._workers.add(worker)
                self._open[id(worker)] = connection
            worker.start()

    def _run(self, connection: socket.socket, address: Any) -> None:
        try:
            self.finish_request(connection, address)
        except (OSError, ssl.SSLError) as error:
            _LOG.debug("connection of %s failed: %s", address, error)
        except Exception:  # noqa: BLE001 - top of the connection's thread; logged with its trace
            _LOG.exception("connection of %s failed inside the embedded API server", address)
        finally:
            connection.close()
            with self._lock:
                worker = threading.current_thread()
                self._workers.discard(worker)
                self._open.pop(id(worker), None)

    def wrap(self, connection: socket.socket) -> socket.socket:
        """TLS in the connection's own thread, with a deadline for the handshake."""
        if self._tls is None:
            return connection
        connection.settimeout(_HANDSHAKE_TIMEOUT)
        wrapped = self._tls.wrap_socket(connection, server_side=True)
        wrapped.settimeout(None)
        with self._lock:
            self._open[id(threading.current_thread())] = wrapped
        return wrapped


class Certificates:
    """A self-signed certificate for 127.0.0.1 and localhost, in a temporary folder as long as this
    object.

    `ca_file` is what a client must trust, `context` what the server wraps its connections with."""

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
