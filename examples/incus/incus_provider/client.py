"""The way to the server's API: requests with time limits, and its errors as the contract's.

All that can go wrong becomes a `CloudProviderError` here, and nowhere else. Nothing is tried twice:
the host does that, and knows when. The API has no pages: a listing is complete, or an error.
"""

from __future__ import annotations

import json
import os
import ssl
import threading
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlencode, urlsplit

import urllib3
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from urllib3.connectionpool import HTTPConnectionPool

from cloudprovider import CloudProviderError, Throttled
from cloudprovider.helpers import time_limit
from incus_provider.config import Config
from incus_provider.connection import UnixPool, https_pool

MARGIN = 0.25
"""Seconds that are kept of each call for its end: the server is near."""
LEAST = 0.1
"""A request that would get less than this many seconds is not sent."""

_CONNECTIONS = 32

_TAKEN = "UNIQUE constraint failed"
"""In the error, with status 500, where two requests make one thing at the same time."""

_BUSY = ("matching non-reusable operation", "Instance is busy")
"""In the error, with status 500, where another request changes the instance: of LXD, of both."""

T = TypeVar("T")


class IncusError(CloudProviderError):
    """The server refused a request."""


class NotFound(IncusError):
    """The server answered that there is no such thing. It does not say which part of the path."""


class ProjectNotFound(IncusError):
    """The server has no project of this name (any more)."""


class Conflict(IncusError):
    """What was to be created is there already."""


class Outdated(IncusError):
    """The thing was changed by somebody else since it was read, or is being changed."""


class _Answer(BaseModel):
    """The frame of every answer."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    type: str
    error_code: int = 0
    error: str = ""
    metadata: Any = None


class Client:
    """Thread-safe. Each request takes at most the time that is left of the provider call."""

    def __init__(self, config: Config) -> None:
        self.url = config.url
        self.project = config.project
        self._config = config
        self._lock = threading.Lock()
        self._made: tuple[tuple[int, ...], HTTPConnectionPool] | None = None

    def get(self, kind: type[T], path: str, *, calls: int = 1, **query: str) -> T:
        """What is at a path. `calls` is how many requests this call still makes, this one included.
        Raises `CloudProviderError`."""
        return self.read(kind, path, calls=calls, **query)[0]

    def read(self, kind: type[T], path: str, *, calls: int = 1, **query: str) -> tuple[T, str]:
        """The same, and the mark of its state, for `change`."""
        answer, state = self._ask("GET", path, query, calls=calls)
        try:
            return TypeAdapter(kind).validate_python(answer.metadata), state
        except ValidationError as exc:
            raise CloudProviderError(f"the answer to GET {path} cannot be read: {_places(exc)}") from exc

    def check_project(self, *, calls: int = 1) -> None:
        """Raises `ProjectNotFound` where the project does not exist. The server lists no instances
        of such a one, be it renamed or misspelt, and calls that success."""
        try:
            self._ask("GET", path_of("projects", self.project), {}, calls=calls)
        except NotFound as exc:
            raise ProjectNotFound(f"project: the server has no {self.project!r}: {exc}") from exc

    def change(
        self, method: str, path: str, body: Mapping[str, object] | None = None, *, state: str = "", calls: int = 1
    ) -> None:
        """Change what is at a path, with `state` only if nobody else has since it was read.

        Raises `CloudProviderError`: `NotFound`, `Conflict` for a POST of what there is already,
        `Outdated`.
        """
        self._ask(method, path, {}, body, state=state, calls=calls)

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, object] | None = None,
        *,
        state: str = "",
        calls: int = 1,
    ) -> tuple[_Answer, str]:
        limit = time_limit(calls=calls, margin=MARGIN, least=LEAST)
        headers = {"If-Match": state} if state else {}
        try:
            answer = self._pool().request(
                method,
                f"{path}?{urlencode({'project': self.project, **query})}",
                body=None if body is None else json.dumps(body).encode(),
                headers={**headers, **({"Content-Type": "application/json"} if body is not None else {})},
                timeout=urllib3.Timeout(limit),
                redirect=False,
                retries=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as exc:
            raise CloudProviderError(
                f"{method} {path}: no answer within {limit:.3g} s from {self.url}: {exc}. Check `url` and the "
                "certificates in the cloud config, and that the server runs"
            ) from exc
        return _checked(f"{method} {path}", answer), answer.headers.get("ETag", "")

    def _pool(self) -> HTTPConnectionPool:
        """The connections; new ones where the certificates' files were changed. Raises OSError."""
        config = self._config
        files = (config.client_certificate, config.client_key, config.server_certificate)
        ages = tuple(os.stat(path).st_mtime_ns for path in files if path)
        with self._lock:
            if self._made is None or self._made[0] != ages:
                self._made = ages, self._connect()
            return self._made[1]

    def _connect(self) -> HTTPConnectionPool:
        config, options = self._config, {"maxsize": _CONNECTIONS, "retries": False}
        if config.url.startswith("unix:"):
            return UnixPool(unquote(urlsplit(config.url).path), **options)
        try:
            return https_pool(
                config.url, config.client_certificate, config.client_key, config.server_certificate, **options
            )
        except ssl.SSLError as exc:  # its own text names no file
            raise OSError(f"the certificates cannot be used: {exc.reason}") from exc


def path_of(*parts: str) -> str:
    """The path of a resource; names are escaped."""
    return "/1.0/" + "/".join(quote(part, safe="") for part in parts)


def _checked(request: str, answer: urllib3.BaseHTTPResponse) -> _Answer:
    """The answer, where the server did what was asked."""
    try:
        said = _Answer.model_validate_json(answer.data)
    except ValidationError:
        said = _Answer(type="")  # a proxy's, or another program's
    if said.type == "sync" and answer.status in (200, 201):
        return said
    code = said.error_code or answer.status
    text = f"{request}: {code}: {said.error or answer.reason or 'no reason given'}"
    if answer.status == 429:
        return _raise(Throttled(f"the server throttles {request}", whole_account=True))
    if code == 403:
        return _raise(
            IncusError(f"{text}. Check that the server trusts `client_certificate`, for this project: incus config "
                       "trust list")
        )  # fmt: skip
    if _TAKEN in said.error:  # the server looked before another request made it
        return _raise(Conflict(text))
    if any(words in said.error for words in _BUSY):
        return _raise(Outdated(text))
    kinds: dict[int, type[IncusError]] = {404: NotFound, 409: Conflict, 412: Outdated} if said.type == "error" else {}
    return _raise(kinds.get(code, IncusError)(text))


def _raise(error: CloudProviderError) -> _Answer:
    raise error


def _places(exc: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, one['loc'])) or 'the answer'}: {one['msg']}"
        for one in exc.errors(include_url=False, include_input=False)
    )
