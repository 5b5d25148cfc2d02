"""The way to the cloud's API: requests with time limits, and its errors as the contract's.

All that can go wrong becomes a `CloudProviderError` here, and nowhere else. Nothing is tried twice:
the host does that, and knows when. That something does not exist is believed only where the cloud's
own error says so; any other 404, of a proxy or of a wrong address, is an ordinary failure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import quote

import urllib3
from pydantic import BaseModel, ValidationError

from cloudprovider import CloudProviderError, Throttled
from cloudprovider.helpers import time_limit
from localcloud_provider.resources import Failure, Fault

MARGIN = 0.25
"""Seconds that are kept of each call for its end: the cloud is on the same machine."""
LEAST = 0.1
"""A request that would get less than this many seconds is not sent."""

_NOT_FOUND = "notFound"
_CONNECTIONS = 32

ModelT = TypeVar("ModelT", bound=BaseModel)


class CloudError(CloudProviderError):
    """The cloud refused a request. `problems` are its words."""

    def __init__(self, message: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class NotFound(CloudError):
    """The cloud answered that there is no such thing."""


class Conflict(CloudError):
    """The thing is another owner's, or what was asked for is taken."""


class Refused(CloudError):
    """What was asked for is not possible. `problems` are all reasons."""


class Client:
    """Thread-safe. Each request takes at most the time that is left of the provider call."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.pool = urllib3.PoolManager(maxsize=_CONNECTIONS, retries=False)

    def get(self, kind: type[ModelT], path: str, fields: Mapping[str, str] | None = None, *, calls: int = 1) -> ModelT:
        """What is at a path. `calls` is how many requests this call still makes, this one included.
        Raises `CloudProviderError`, of which `NotFound` says that it does not exist."""
        return _parsed(kind, f"GET {path}", self._ask("GET", path, fields, calls=calls))

    def put(self, kind: type[ModelT], path: str, body: Mapping[str, object]) -> ModelT:
        """Create or replace what is at a path, and return it. Raises `CloudProviderError`, of which
        `Conflict` and `Refused` say that another try does not help."""
        return _parsed(kind, f"PUT {path}", self._ask("PUT", path, None, body))

    def delete(self, path: str, fields: Mapping[str, str] | None = None) -> None:
        """Delete what is at a path; absent already is success. Raises `CloudProviderError`."""
        try:
            self._ask("DELETE", path, fields)
        except NotFound:
            return

    def _ask(
        self,
        method: str,
        path: str,
        fields: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
        *,
        calls: int = 1,
    ) -> bytes:
        limit = time_limit(calls=calls, margin=MARGIN, least=LEAST)
        query = "&".join(f"{quote(key)}={quote(value, safe=',')}" for key, value in (fields or {}).items())
        target = f"{self.url}{path}" + (f"?{query}" if query else "")
        try:
            answer = self.pool.request(
                method,
                target,
                body=None if body is None else json.dumps(body).encode(),
                headers={**self._headers, **({"Content-Type": "application/json"} if body is not None else {})},
                timeout=urllib3.Timeout(limit),
                redirect=False,
            )
        except urllib3.exceptions.HTTPError as exc:
            raise CloudProviderError(
                f"the cloud did not answer {method} {path} within {limit:.3g} s at {self.url}: {exc}. "
                "Check that `localcloud serve` runs there"
            ) from exc
        if answer.status in (200, 201, 204):
            return answer.data
        raise _error(f"{method} {path}", answer)


def path_of(*parts: str) -> str:
    """The path of a resource; names are escaped."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _parsed(kind: type[ModelT], request: str, data: bytes) -> ModelT:
    try:
        return kind.model_validate_json(data)
    except ValidationError as exc:
        places = "; ".join(
            f"{'.'.join(map(str, one['loc'])) or 'the body'}: {one['msg']}"
            for one in exc.errors(include_url=False, include_input=False)
        )
        raise CloudProviderError(f"the cloud's answer to {request} cannot be read: {places}") from exc


def _error(request: str, answer: urllib3.BaseHTTPResponse) -> CloudProviderError:
    said = _said(answer.data)
    problems = said.problems or (said.message or answer.reason or "no reason given",)
    text = f"{request}: {answer.status}: {'; '.join(problems)}"
    if answer.status == 429:
        return Throttled(f"the cloud throttles {request}", _retry_after(answer), whole_account=True)
    if answer.status == 401:
        return CloudError(f"{text}. Check `token` in the cloud config")
    if answer.status == 404 and said.code == _NOT_FOUND:
        return NotFound(text, problems)
    kinds = {409: Conflict, 422: Refused}
    return kinds.get(answer.status, CloudError)(text, problems)


def _said(data: bytes) -> Fault:
    """The cloud's own error; an empty one where somebody else answered."""
    try:
        return Failure.model_validate_json(data).error
    except ValidationError:
        return Fault()


def _retry_after(answer: urllib3.BaseHTTPResponse) -> float | None:
    value = answer.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else None
