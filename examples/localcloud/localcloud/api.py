"""The HTTP API: paths and documents outside, `Cloud` inside.

Every answer is JSON. An error is {"error": {"code", "message", "problems"}} with the status 400,
401, 404, 405, 409, 413, 422, 429, 500 or 503.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from attrs import frozen
from typing_extensions import override

from localcloud import views
from localcloud.cloud import Cloud, Conflict, NotFound
from localcloud.inputs import TYPES, ZONES, BalancerBody, Invalid, KeysBody, MachineBody, RebootBody, RouteBody, parse
from localcloud.kernel import KernelError
from localcloud.ratelimit import RateLimit

__all__ = ["ApiServer"]

logger = logging.getLogger(__name__)

MOST_BYTES = 1 << 20
"""Of a request's body."""
MOST_SKIPPED = 16 << 10
"""Of the body of a request that is refused without it."""
IDLE_SECONDS = 60.0
"""After which a quiet connection is closed."""
MOST_CONNECTIONS = 256
"""At once; one more is closed. Each has a thread."""
IP_FREEBIND = 15
"""An address that the host does not have yet may be listened on."""

Document = dict[str, Any]


@frozen
class Request:
    """One request, as the functions below get it."""

    cloud: Cloud
    parts: Sequence[str]
    """What the path's variable parts are."""
    fields: Mapping[str, str]
    """The query's."""
    body: bytes
    source: str
    """The client's address."""

    def listed(self, field: str) -> list[str] | None:
        """A field with commas; None where it is not given."""
        return self.fields[field].split(",") if field in self.fields else None


