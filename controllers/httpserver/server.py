"""One port: bound, served by its own thread, stopped."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from controllers.httpserver.messages import Handler, Limits

if TYPE_CHECKING:
    from controllers.httpserver.connections import Connections

log = logging.getLogger(__name__)


class Server:
    """Answers requests until stopped. `start` binds, and raises OSError when it cannot; `stop`
    twice is fine.

    `answer` is called in one of a few threads, several at once; what it raises becomes a 500, and a
    log line. What it cannot know at once it returns as a function, which other threads call. `tls`
    gives each new connection's context, without blocking; without it they are plain. `prepare` is
    called once the address is taken, before all connections."""

    def __init__(
        self,
        address: tuple[str, int],
        answer: Handler,
        *,
        name: str = "server",
        tls: Callable[[], ssl.SSLContext] | None = None,
        prepare: Callable[[], None] | None = None,
        limits: Limits | None = None,
        share_port: bool = False,
    ) -> None:
        self._address, self._share = address, share_port
        self._answer = answer
        self._name = name
        self._tls = tls
        self._prepare = prepare
        self._limits = limits or Limits()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._stopping = False
        self._connections: Connections | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port bound; those asked for before `start`."""
        return self._address

    @property
    def place(self) -> str:
        """The address as it stands in URLs and log lines."""
        host, port = self._address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def start(self) -> None:
        """Bind, and serve in the background."""
        host, port = self._address
        # As Go: every address of both families.
        both = host in ("", "0.0.0.0", "::") and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
        listener = socket.create_server(
            ("::" if both else host, port), family=family, backlog=1024, reuse_port=self._share, dualstack_ipv6=both
        )
        thread = threading.Thread(target=self._run, args=(listener,), name=self._name, daemon=True)
        try:
            host, port = listener.getsockname()[:2]
            thread.start()
        except BaseException:
            listener.close()
            raise
        self._address, self._thread = (str(host), int(port)), thread

    def _run(self, listener: socket.socket) -> None:
        try:
            # Imported by this thread, beside the rest of the start: asyncio and h11 take a while.
            from controllers.httpserver.connections import Connections

            if self._prepare is not None:
                self._prepare()
            connections = Connections(listener, self._answer, self._name, self._tls, self._limits)
            with self._lock:
                self._connections = connections
                # Stopped before the import was done.
                if self._stopping:
                    connections.stop()
            connections.run()
        except Exception:  # a thread's top
            log.exception("%s: nothing can be served", self._name)
        finally:
            listener.close()

    def stop(self, timeout: float = 5.0) -> bool:
        """Close the listener and every connection; True if the thread ended within `timeout`."""
        with self._lock:
            self._stopping = True
            if self._connections is not None:
                self._connections.stop()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()
