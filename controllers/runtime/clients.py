"""How everything here speaks to the API server (stages 1 and 6): one client per identity over shared connections.

Signatures only at this commit; the transport follows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kubernetes.client import ApiClient, Configuration

    from controllers.runtime.metrics import Metrics

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

Guard = Callable[[str, str], None]
"""Called with (method, path) before each write; raises to refuse it."""


class Response:
    """A complete answer. `headers` has lower-case names; `data` is the whole body."""

    __slots__ = ("data", "headers", "status")

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.status = status
        self.headers = headers
        self.data = data

    def json(self) -> Any:
        """Parse the body."""
        return json.loads(self.data)


class LineStream:
    """A streamed answer, line by line. Nothing is sent before `open()` or the first iteration.

    So `close()` from another thread works in every state: before, while connecting, while blocked in a read. After
    `close()` the iteration ends without an error. It ends normally on the server's clean end; it raises the mapped
    ApiError when the server refuses (410, 429, ...) and Unreachable on truncation, reset or `read_timeout` without a byte.
    """

    def open(self) -> None:
        """Connect, send, and wait for the status line; raises ApiError. No-op when open."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[bytes]:
        """Yield each line, without its newline."""
        raise NotImplementedError

    def close(self) -> None:
        """End the stream; from any thread, any number of times, never blocks."""
        raise NotImplementedError


class RestClient:
    """Requests under one identity; thread-safe. Made by `ClientBuilder.rest`."""

    name: str
    user_agent: str

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float | None = None,
    ) -> Response:
        """Send one request and return the answer; raises the mapped ApiError (>= 300, or Unreachable)."""
        raise NotImplementedError

    def get(self, path: str, *, query: Mapping[str, str] | None = None, timeout: float | None = None) -> Any:
        """GET and parse the JSON answer."""
        raise NotImplementedError

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        read_timeout: float,
        accept: str = "application/json",
    ) -> LineStream:
        """Prepare a streamed GET (a watch); see LineStream. Returns at once."""
        raise NotImplementedError


class ClientBuilder:
    """Makes the clients of every identity from one configuration; implements cloudprovider.host.ClientBuilder."""

    @classmethod
    def from_options(
        cls,
        kubeconfig: str | None = None,
        master: str | None = None,
        qps: float = 0,
        burst: int = 0,
        timeout: float = 30.0,
        *,
        metrics: Metrics | None = None,
    ) -> ClientBuilder:
        """Read the kubeconfig, or the pod's service account; raises ConfigError naming file, context or variable and fix."""
        raise NotImplementedError

    def rest(self, name: str) -> RestClient:
        """The client of that identity; the same one at each call."""
        raise NotImplementedError

    def client(self, name: str) -> ApiClient:
        """The official client for a vendor: same auth, guard and limits, retries off."""
        raise NotImplementedError

    def config(self, name: str) -> Configuration:
        """A copy of the official client's configuration that keeps refreshing its credentials."""
        raise NotImplementedError

    def cluster_identity(self) -> str | None:
        """UID of the kube-system namespace, or None when we may not read it."""
        raise NotImplementedError

    def close(self) -> None:
        """Close every connection and stream and end every wait at once; may be called twice."""
        raise NotImplementedError