class _Fault(Exception):
    def __init__(self, status: int, code: str, *problems: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__("; ".join(problems))
        self.status, self.code, self.problems, self.headers = status, code, problems, dict(headers or {})


def _list_machines(request: Request) -> Document:
    found = request.cloud.machines(ids=request.listed("id"), names=request.listed("name"))
    return {"machines": [views.machine(one) for one in found]}


def _reboot(request: Request) -> Document:
    body = parse(RebootBody, request.body)
    return views.machine(request.cloud.reboot_machine(request.parts[0], new_address=body.new_address))


def _delete_machine(request: Request) -> None:
    request.cloud.delete_machine(request.parts[0])


def _list_routes(request: Request) -> Document:
    cloud = request.cloud
    return {"routes": [views.route(one, cloud.gateway(one)) for one in cloud.routes(request.fields.get("owner"))]}


def _put_route(request: Request) -> Document:
    made = request.cloud.put_route(request.parts[0], parse(RouteBody, request.body))
    return views.route(made, request.cloud.gateway(made))


def _delete_route(request: Request) -> None:
    request.cloud.delete_route(request.parts[0], request.fields.get("owner"))


def _list_balancers(request: Request) -> Document:
    cloud = request.cloud
    found = cloud.load_balancers(request.fields.get("owner"))
    return {"loadbalancers": [views.balancer(one, cloud.target_health(one)) for one in found]}


def _get_balancer(request: Request) -> Document:
    found = request.cloud.load_balancer(request.parts[0])
    return views.balancer(found, request.cloud.target_health(found))


def _put_balancer(request: Request) -> Document:
    made = request.cloud.put_load_balancer(request.parts[0], parse(BalancerBody, request.body))
    return views.balancer(made, request.cloud.target_health(made))


def _delete_balancer(request: Request) -> None:
    request.cloud.delete_load_balancer(request.parts[0], request.fields.get("owner"))


def _put_keys(request: Request) -> Document:
    return {"keys": request.cloud.put_ssh_keys(request.parts[0], parse(KeysBody, request.body))}


_PATHS: Mapping[str, Mapping[str, Callable[[Request], Document | None]]] = {
    "/v1/machines": {
        "GET": _list_machines,
        "POST": lambda r: views.machine(r.cloud.create_machine(parse(MachineBody, r.body))),
    },
    "/v1/machines/*": {
        "GET": lambda r: views.machine(r.cloud.machine(r.parts[0])),
        "DELETE": _delete_machine,
    },
    "/v1/machines/*/start": {"POST": lambda r: views.machine(r.cloud.start_machine(r.parts[0]))},
    "/v1/machines/*/stop": {"POST": lambda r: views.machine(r.cloud.stop_machine(r.parts[0]))},
    "/v1/machines/*/reboot": {"POST": _reboot},
    "/v1/machines/*/console": {"GET": lambda r: {"console": r.cloud.console(r.parts[0])}},
    "/v1/machines/*/enter": {"GET": lambda r: {"command": r.cloud.enter_command(r.parts[0])}},
    "/v1/routes": {"GET": _list_routes},
    "/v1/routes/*": {"PUT": _put_route, "DELETE": _delete_route},
    "/v1/loadbalancers": {"GET": _list_balancers},
    "/v1/loadbalancers/*": {"GET": _get_balancer, "PUT": _put_balancer, "DELETE": _delete_balancer},
    "/v1/sshkeys/*": {"GET": lambda r: {"keys": r.cloud.ssh_keys(r.parts[0])}, "PUT": _put_keys},
    "/v1/self": {"GET": lambda r: views.machine(r.cloud.machine_at(r.source))},
    "/v1/zones": {"GET": lambda _: {"zones": list(ZONES)}},
    "/v1/types": {"GET": lambda _: {"types": [{"name": n, "cpus": c, "memoryGiB": m} for n, (c, m) in TYPES.items()]}},
    "/healthz": {"GET": lambda _: {"status": "ok"}},
}
_OPEN = {"/v1/self", "/healthz"}
"""Without a token: a machine that boots has none."""
_MATCHERS = [(re.compile(path.replace("*", "([^/]+)")), path, methods) for path, methods in _PATHS.items()]


class ApiServer(ThreadingHTTPServer):
    """Serves a cloud on an address. `serve_forever` blocks; each connection has a thread."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], cloud: Cloud, token: str, limit: RateLimit | None = None) -> None:
        """Listens when this returns. Raises OSError, and ValueError without a token."""
        if not token:
            raise ValueError("the API needs a token")
        self.cloud = cloud
        self.limit = limit
        self._token = token.encode()
        self._free = threading.Semaphore(MOST_CONNECTIONS)
        super().__init__(address, _Handler)

    @override
    def server_bind(self) -> None:
        """As the base class, which also looks for the address's name: a wait where there is no
        DNS."""
        # The address may come only with the uplink, which is made later.
        if sys.platform == "linux":
            self.socket.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            logger.warning("%d connections are open: one of %s is closed", MOST_CONNECTIONS, client_address)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    @override
    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is its own affair."""
        level = logging.DEBUG if isinstance(sys.exception(), OSError) else logging.ERROR
        logger.log(level, "the connection from %s ended", client_address, exc_info=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.server_name}:{self.server_port}"

    def is_token(self, header: str) -> bool:
        """Whether the header Authorization carries the token."""
        kind, _, given = header.partition(" ")
        return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token)


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer
    protocol_version = "HTTP/1.1"
    server_version = "localcloud"
    sys_version = ""
    timeout = IDLE_SECONDS
    wbufsize = -1  # one packet for head and body
    disable_nagle_algorithm = True
    _came = 0.0
    """When the request came, of the monotonic clock."""
    _unread: int | None = None
    """Bytes of the body that are still to come; None: nobody knows."""

    def do_GET(self) -> None:
        self._serve()

    do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815

    @override
    def parse_request(self) -> bool:
        self._came, self._unread = time.monotonic(), None
        return super().parse_request()

    @override
    def log_message(self, format: str, *args: object) -> None:
        logger.debug("%s %s", self.client_address[0], format % args)

    @override
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """With the time since the request came: who asked may be gone when it is answered."""
        self.log_message('"%s" %s %.3f s', self.requestline, code, time.monotonic() - self._came)

    def _serve(self) -> None:
        headers: Mapping[str, str] = {}
        try:
            status, document = self._answer()
        except _Fault as fault:
            headers, status = fault.headers, fault.status
            document = {"error": {"code": fault.code, "message": str(fault), "problems": list(fault.problems)}}
            self._leave_body()
        data = b"" if document is None else json.dumps(document).encode() + b"\n"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if document is not None:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _answer(self) -> tuple[int, Document | None]:
        target = urlsplit(self.path)
        parts, path, methods = _found(target.path)
        if path not in _OPEN and not self.server.is_token(self.headers.get("Authorization", "")):
            wanted = {"WWW-Authenticate": "Bearer"}
            raise _Fault(401, "unauthorized", "the bearer token is missing or wrong", headers=wanted)
        body = self._body()
        if self.command not in methods:
            allowed = ", ".join(methods)
            raise _Fault(405, "methodNotAllowed", f"{path} knows {allowed}", headers={"Allow": allowed})
        if path != "/healthz" and self.server.limit and (wait := self.server.limit.take()):
            raise _Fault(429, "throttled", f"too many requests: again in {wait} s", headers={"Retry-After": str(wait)})
        fields = {name: ",".join(values) for name, values in parse_qs(target.query, keep_blank_values=True).items()}
        document = self._call(methods[self.command], parts, fields, body)
        if document is None:
            return 204, None
        return (201 if self.command == "POST" and path == "/v1/machines" else 200), document

    def _call(
        self,
        function: Callable[[Request], Document | None],
        parts: Sequence[str],
        fields: Mapping[str, str],
        body: bytes,
    ) -> Document | None:
        try:
            return function(Request(self.server.cloud, parts, fields, body, str(self.client_address[0])))
        except NotFound as exc:
            raise _Fault(404, "notFound", str(exc)) from exc
        except Conflict as exc:
            raise _Fault(409, "conflict", str(exc)) from exc
        except Invalid as exc:
            raise _Fault(422, "invalid", *exc.problems) from exc
        except KernelError as exc:
            logger.warning("%s %s: %s", self.command, self.path, exc)
            raise _Fault(503, "kernel", f"the cloud could not carry it out, send it again: {exc}") from exc
        except Exception as exc:  # a thread of a connection must answer
            logger.exception("%s %s failed", self.command, self.path)
            raise _Fault(500, "internal", "an error of the cloud; its log says more") from exc

    def _body(self) -> bytes:
        size = self._unread = self._length()
        if size > MOST_BYTES:
            raise _Fault(413, "tooLarge", f"the body has more than {MOST_BYTES} bytes")
        body = self.rfile.read(size)
        self._unread = 0
        return body

    def _length(self) -> int:
        if self.headers.get("Transfer-Encoding"):
            raise _Fault(400, "badRequest", "send a Content-Length, not a Transfer-Encoding")
        text = self.headers.get("Content-Length", "0")
        if not text.isdecimal():
            raise _Fault(400, "badRequest", "the Content-Length is no number")
        return int(text)

    def _leave_body(self) -> None:
        """Read past a small body of a refused request; with a large one the connection ends, or
        the next request would begin in its middle."""
        try:
            unread = self._length() if self._unread is None else self._unread
        except _Fault:
            unread = MOST_BYTES + 1
        if unread <= MOST_SKIPPED:
            self.rfile.read(unread)
        else:
            self.close_connection = True


def _found(path: str) -> tuple[list[str], str, Mapping[str, Callable[[Request], Document | None]]]:
    for pattern, name, methods in _MATCHERS:
        if match := pattern.fullmatch(path):
            return [unquote(part) for part in match.groups()], name, methods
    raise _Fault(404, "noSuchPath", f"there is nothing at {path}")
