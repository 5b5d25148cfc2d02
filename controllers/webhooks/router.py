"""One HTTP request of the API server in, its answer out: which webhook, what review, is there time?

No answer takes longer than the API server waits: its `timeout`, less a margin. Another status than
200 is a failed call for the API server, which then goes by the webhook's `failurePolicy`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, urlsplit

import attrs

from cloudprovider import Call
from cloudprovider.internal.cleaning import one_line, text_of
from cloudprovider.threads import NoThreadLeft, Task, TooLate
from controllers.httpserver.messages import Later, Request, Response, Shares
from controllers.options import DURATION
from controllers.runtime.clock import SYSTEM_CLOCK, Clock, ClockEvent
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import FailureLog
from controllers.webhooks.review import (
    AdmissionRequest,
    Answer,
    BadReview,
    Handler,
    encode,
    marks_in,
    memory_of,
    parse,
    refusal,
)
from controllers.webhooks.webhook import Webhook

log = logging.getLogger(__name__)

THREADS: Final = 64
"""Handlers at work at once, of all webhooks, overdue ones included; one client has half."""
MEMORY: Final = 32 * 2**20
"""Bytes of all reviews that are parsed and answered; more for great ones."""
WINDOW: Final = 30.0
"""Seconds between two lines of log about one kind of failure: anybody may send reviews."""
LONGEST: Final = 30.0
"""Seconds that an API server waits at most (`timeoutSeconds`)."""
# Seconds until a handler counts as one that hangs, however long its client waits.
_HANGS: Final = 30.0
_USUAL: Final = 10.0  # seconds that an API server waits by default
_MARGIN: Final = 0.1  # of the timeout
_MOST_MARGIN: Final = 1.0  # seconds
_BUCKETS: Final = (0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0)
_LABELS: Final = ("code", "webhook")


class NoThread(Exception):
    """There is none for this handler: of the system, or of its client's share."""


@attrs.frozen(eq=False)
class _Review:
    """One request while it is answered."""

    webhook: Webhook
    handler: Handler
    request: Request
    until: float
    """When the answer is due, on the clock's monotonic time."""
    held: ExitStack
    """What it holds of memory and threads; closed when nothing works on it any more, which may be
    after the answer."""


