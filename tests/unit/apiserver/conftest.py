"""A server that never listens: its store, its operations and its API, without a socket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.apiserver.rest.api import Request, Response
from cloudprovider.testing.apiserver.rest.watchstream import WatchStream

JSON = dict[str, Any]


@attrs.frozen
class Reply:
    code: int
    body: Any
    headers: Mapping[str, str]

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))


class Client:
    """Requests straight into the API object."""

    def __init__(self, server: EmbeddedAPIServer) -> None:
        self.server = server

    def ask(
        self,
        method: str,
        target: str,
        body: object = None,
        content_type: str = "application/json",
        *,
        accept: str = "application/json",
        token: str | None = None,
    ) -> Reply:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"accept": accept, "content-type": content_type}
        if token != "":
            headers["authorization"] = f"Bearer {token or self.server.token}"
        answer = self.server.api.handle(Request(method, target, headers, data))
        assert isinstance(answer, Response)
        parsed = json.loads(answer.body) if answer.content_type == "application/json" else answer.body
        return Reply(answer.code, parsed, answer.headers)

    def get(self, target: str, **more: Any) -> Reply:
        return self.ask("GET", target, **more)

    def post(self, target: str, body: object, **more: Any) -> Reply:
        return self.ask("POST", target, body, **more)

    def merge(self, target: str, body: object) -> Reply:
        return self.ask("PATCH", target, body, "application/merge-patch+json")

    def strategic(self, target: str, body: object) -> Reply:
        return self.ask("PATCH", target, body, "application/strategic-merge-patch+json")

    def watch(self, target: str) -> WatchStream:
        headers = {"authorization": f"Bearer {self.server.token}"}
        stream = self.server.api.handle(Request("GET", target, headers))
        assert isinstance(stream, WatchStream)
        return stream


@pytest.fixture
def server() -> EmbeddedAPIServer:
    return EmbeddedAPIServer()


@pytest.fixture
def client(server: EmbeddedAPIServer) -> Client:
    return Client(server)


def node(name: str, **parts: Any) -> JSON:
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, **parts.pop("metadata", {})}, **parts}
