"""One HTTP request of the API server in, status and body out: which webhook, is it a review, is there still time.

Stage: beside the six. Requests come from the HTTPS server of `controllers/app/webhooks/`; handlers are called in
threads of their own (`bounded.py`). Whatever comes gets an answer, and no answer takes longer than the API server
waits: its `timeout`, less a margin. An answer with another status than 200 is a failed call for the API server, which
then goes by the `failurePolicy` of the webhook's configuration.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import parse_qs, urlsplit

import attrs

from controllers.admission.bounded import Bounded, NoThread, TooLate
from controllers.admission.handler import Handler
from controllers.admission.metrics import WebhookMetrics
from controllers.admission.review import AdmissionRequest, Answer, BadReview, encode, parse, refusal
from controllers.admission.webhook import Webhook
from controllers.options import DURATION
from controllers.runtime.cleaning import one_line, text_of
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics

__all__ = ["LONGEST", "MAX_BODY", "THREADS", "Desk", "HTTPRequest", "Reply"]

log = logging.getLogger(__name__)

MAX_BODY: Final = 7 * 2**20
"""Bytes of a review: the API server takes objects of 3 MiB, and a review may hold the old one and the new one."""
THREADS: Final = 32
"""Handlers at work at once, of all webhooks, those that are past their deadline included."""
LONGEST: Final = 30.0
"""Seconds that an API server waits at most (`timeoutSeconds`)."""
_USUAL: Final = 10.0  # its default
_MARGIN: Final = 0.1  # of the timeout, for the way there and back
_MOST_MARGIN: Final = 1.0  # seconds


class HTTPRequest(Protocol):
    """What is needed of a request: names of headers are in small letters."""

    @property
    def method(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def body(self) -> bytes: ...


@attrs.frozen
class Reply:
    """An HTTP answer; the body is JSON."""

    status: int
    body: bytes


class Desk:
    """Thread-safe. Raises ValueError where two webhooks share a name or a path."""

    def __init__(
        self,
        served: Sequence[tuple[Webhook, Handler]],
        *,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
        threads: int = THREADS,
    ) -> None:
        self._by_path = {webhook.path: (webhook, handler) for webhook, handler in served}
        if len(self._by_path) < len(served) or len({webhook.name for webhook, _ in served}) < len(served):
            raise ValueError("two webhooks have the same name or path")
        self._metrics = WebhookMetrics(metrics or Metrics())
        self._clock = clock
        self._bounded = Bounded(threads, clock)

    @property
    def webhooks(self) -> list[Webhook]:
        """What is served."""
        return [webhook for webhook, _ in self._by_path.values()]

    def overdue(self) -> list[tuple[str, float]]:
        """Handlers that have not returned in time and keep a thread: (webhook, seconds since its deadline)."""
        return self._bounded.overdue()

    def answer(self, request: HTTPRequest) -> Reply | Callable[[], Reply]:
        """The reply, or, where a handler has to be asked, a function that makes it and blocks meanwhile."""
        began = self._clock.monotonic()
        try:
            url = urlsplit(request.target)
            query = parse_qs(url.query)
        except ValueError:
            return _refused(HTTPStatus.BAD_REQUEST, "not a path")
        found = self._by_path.get(url.path)
        if found is None:
            return _refused(HTTPStatus.NOT_FOUND, "no webhook is served at this path")
        webhook, handler = found
        until = began + _patience(query.get("timeout", [""])[-1])

        def reply() -> Reply:
            made = self._reply(webhook, handler, request, until)
            self._metrics.answered(webhook.name, made.status, self._clock.monotonic() - began)
            return made

        return reply

    def _reply(self, webhook: Webhook, handler: Handler, request: HTTPRequest, until: float) -> Reply:
        if request.method != "POST":
            return _refused(HTTPStatus.METHOD_NOT_ALLOWED, "only POST")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return _refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the Content-Type must be application/json")
        try:
            asked = parse(request.body)
        except BadReview as error:
            return _refused(HTTPStatus.BAD_REQUEST, str(error), error.uid)
        if not any(match.covers(asked) for match in webhook.matches):
            text = f"webhook {webhook.name} is not for {asked}: correct the rules of its configuration"
            log.warning("%s", text)
            return _refused(HTTPStatus.BAD_REQUEST, text, asked.uid)
        try:
            answer = self._ask(webhook, handler, asked, until)
            return Reply(HTTPStatus.OK, encode(asked.uid, answer))
        except (TooLate, NoThread) as error:
            log.warning("webhook %s: no answer about %s: %s", webhook.name, asked, error)
            code = HTTPStatus.GATEWAY_TIMEOUT if isinstance(error, TooLate) else HTTPStatus.SERVICE_UNAVAILABLE
            return _refused(code, f"webhook {webhook.name}: {error}", asked.uid)
        except Exception as error:  # a handler's own: told to the API server and in the log
            log.exception("webhook %s: %s could not be answered", webhook.name, asked)
            return _refused(
                HTTPStatus.INTERNAL_SERVER_ERROR, f"webhook {webhook.name} failed: {text_of(error)}", asked.uid
            )

    def _ask(self, webhook: Webhook, handler: Handler, asked: AdmissionRequest, until: float) -> Answer:
        try:
            answer = self._bounded.call(webhook.name, lambda: handler.handle(asked), until)
        except (TooLate, NoThread):
            late = handler.late(asked)
            if late is None:
                raise
            answer = late
        if not isinstance(answer, Answer):
            raise TypeError(f"its handler answered {one_line(repr(answer), 100)}, not an Answer")
        if answer.patch and not webhook.mutating:
            raise TypeError("its handler changed the object, which only a mutating webhook may do")
        log.debug("webhook %s: %s: %s", webhook.name, asked, "allowed" if answer.allowed else "denied")
        return answer


def _patience(timeout: str) -> float:
    """Seconds for an answer, from the API server's `timeout` parameter."""
    try:
        seconds = DURATION.parse(timeout) if timeout else _USUAL
    except ValueError:
        seconds = _USUAL
    seconds = min(max(seconds, 0.0), LONGEST)
    return seconds - min(seconds * _MARGIN, _MOST_MARGIN)


def _refused(code: HTTPStatus, message: str, uid: str = "") -> Reply:
    return Reply(code, refusal(uid, code, message))
