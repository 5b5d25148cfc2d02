"""The clients of a plan run: each request is shown to the interceptor before it is sent.

The same clients as those of the builder that they are made from, with its identities and
connections. What the interceptor answers is never sent; the guard of `run.py` refuses the rest that
would write. A watch shows what would be written, and nothing else: a plan is about one moment."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import urllib3
from attrs import evolve
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTResponse

from controllers.plan.cluster import DryRunInterceptor
from controllers.plan.requests import Changes, Request, place_of
from controllers.runtime.api import ClientBuilder, LineStream, Response, RestClient, from_status


class DryRunError(Exception):
    """A write was refused: this process changes nothing."""


class PlannedClients(ClientBuilder):
    """Makes the clients of a plan run. Thread-safe."""

    def __init__(self, clients: ClientBuilder, cluster: DryRunInterceptor) -> None:
        self.__dict__ = clients.__dict__  # one builder: connections, limits and its end are shared
        self._cluster = cluster

    def rest(self, name: str, *, guarded: bool = True, apart: bool = False) -> RestClient:
        """The client of that identity, over the interceptor."""
        return _Rest(super().rest(name, guarded=guarded, apart=apart), self._cluster)

    def client(self, name: str) -> ApiClient:
        """The official client of that identity, over the interceptor. The same one at each call."""
        made = super().client(name)
        rest: Any = made.rest_client
        # The same client comes at each call: wrapped twice, a write would be two rows.
        if not isinstance(rest.request, _Asked):
            base_path = f"{self.transport.endpoint.base_path}/".removeprefix("/")
            # Below all classes of the official API, so that no way of theirs leads past it.
            rest.request = _Asked(name, rest.request, base_path, self._cluster)
        return made

    def config(self, name: str) -> Configuration:
        """Raise DryRunError: a client of the caller's own could write."""
        raise DryRunError(
            f"{name}: a client made from ClientBuilder.config() could write, and a dry run could not hold it back. "
            "Fix in the provider: use ClientBuilder.client()"
        )

    def _speaks_as(self, _name: str) -> Any:
        return self._own  # a request for an account's token is a write


class _Rest(RestClient):
    def __init__(self, client: RestClient, cluster: DryRunInterceptor) -> None:
        self.__dict__.update(client.__dict__)
        self._cluster = cluster

    @property
    def protobuf(self) -> bool:
        """Never: the interceptor changes answers, and knows JSON."""
        return False

    def request(
        self, method: str, path: str, *, body: Any = None, content_type: str = "application/json", **options: Any
    ) -> Response:
        """The interceptor's answer, or the server's with what was written since."""
        request = Request(client=self.name, method=method, path=path, content_type=content_type, body=body)
        answer = self._cluster.answer(request)
        if answer is None:
            sent = super().request(method, path, body=body, content_type=content_type, **options)
            return evolve(sent, data=self._cluster.shown(path, sent.data))
        status, content = answer
        if 200 <= status < 300:
            return Response(status, {}, json.dumps(content).encode())
        # As the server's own refusal: the controller goes its usual way from here.
        raise from_status(status, {}, content, method=method, path=path)

    def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, read_timeout: float, **_options: Any
    ) -> LineStream:
        """A watch from a version, which shows what would be written from now on."""
        # Nothing is sent: what others change meanwhile is no part of a plan about one moment.
        changes = Changes((query or {}).get("resourceVersion", ""), read_timeout / 2)
        place = place_of(path)
        if place is not None:
            self._cluster.tell(place, changes)
        return changes


class _Asked:
    """In place of the official client's `RESTClientObject.request`."""

    def __init__(self, name: str, send: Any, base_path: str, cluster: DryRunInterceptor) -> None:
        self._name = name
        self._send = send
        self._base_path = base_path
        self._cluster = cluster

    def __call__(self, method: str, url: str, headers: Any = None, body: Any = None, **rest: Any) -> RESTResponse:
        # As the server sees it: without a proxy's base path, and without the query.
        path = "/" + url.partition("://")[2].partition("/")[2].removeprefix(self._base_path).partition("?")[0]
        kind = next((str(value) for name, value in (headers or {}).items() if name.lower() == "content-type"), "")
        answer = self._cluster.answer(
            Request(client=self._name, method=method, path=path, content_type=kind, body=body)
        )
        if answer is None:
            sent: RESTResponse = self._send(method, url, headers=headers, body=body, **rest)
            return sent
        status, content = answer
        data = io.BytesIO(json.dumps(content).encode())
        return RESTResponse(urllib3.HTTPResponse(data, headers={"content-type": "application/json"}, status=status))