class WebhookRouter:
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
        self._clock = clock
        self._places = Shares(threads)
        greatest = max((8 * one.max_body + 1024 * one.max_values for one, _ in served), default=0)
        self._memory = Shares(max(MEMORY, 2 * greatest))
        self._lock = threading.Lock()
        self._running: dict[_Review, float] = {}  # since when a handler works on it
        self._failures: FailureLog[str] = FailureLog("webhook", log, clock=clock, noun="webhook", window=WINDOW)
        # Go counts only the requests that failed; here those with the code 200 are counted, too.
        metrics = metrics or Metrics()
        self._total = metrics.counter(
            "cloud_provider_webhook_request_total", "Number of HTTP requests partitioned by status code.", _LABELS
        )
        self._seconds = metrics.histogram(
            "cloud_provider_webhook_request_duration_seconds",
            "Request latency in seconds. Broken down by status code.",
            _LABELS,
            _BUCKETS,
        )

    @property
    def webhooks(self) -> list[Webhook]:
        """What is served."""
        return [webhook for webhook, _ in self._by_path.values()]

    def overdue(self) -> list[tuple[str, float]]:
        """Handlers that have not returned for more than 30 s, the longest that any API server
        waits: (webhook, seconds), the longest first."""
        now = self._clock.monotonic()
        with self._lock:
            late = [(one.webhook.name, now - began) for one, began in self._running.items() if now > began + _HANGS]
        return sorted(late, key=lambda one: -one[1])

    def answer(self, request: Request) -> Response | Later:
        """The answer, or, where a handler has to be asked, a function that makes it and blocks
        meanwhile. Threads and memory are counted for the request's peer."""
        began = self._clock.monotonic()
        try:
            url = urlsplit(request.target)
            query = parse_qs(url.query)
        except ValueError:
            return _refused(HTTPStatus.BAD_REQUEST, "not a path")
        found = self._by_path.get(url.path)
        # Answered before a thread or memory is taken for it: scanners ask for anything.
        if found is None:
            return _refused(HTTPStatus.NOT_FOUND, "no webhook is served at this path")
        webhook, handler = found
        until = began + _patience(query.get("timeout", [""])[-1])

        def answered() -> Response:
            with ExitStack() as held:
                made = self._answer(_Review(webhook, handler, request, until, held))
            labels = {"code": str(made.status), "webhook": webhook.name}
            self._total.labels(**labels).inc()
            self._seconds.labels(**labels).observe(self._clock.monotonic() - began)
            return made

        return answered

    def _answer(self, review: _Review) -> Response:
        webhook, request = review.webhook, review.request
        if request.method != "POST":
            return attrs.evolve(_refused(HTTPStatus.METHOD_NOT_ALLOWED, "only POST"), headers=(("Allow", "POST"),))
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return _refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the Content-Type must be application/json")
        if len(request.body) > webhook.max_body:
            return _refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {webhook.max_body} bytes")
        # It waited too long for a thread: no one reads the answer.
        if self._clock.monotonic() >= review.until:
            return _refused(HTTPStatus.GATEWAY_TIMEOUT, "no answer in time")
        try:
            # Before it is parsed: as objects, a review of one megabyte can take twenty.
            memory = memory_of(request.body, marks_in(request.body, webhook.max_values))
            if (release := self._memory.take(request.group, memory)) is None:
                return _refused(HTTPStatus.SERVICE_UNAVAILABLE, "too many reviews are under way")
            review.held.callback(release)
            asked = parse(request.body)
        except BadReview as error:
            return _refused(HTTPStatus.BAD_REQUEST, str(error), error.uid)
        return self._answer_about(review, asked)

    def _answer_about(self, review: _Review, asked: AdmissionRequest) -> Response:
        name = review.webhook.name

        def failed(code: HTTPStatus, error: Exception, message: str, *, stack: bool = False) -> Response:
            # One line for many, however many objects they are about.
            text = text_of(error) if stack else str(error)
            self._failures.failed(name, f"no answer about {asked}", error, text, stack=stack)
            return _refused(code, f"webhook {name}{message}", asked.uid)

        # A configuration with too wide rules sends what the handler was never written for.
        if not any(match.covers(asked) for match in review.webhook.matches):
            wrong = ValueError("a review that it is not for: correct the rules of its configuration")
            return failed(HTTPStatus.BAD_REQUEST, wrong, f": {asked}: {wrong}")
        try:
            answer = self._handled(review, asked)
            made = Response(HTTPStatus.OK, encode(asked.uid, answer), "application/json")
        except TooLate as error:
            return failed(HTTPStatus.GATEWAY_TIMEOUT, error, f": {error}")
        except NoThread as error:
            return failed(HTTPStatus.SERVICE_UNAVAILABLE, error, f": {error}")
        except Exception as error:  # noqa: BLE001 - a handler's own: reported to the API server and in the log
            return failed(HTTPStatus.INTERNAL_SERVER_ERROR, error, f" failed: {text_of(error)}", stack=True)
        self._failures.succeeded(name)
        return made

    def _handled(self, review: _Review, asked: AdmissionRequest) -> Answer:
        """What the handler answers, checked. Raises TooLate, NoThread, and what that raises."""
        try:
            answer = self._called(review, asked)
        except (TooLate, NoThread):
            # An answer with a warning is better than an error, where the handler has one.
            late = review.handler.late(asked)
            if late is None:
                raise
            answer = late
        if not isinstance(answer, Answer):
            raise TypeError(f"its handler answered {one_line(repr(answer), 100)}, not an Answer")
        # The API server drops the patch of a validating webhook without a word.
        if answer.patch and not review.webhook.mutating:
            raise TypeError("its handler changed the object, which only a mutating webhook may do")
        log.debug("webhook %s: %s: %s", review.webhook.name, asked, "allowed" if answer.allowed else "denied")
        return answer

    def _called(self, review: _Review, asked: AdmissionRequest) -> Answer:
        """What the handler returns, in its own thread, which a handler that hangs keeps."""
        if (release := self._places.take(review.request.group)) is None:
            raise NoThread("too many requests are under way, of this client or of all")
        # Its memory and its place are the thread's now, which may outlive the answer.
        review = attrs.evolve(review, held=review.held.pop_all())
        review.held.callback(release)
        cancelled = ClockEvent(self._clock)
        call = Call(review.until, cancelled, self._clock.monotonic)
        with self._lock:
            self._running[review] = self._clock.monotonic()
        try:
            task = Task(
                lambda: review.handler.handle(asked),
                f"webhook-{review.webhook.name}",
                call=call,
                clock=self._clock,
                on_end=lambda: self._end(review),
            )
        except NoThreadLeft as error:
            self._end(review)
            raise NoThread(str(error)) from error
        if not task.wait(max(0.0, review.until - self._clock.monotonic())):
            cancelled.set()
            raise TooLate("no answer in time")
        try:
            return task.result()
        except Exception:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit of a handler costs its request, and nothing else
            raise RuntimeError(f"{type(error).__name__} was raised") from None

    def _end(self, review: _Review) -> None:
        with self._lock:
            self._running.pop(review, None)
        review.held.close()


def _patience(timeout: str) -> float:
    """Seconds for an answer, from the API server's `timeout` parameter."""
    try:
        seconds = DURATION.parse(timeout) if timeout else _USUAL
    except ValueError:
        seconds = _USUAL
    # The way back takes time too: an answer in the last millisecond is a timeout there.
    seconds = min(max(seconds, 0.0), LONGEST)
    return seconds - min(seconds * _MARGIN, _MOST_MARGIN)


def _refused(code: HTTPStatus, message: str, uid: str = "") -> Response:
    return Response(code, refusal(uid, code, message), "application/json")
