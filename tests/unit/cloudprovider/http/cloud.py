"""A cloud for tests of the library: real HTTP, with the answers that a test puts in."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from attrs import field, frozen
from typing_extensions import override

Given = tuple[int, Mapping[str, str], bytes]


@frozen
class Asked:
    """A request as it came in."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = b""


class Cloud:
    """Answers with `answers`, in their order, and after them with what `answer` makes of a
    request."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: deque[Given] = deque()
        self.answer: Callable[[Asked], Given] = lambda asked: reply(500, {})
        self.url = ""


def reply(status: int, body: object, **headers: str) -> Given:
    """An answer in JSON; of bytes as they are."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, data


@contextmanager
def serving() -> Generator[Cloud]:
    """The cloud while it runs."""
    cloud = Cloud()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            asked = Asked(self.command, self.path, dict(self.headers), body)
            cloud.asked.append(asked)
            status, headers, data = cloud.answers.popleft() if cloud.answers else cloud.answer(asked)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data if status != 204 else b"")

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - the names that http.server looks for

        @override
        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    cloud.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield cloud
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def fields(asked: Asked) -> Any:
    """The body of a request, from JSON."""
    return json.loads(asked.body)
