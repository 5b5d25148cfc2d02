"""Health and metrics over plain HTTP: /healthz, /livez, /readyz and /metrics.

Stage: beside all of them. Data comes from the checks that the manager names and from the metrics registry; it goes to
kubelets, load balancers and scrapers. Answers follow the Kubernetes API health endpoints
(https://kubernetes.io/docs/reference/using-api/health-checks/): 200 `ok`, or 500 with one line per check; `?verbose`
gives the lines in any case, `?exclude=NAME` leaves a check out, `/healthz/NAME` asks one alone.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import attrs

from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

ENDPOINTS: Final = ("healthz", "livez", "readyz")
MAX_CONNECTIONS: Final = 64
IDLE_SECONDS: Final = 10.0


@attrs.frozen
class Check:
    """One answer: the part's name, whether it is well, and what is wrong or worth knowing (may be empty)."""

    name: str
    ok: bool
    detail: str = ""


Checks = Callable[[], Iterable[Check]]
"""Called at every request, from several threads at once; must not block."""


def report(endpoint: str, checks: Sequence[Check], *, verbose: bool = False) -> tuple[int, str]:
    """The status code and body for these checks, in the format of the Kubernetes components. Pure."""
    ill = [check for check in checks if not check.ok]
    if not ill and not verbose:
        return 200, "ok"
    lines = []
    for check in checks:
        detail = f": {check.detail}" if check.detail else ""
        lines.append(f"[+]{check.name} ok{detail}" if check.ok else f"[-]{check.name} failed{detail}")
    lines.append(f"{endpoint} check {'failed' if ill else 'passed'}")
    return (500 if ill else 200), "\n".join(lines) + "\n"


class HealthServer:
    """Serves until stopped. `start()` binds and raises OSError when it cannot; `stop()` may be called twice.

    A silent or slow client costs one of at most `MAX_CONNECTIONS` threads for `IDLE_SECONDS`; above that bound new
    connections are closed at once.
    """

    def __init__(self, address: tuple[str, int], endpoints: dict[str, Checks], metrics: Callable[[], bytes]) -> None:
        self._address = address
        self._endpoints = endpoints
        self._metrics = metrics
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port bound; the asked-for ones before `start()`."""
        return self._server.server_address[:2] if self._server else self._address  # type: ignore[return-value]  # (str, int) for IP sockets

    @property
    def url(self) -> str:
        """The base URL for people and tests."""
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        """Bind and serve in the background."""
        self._server = _Server(self._address, self._endpoints, self._metrics)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="health", daemon=True)
        self._thread.start()
        log.info("serving health and metrics on %s", self.url)

    def stop(self, timeout: float = 5.0) -> bool:
        """Close the listener; True when its thread has ended within `timeout`."""
        server, thread, self._server = self._server, self._thread, None
        if server is None or thread is None:
            return True
        server.shutdown()
        server.server_close()
        thread.join(timeout)
        return not thread.is_alive()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], endpoints: dict[str, Checks], metrics: Callable[[], bytes]) -> None:
        host, port = address
        if ":" in host:
            self.address_family = socket.AF_INET6
        self.endpoints = endpoints
        self.metrics = metrics
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__((host or "0.0.0.0", port), _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own also asks the resolver for this host's name, which can take seconds.
        socketserver.TCPServer.server_bind(self)
        host, self.server_port = self.server_address[:2]
        self.server_name = str(host)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # the thread did not start, so it will not release
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a health or metrics request from %s broke off", client_address, exc_info=True)  # noqa: LOG014 - called inside an except block


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "cloud-controller-manager"
    sys_version = ""
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        endpoint, _, part = url.path.strip("/").partition("/")
        if endpoint == "metrics" and not part:
            self._answer(200, self.server.metrics(), Metrics.CONTENT_TYPE)
        elif endpoint in self.server.endpoints:
            query = parse_qs(url.query, keep_blank_values=True)
            checks = [c for c in self._ask(endpoint) if c.name not in query.get("exclude", ())]
            if part:
                checks = [check for check in checks if check.name == unquote(part)]
                if not checks:
                    self._answer(404, b"no such check\n")
                    return
            status, text = report(endpoint, checks, verbose="verbose" in query)
            self._answer(status, text.encode())
        else:
            self._answer(404, b"not found\n")

    do_HEAD = do_GET  # noqa: N815 - the name that the base class calls

    def _ask(self, endpoint: str) -> list[Check]:
        try:
            return list(self.server.endpoints[endpoint]())
        except Exception as error:  # a thread's top: a check that fails to answer is a failed check
            log.exception("a health check raised")
            return [Check("checks", False, f"{type(error).__name__}: {error}")]

    def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-cache, private")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("health: %s", format % args)
