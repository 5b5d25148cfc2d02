"""A lab that breaks the way to the cloud: for clouds that cannot be broken, a real account among
them.

`HTTPLab` stands between `http.client` and the network, for this process only. The official client,
urllib3, requests, boto3 and most vendors' clients are built on `http.client`; httpx and aiohttp are
not, and pass untouched.
"""

from __future__ import annotations

import http.client
import io
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from cloudprovider.testing.conformance.lab import BadAnswer, Lab

_REASONS = http.client.responses


class _Answered:
    """A socket from which the answer is read."""

    def __init__(self, answer: BadAnswer) -> None:
        kind = "text/html" if answer.body.startswith(b"<") else "application/json"
        headers = {"Content-Type": kind, "Content-Length": str(len(answer.body)), **answer.headers}
        lines = [f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, '')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._bytes = "\r\n".join([*lines, "", ""]).encode() + answer.body

    def makefile(self, mode: str) -> io.BytesIO:
        """As a socket's."""
        return io.BytesIO(self._bytes)


Connection = http.client.HTTPConnection


class HTTPLab(Lab):
    """A lab whose `outage`, `hang` and `bad_answers` work on every cloud that is reached by
    `http.client`."""

    cloud_hosts: tuple[str, ...] = ()
    """Only requests to hosts whose names or addresses end so are broken: `("api.acme.example",
    "10.0.0.1")`, without port. Empty: all of this process that are made by `http.client`. The
    manager's own requests are not."""

    def outage(self, after: int = 0) -> AbstractContextManager[None]:
        """`after` more requests are sent; each that follows fails before it is sent, as a refused
        connection does."""
        numbers = itertools.count()

        def refuse(connection: Connection, send: Callable[[], Any]) -> Any:
            if next(numbers) < after:
                return send()
            connection.close()
            raise ConnectionRefusedError(f"the conformance suite broke the connection to {connection.host}")

        return self._patched("endheaders", refuse)

    @contextmanager
    def hang(self) -> Iterator[None]:
        """Requests are sent, and their answers never come: a read ends by the client's own time
        limit."""
        over = threading.Event()

        def wait(connection: Connection, read: Callable[[], Any]) -> Any:
            limit = connection.sock.gettimeout() if connection.sock is not None else connection.timeout
            ended = over.wait(limit)
            connection.close()
            raise ConnectionResetError("the hang is over") if ended else TimeoutError("timed out")

        with self._patched("getresponse", wait):
            try:
                yield
            finally:
                over.set()

    @contextmanager
    def bad_answers(self, answer: BadAnswer) -> Iterator[None]:
        """Requests reach the cloud's address and no further: each is answered so."""

        def drop(connection: Connection, send: Callable[[], Any]) -> None:
            if connection.sock is None:  # as the original: the client may look at it
                connection.connect()

        def read(connection: Connection, original: Callable[[], Any]) -> http.client.HTTPResponse:
            made = http.client.HTTPResponse(_Answered(answer), method=connection._method)  # type: ignore[attr-defined, arg-type]
            made.begin()
            connection.close()  # what it was sent is not whole
            return made

        with self._patched("send", drop), self._patched("getresponse", read):
            yield

    @contextmanager
    def _patched(self, method: str, instead: Callable[[Connection, Callable[[], Any]], Any]) -> Iterator[None]:
        original = getattr(Connection, method)

        def call(connection: Connection, *args: Any, **options: Any) -> Any:
            if self.cloud_hosts and not connection.host.endswith(self.cloud_hosts):
                return original(connection, *args, **options)
            return instead(connection, lambda: original(connection, *args, **options))

        setattr(Connection, method, call)
        try:
            yield
        finally:
            setattr(Connection, method, original)
