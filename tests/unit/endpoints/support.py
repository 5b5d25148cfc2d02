"""What stands in for the API server in the tests of serving."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from controllers.httpserver.messages import Certificate, Request
from controllers.runtime.api import ApiError

__all__ = ["Reviews", "request", "unreachable"]


class Reviews:
    """A `Reviewer`, whose answers a function makes; the questions are kept."""

    def __init__(self, answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        self.answer = answer
        self.asked: list[Mapping[str, Any]] = []

    def ask(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(spec)
        return self.answer(spec)


def unreachable(_spec: Mapping[str, Any]) -> Mapping[str, Any]:
    raise ApiError("no answer")


def request(
    target: str = "/metrics",
    token: str | None = None,
    certificate: Certificate | None = None,
    method: str = "GET",
    peer: str = "10.0.0.1",
) -> Request:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return Request(method=method, target=target, headers=headers, peer=peer, certificate=certificate)
