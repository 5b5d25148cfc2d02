"""One identity's requests to the API server (stages 1 and 6). Answers that are no success become
exceptions of `errors.py`.

What is repeated here, and nothing else: a request on a connection that proved dead while idle,
where that is safe (`transport.py`); a request that the server did not apply and asked to repeat
(429 with Retry-After); and a read answered 503 with Retry-After."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from attrs import frozen

from controllers.runtime.api.clientconfig import ClientConfig
from controllers.runtime.api.credentials import FETCH_TIMEOUT
from controllers.runtime.api.errors import ApiError, ClientClosed, ServerError, from_status
from controllers.runtime.api.linestream import LineStream
from controllers.runtime.api.reachability import NO_ANSWERS, Reachability
from controllers.runtime.api.transport import READS, Transport
from controllers.runtime.api.wire import Answer

log = logging.getLogger(__name__)

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

TRIES: Final = 3

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_PATH: Final = re.compile(r"/[!-~]*")
_HEADER: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALIDATED: Final = frozenset(("POST", "PUT", "PATCH"))


@frozen(eq=False)
class Response:
    """A complete answer. `headers` has lower-case names; `data` is the whole body."""

    status: int
    headers: Mapping[str, str]
    data: bytes

    def json(self) -> dict[str, Any]:
        """Parse the body; raises ServerError when it is no JSON object (a proxy's page, say)."""
        try:
            found = json.loads(self.data)
        except (ValueError, RecursionError) as error:
            raise self._no_object() from error
        if not isinstance(found, dict):
            raise self._no_object()
        return found

    def look(self) -> None:
        """Raise as `json` does when the body is plainly no object, without parsing it: unread."""
        data = self.data.strip()
        # A captive portal or a proxy answers 200 with a page of its own: no write was applied.
        if not (data.startswith(b"{") and data.endswith(b"}")):
            raise self._no_object()

    def _no_object(self) -> ServerError:
        text = self.data[:200].decode("utf-8", "replace")
        return ServerError(f"the answer is no JSON object: {text!r}", status=self.status)


class RestClient:
    """Requests under one identity; thread-safe. Made by `ClientBuilder.rest`."""

    def __init__(
        self,
        transport: Transport,
        config: ClientConfig,
        *,
        field_validation: str | None = None,
    ) -> None:
        """`field_validation` (Ignore, Warn, Strict) is a query parameter of writes."""
        self.name = config.name
        self.user_agent = config.user_agent
        self._config = config
        self._transport = transport
        self._credentials = config.credentials
        self._metrics = config.metrics
        self._sleeper = transport.sleeper
        self._clock = transport.clock
        self._validation = f"fieldValidation={field_validation}" if field_validation else ""
        lines = [("Host", transport.endpoint.authority), ("User-Agent", self.user_agent), *config.headers]
        if transport.proxy_authorization:
            lines.append(("Proxy-Authorization", transport.proxy_authorization))
        for header, value in lines:
            # Names and values may come from a kubeconfig: a line break in one would be another
            # header.
            if not _HEADER.fullmatch(header):
                raise ValueError(f"not the name of a header: {header!r}")
            _refuse_line_breaks(header, value)
        self._fixed = "".join(f"{header}: {value}\r\n" for header, value in lines)

    @property
    def protobuf(self) -> bool:
        """Whether Protobuf may be asked for, where a kind has it."""
        return self._config.protobuf

    @property
    def reachability(self) -> Reachability:
        """Whether the server answers, from all clients' requests: one for a ClientBuilder."""
        return self._transport.reachability

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
        """Send one request and return its answer, read completely.

        `body` is encoded as JSON unless it is bytes. `timeout` (seconds) bounds everything but the
        wait for the rate limit: credentials, connecting, all tries and the waits between them.
        Raises the mapped ApiError for every status that is no success, Unreachable when there was
        no complete answer, and whatever the guard raises.
        """
        payload = b"" if body is None else body if isinstance(body, bytes) else _encode(body)
        target = self._target(method, path, query)
        write = method not in READS
        guard = partial(self._config.guard, method, path) if write else None
        self._take_turn(method)
        deadline = self._clock.monotonic() + (self._config.timeout if timeout is None else timeout)
        tries = TRIES
        while True:
            # Asked for each try: after a 401 another one, and a plugin's may have ended meanwhile.
            authorization = self._authorization(method, path, timeout=deadline - self._clock.monotonic())
            head = self._head(method, target, accept, authorization, content_type if body is not None else "", payload)
            began = self._clock.monotonic()
            try:
                status, headers, data = self._transport.exchange(method, path, head + payload, deadline, guard)
            except ApiError:
                self._metrics.observe(method, "<error>", self._clock.monotonic() - began)
                raise
            self._metrics.observe(method, str(status), self._clock.monotonic() - began)
            # No redirect is followed: credentials would go to wherever it points.
            if 200 <= status < 300:
                return Response(status, headers, data)
            error = self._refused(method, path, status, headers, data, authorization)
            try:
                tries -= 1
                wait = error.retry_after
                # 429 was not applied, by the API's promise. A write answered 503 may have been.
                repeatable = status == 429 or (status == 503 and not write)
                if not tries or wait is None or not repeatable or self._clock.monotonic() + wait >= deadline:
                    raise error
                log.debug("%s; retrying in %g s", error, wait)
                if not self._sleeper.sleep(wait):
                    raise (
                        ClientClosed("the client is closed", method=method, path=path)
                        if self._sleeper.closed
                        else error
                    )
            finally:
                del error  # the traceback holds this frame, and those of all callers

    def get(self, path: str, *, query: Mapping[str, str] | None = None, timeout: float | None = None) -> dict[str, Any]:
        """GET and parse the JSON answer; raises as `request`, and as `Response.json`."""
        return self.request("GET", path, query=query, timeout=timeout).json()

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        read_timeout: float,
        accept: str = "application/json",
    ) -> LineStream:
        """Prepare a streamed GET (a watch) on a connection of its own; see LineStream.

        `read_timeout` is the longest silence in seconds; nothing is repeated here."""
        target = self._target("GET", path, query)
        used = ""

        def start(cancelled: Callable[[], bool]) -> bytes:
            nonlocal used
            self._take_turn("GET", cancelled)
            used = self._authorization("GET", path, cancelled)
            return self._head("GET", target, accept, used, "", b"")

        def refuse(answer: Answer, body: bytes) -> ApiError:
            return self._refused("GET", path, answer.status, answer.headers, body, used)

        def opened(code: str, seconds: float) -> None:
            self._metrics.observe("GET", code, seconds)

        return LineStream(
            self._transport,
            start,
            refuse,
            opened,
            path=path,
            read_timeout=read_timeout,
            open_timeout=min(read_timeout, self._config.timeout),
        )

    def _target(self, method: str, path: str, query: Mapping[str, str] | None) -> str:
        # Names in it come from users' objects: what is not encoded could be another path, or a
        # query.
        if not _PATH.fullmatch(path):
            raise ValueError(f"not an absolute, encoded path: {path!r}")
        text = urlencode(query) if query else ""
        if self._validation and method in _VALIDATED and "fieldValidation=" not in text:
            text = f"{text}&{self._validation}" if text else self._validation
        return f"{self._transport.target_prefix}{path}{'?' if text else ''}{text}"

    def _take_turn(self, method: str, cancelled: Callable[[], bool] | None = None) -> None:
        limiter = self._config.limiter
        if limiter is not None and (delay := limiter.reserve()):
            self._metrics.limited(method, delay)
            self._sleeper.sleep(delay, cancelled, for_retry=False)  # when closed meanwhile, sending says so

    def _authorization(
        self, method: str, path: str, cancelled: Callable[[], bool] | None = None, timeout: float = FETCH_TIMEOUT
    ) -> str:
        try:
            return self._credentials.authorization(cancelled, timeout)
        except ApiError as error:
            # They are fetched for many requests at once; the log has to say which one failed by it.
            error.method, error.path = method, path
            raise

    def _head(
        self, method: str, target: str, accept: str, authorization: str, content_type: str, payload: bytes
    ) -> bytes:
        # One test for all, as this runs for each request; which of them is wrong is said below.
        if not (method.isalpha() and _is_text(accept) and _is_text(authorization) and _is_text(content_type)):
            if not method.isalpha():
                raise ValueError(f"not a method: {method!r}")
            for header, value in ("Accept", accept), ("Authorization", authorization), ("Content-Type", content_type):
                _refuse_line_breaks(header, value)
        text = f"{method} {target} HTTP/1.1\r\n{self._fixed}Accept: {accept}\r\n"
        if authorization:
            text += f"Authorization: {authorization}\r\n"
        if content_type:
            text += f"Content-Type: {content_type}\r\nContent-Length: {len(payload)}\r\n"
        # Some proxies refuse a write without a length (411), even one without a body.
        elif method not in READS:
            text += "Content-Length: 0\r\n"
        return (text + "\r\n").encode("latin-1")

    def _refused(
        self, method: str, path: str, status: int, headers: Mapping[str, str], data: bytes, authorization: str
    ) -> ApiError:
        if status == 401:
            # The value that was sent, not the present one: another thread may have renewed it
            # already.
            self._credentials.rejected(authorization)
            self._transport.recheck_tls()
        error = from_status(status, headers, data, method=method, path=path, now=self._clock.time())
        # A token file mounted wrongly is the usual cause, and the server's word does not name it.
        if status == 401 and self._credentials.origin:
            error.message = f"{error.message or 'not accepted'}; sent was {self._credentials.origin}"
        # A load balancer's word: waiting ends with the first answer of the server itself.
        if status in NO_ANSWERS:
            error.recovery = self._transport.reachability.recovery
        return error


def _is_text(value: str) -> bool:
    return value.isascii() and value.isprintable()


def _refuse_line_breaks(header: str, value: str) -> None:
    """Raise ValueError for what would be more than this one header; the value may be secret."""
    if not _is_text(value):
        raise ValueError(f"the value of the header {header} holds line breaks or characters that are not ASCII text")


def _encode(body: object) -> bytes:
    return _ENCODER.encode(body).encode()
