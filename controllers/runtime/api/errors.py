"""What the API server answers when it says no: one exception per meaning (used by stages 1, 2 and
6).

Answers come from `restclient.py` (HTTP responses) and from `cache/watch.py` (ERROR events); the
errors go to the caller of the request, who matches their classes and not status codes.

    ApiError
     +- BadRequest        400
     +- Unauthorized      401
     +- Forbidden         403
     +- NotFound          404; a proxy's too, or one about the resource
     |   +- ObjectNotFound   the API server says that it does not have this object
     +- Conflict          409, another writer was first
     +- AlreadyExists     409 with reason AlreadyExists (not a Conflict: computing again does not help)
     +- Gone              410, also reason Expired: the resourceVersion is too old
     +- Invalid           422
     +- TooManyRequests   429, not applied
     +- ServerError       5xx
     +- Unreachable       no complete answer
         +- CredentialsUnavailable   token, plugin or certificate could not be had; nothing was sent
         +- ClientClosed             our own side was closed meanwhile
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from controllers.runtime.protobuf import MAGIC

if TYPE_CHECKING:
    from controllers.runtime.api.reachability import Recovery

MAX_MESSAGE: Final = 1024
"""Characters of a foreign (non-Status) body kept in a message."""


class ApiError(Exception):
    """The API server refused a request, or could not be asked (`Unreachable`).

    `status` is the HTTP status (0: no answer), `reason` the API's machine word ("NotFound") or "",
    `message` its sentence, `retry_after` seconds or None, `details` the `details` of the Status
    object, `method` and `path` the request's. `recovery` is there where the server gave no answer
    of its own: when it answers again, waiting longer is pointless. Follows
    https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#status-v1-meta.
    """

    recovery: Recovery | None = None

    def __init__(
        self,
        message: str = "",
        *,
        status: int = 0,
        reason: str = "",
        retry_after: float | None = None,
        details: Mapping[str, Any] | None = None,
        method: str = "",
        path: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        self.details: Mapping[str, Any] = details or {}
        self.method = method
        self.path = path

    def __str__(self) -> str:
        what = f"{self.method} {self.path}: " if self.path else ""
        answer = " ".join(part for part in (str(self.status or ""), self.reason) if part)
        return f"{what}{answer}{': ' if answer and self.message else ''}{self.message}"

    def has_cause(self, reason: str) -> bool:
        """Tell whether `details.causes` names this reason ("NamespaceTerminating", for one)."""
        causes = self.details.get("causes")
        return isinstance(causes, list) and any(isinstance(c, dict) and c.get("reason") == reason for c in causes)


class BadRequest(ApiError):
    """400: the request itself is malformed."""


class Unauthorized(ApiError):
    """401: the credentials were not accepted."""


class Forbidden(ApiError):
    """403: the credentials lack the right; `message` names verb and resource."""


class NotFound(ApiError):
    """404: no such object, or no such resource, or a proxy's word: it proves nothing."""


class ObjectNotFound(NotFound):
    """404 in which the API server names the object of the request: that one is not there."""


class Conflict(ApiError):
    """409: a precondition failed, most often a stale resourceVersion."""


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists: an object of that name is there."""


class Gone(ApiError):
    """410: the resourceVersion or the continue token is too old; list again."""


class Invalid(ApiError):
    """422: the object would not be valid."""


class TooManyRequests(ApiError):
    """429: the server is busy; nothing was applied. `retry_after` says when to come back."""


class ServerError(ApiError):
    """5xx: the server failed; whether the request was applied is unknown."""


class Unreachable(ApiError):
    """No complete answer came. `sent` tells whether the request may have been applied."""

    def __init__(self, message: str = "", *, sent: bool = True, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.sent = sent


class HalfOpen(Unreachable):
    """A stream was given up: nothing came on it since a request that was not answered, while a new
    connection works."""

    WHY: Final = "given up: nothing came since another request was not answered, and a newer connection works"


class CredentialsUnavailable(Unreachable):
    """A token file is empty, a credential plugin failed, or no certificate: nothing was sent."""

    def __init__(self, message: str = "", *, sent: bool = False, **fields: Any) -> None:
        super().__init__(message, sent=sent, **fields)


class ClientClosed(Unreachable):
    """The client was closed before the answer was complete."""


_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
# Wins over the status: a watch's ERROR event, or a proxy, may carry the reason with another code.
_BY_REASON: Final[Mapping[str, type[ApiError]]] = {"AlreadyExists": AlreadyExists, "Expired": Gone, "Gone": Gone}


def from_status(
    status: int,
    headers: Mapping[str, str] | None = None,
    body: bytes | Mapping[str, Any] | None = None,
    *,
    method: str = "",
    path: str = "",
    now: float | None = None,
) -> ApiError:
    """Build the one exception that an answer means; the caller raises it.

    `headers` has lower-case names. `body` is the response's bytes, JSON or Protobuf, or a parsed
    Status object, such as that of a watch's ERROR event, whose `code` counts where `status` is 0 or
    a success. `now` (unix seconds) is needed only for a Retry-After that holds a date. Never
    raises: a body that is no Status object becomes the message, cut to a readable length.
    """
    obj = body if isinstance(body, Mapping) else _parse_status(body)
    # An ERROR event of a watch comes in an answer of status 200.
    if (status < 300) and isinstance(obj.get("code"), int):
        status = obj["code"]
    reason = obj.get("reason") if isinstance(obj.get("reason"), str) else ""
    message = obj.get("message") if isinstance(obj.get("message"), str) else ""
    if not message and isinstance(body, bytes) and body.startswith(MAGIC):
        message = "" if obj else f"{len(body)} bytes of Protobuf that cannot be read"
    elif not message and isinstance(body, bytes) and obj.get("kind") != "Status":
        message = body[: MAX_MESSAGE * 4].decode("utf-8", "replace").strip()[:MAX_MESSAGE]
    details = obj.get("details") if isinstance(obj.get("details"), dict) else {}
    kind = _BY_REASON.get(reason or "") or _BY_STATUS.get(status)
    # Statuses of proxies that no API server has (421, 599): by their class.
    if kind is None:
        kind = ServerError if status >= 500 else ApiError
    # A proxy's 404 names nothing, or what the proxy lacks (a cluster, say).
    if kind is NotFound and (details or {}).get("name") in path.partition("?")[0].split("/")[-2:]:
        kind = ObjectNotFound
    retry_after = parse_retry_after((headers or {}).get("retry-after"), now)
    # The header may be lost in a proxy; the Status says the same.
    if retry_after is None and kind in (TooManyRequests, ServerError):
        retry_after = _seconds((details or {}).get("retryAfterSeconds"))
    return kind(
        message or "",
        status=status,
        reason=reason or "",
        retry_after=retry_after,
        details=details,
        method=method,
        path=path,
    )


def parse_retry_after(value: str | None, now: float | None = None) -> float | None:
    """Read a Retry-After header: seconds, or with `now` (unix seconds) an HTTP date. None when
    absent or unreadable."""
    if not value:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        # Thirty years are a mistake, and no time to wait.
        return float(text) if len(text) < 10 else None
    if now is None:
        return None
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9 else None


def _parse_status(body: bytes | None) -> Mapping[str, Any]:
    if body and body.startswith(MAGIC):
        from controllers.runtime.protobuf.reading import read_enveloped  # not loaded where all is JSON

        try:
            return read_enveloped(body, "Status")
        except ValueError:
            return {}
    # A page of HTML: it need not be parsed to know that it is no Status.
    if not body or body[:1] not in b"{ \n\r\t":
        return {}
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
