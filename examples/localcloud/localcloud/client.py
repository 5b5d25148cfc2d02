"""Requests to the API, for the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import urllib3

__all__ = ["ApiError", "Client"]

SECONDS = 120.0
"""For one request: a machine may take a while to end."""


class ApiError(Exception):
    """The API refused, or did not answer. `problems` are all reasons; `status` is 0 without an
    answer."""

    def __init__(self, status: int, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.status = status
        self.problems = problems


class Client:
    """Thread-safe."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._pool = urllib3.PoolManager(retries=False, timeout=SECONDS)

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, fields: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The document that the API answers; empty where it has none. Raises ApiError."""
        data = json.dumps(body).encode() if body is not None else None
        target = self.url + path + (f"?{urlencode(fields)}" if fields else "")
        try:
            answer = self._pool.request(method, target, headers=self._headers, body=data, redirect=False)
        except urllib3.exceptions.HTTPError as exc:
            raise ApiError(
                0, f"{self.url} does not answer: {exc}. Check --url, and that `localcloud serve` runs there"
            ) from exc
        try:
            found: dict[str, Any] = json.loads(answer.data or b"{}")
        except ValueError as exc:
            raise ApiError(answer.status, f"{target} answered {answer.status} with no JSON: is it the API?") from exc
        if answer.status >= 400:
            error = found.get("error", {})
            raise ApiError(
                answer.status, *(error.get("problems") or [f"{target} answered {answer.status}: is it the API?"])
            )
        return found
