"""The way to the cloud: libcloud's connection, with the time limits of the host's calls, and driver
objects for many threads.

Two facts about libcloud decide what stands here. Its connection has one fixed timeout, made for
scripts. And a driver keeps its last response in an attribute, so two threads with one driver object
read each other's answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

import requests
from attrs import define, field
from libcloud.common.base import Connection
from libcloud.common.types import InvalidCredsError
from libcloud.http import LibcloudConnection
from typing_extensions import override

from cloudprovider.helpers import time_limits
from libcloud_provider.ec2answers import read_any_namespace

MARGIN = 1.0
"""Seconds that are kept of each call for its end."""
LEAST = 0.5
"""A request that would get less than this many seconds is not sent."""

_FAILURES = (401, 403, 408, 429)


@define
class Watch:
    """What the cloud answered to the requests of one question."""

    failures: list[tuple[int, str]] = field(factory=list)
    """The requests that it failed or refused, as (status, request): some drivers swallow these and
    return what they have."""
    url: str = ""
    """Path and query of the last request."""
    status: int = 0
    """The HTTP status of its answer. Some drivers' exceptions do not have it."""
    text: str = ""
    """The answer's body, where it was an error."""


_watch: ContextVar[Watch | None] = ContextVar("libcloud_watch", default=None)


class BoundedConnection(LibcloudConnection):
    """libcloud's connection: each request takes at most what is left of the host's call."""

    @override
    def request(
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Any = None,
        raw: bool = False,
        stream: bool = False,
        hooks: Any = None,
    ) -> None:
        session: Any = self.session
        session.timeout = time_limits(margin=MARGIN, least=LEAST)
        send: Any = super().request
        send(method, url, body, headers, raw, stream, hooks)
        self.note(method, url)

    @override
    def prepared_request(
        self, method: str, url: str, body: Any = None, headers: Any = None, raw: bool = False, stream: bool = False
    ) -> None:
        """As libcloud's own, which sends without any time limit."""
        wanted = requests.Request(method, f"{self.host}{url}", data=body, headers=headers)
        session: Any = self.session
        self.response = session.send(
            session.prepare_request(wanted),
            stream=stream,
            verify=self.verification,
            timeout=time_limits(margin=MARGIN, least=LEAST),
        )
        self.note(method, url)

    def note(self, method: str, url: str) -> None:
        """Tell the `Watch` of this thread what was answered."""
        response: Any = self.response
        watch = _watch.get()
        if watch is not None:
            watch.url, watch.status = url, response.status_code
            status = watch.status
            watch.text = response.text if status >= 400 else ""
            if status in _FAILURES or status >= 500:
                watch.failures.append((status, f"{method} {urlsplit(url).path}"))


@contextmanager
def watched() -> Iterator[Watch]:
    """Watch the requests of the body, in this thread."""
    watch = Watch()
    token = _watch.set(watch)
    try:
        yield watch
    finally:
        _watch.reset(token)


def bound(driver_class: Any) -> None:
    """Have every connection of this driver bounded, also those of the sub-drivers that it chooses
    by API version; and have answers of the EC2 API read whoever gave them. libcloud's place for
    both are attributes of the connection's class."""
    classes = [driver_class]
    for one in classes:
        classes += one.__subclasses__()
    for kind in (Connection, *(one.connectionCls for one in classes)):
        if issubclass(getattr(kind, "conn_class", LibcloudConnection), LibcloudConnection):
            kind.conn_class = BoundedConnection
        read_any_namespace(kind)


class Drivers:
    """Driver objects of one kind, each used by one thread at a time. Thread-safe."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._idle: list[Any] = []

    @contextmanager
    def borrow(self) -> Iterator[Any]:
        """A driver for the body. One that failed is not used again; after refused credentials all
        are made again, from the files as they are then."""
        with self._lock:
            driver = self._idle.pop() if self._idle else None
        try:
            driver = driver or self._make()
            yield driver
        except BaseException as exc:
            dropped = [driver]
            if isinstance(exc, InvalidCredsError):
                with self._lock:
                    dropped += self._idle
                    self._idle.clear()
            for one in dropped:
                _close(one)
            raise
        with self._lock:
            self._idle.append(driver)


def _close(driver: Any) -> None:
    """Close the driver's connections to the cloud, as far as it has any."""
    session = getattr(getattr(getattr(driver, "connection", None), "connection", None), "session", None)
    if session is not None:
        session.close()
