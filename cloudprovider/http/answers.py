"""Answers of a cloud's API (stage 5, cloud call): the status as the contract's error, by the one
table in `error_of`. Pure.

What is not the cloud's own word never counts as one: a 404 of a proxy, a page of HTML with status
200, half a JSON document. All of that means "unknown", so nothing is deleted because of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from email.utils import mktime_tz, parsedate_tz
from typing import Any, TypeVar

from attrs import field, frozen
from pydantic import BaseModel, ConfigDict, ValidationError

from cloudprovider.errors import CloudProviderError, InvalidService, Pending, QuotaExceeded, Throttled
from cloudprovider.internal.fields import documented

__all__ = ["Answer", "CloudError", "ConflictError", "Failures", "NotFoundError", "RefusedError", "Resource", "Said"]

MOST_WORDS = 1000  # letters of the cloud that are told
LONGEST_WAIT = 3600.0  # that a Retry-After counts for, whatever the cloud writes there

ModelT = TypeVar("ModelT", bound=BaseModel)


class CloudError(CloudProviderError):
    """The cloud refused a request. `status` is that of HTTP, `code` the cloud's own word; 0 and ""
    where there is none."""

    def __init__(self, message: str, *, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class NotFoundError(CloudError):
    """The cloud itself answered that there is no such thing."""


class ConflictError(CloudError):
    """What is asked for does not fit what is in the cloud now: a name is taken, say."""


class RefusedError(CloudError, InvalidService):
    """What is asked for is not possible, however often it is asked for. From
    `ensure_load_balancer` it tells the Service's owner the cloud's words."""

    def __init__(self, message: str, *, status: int = 0, code: str = "") -> None:
        InvalidService.__init__(self, message)
        self.status = status
        self.code = code


class Resource(BaseModel):
    """A base for what the API shows: frozen, an answer without one of its fields raises, and fields
    that a newer API adds do not matter."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", hide_input_in_errors=True, validate_by_name=True, validate_by_alias=True
    )

    def is_as(self, wanted: Resource) -> bool:
        """Whether this has every field of `wanted` with the same value: nothing need be written."""
        return all(getattr(self, name) == getattr(wanted, name) for name in type(wanted).model_fields)


@frozen
class Said:
    """What the cloud says of an error."""

    code: str = ""
    message: str = ""


def _said(body: Any) -> Said:
    """Reads {"error": {"code": "...", "message": "..."}}, and the same without "error"."""
    inner = body.get("error", body)
    return Said(str(inner.get("code", "")), str(inner.get("message", "")))


def _codes(given: Collection[str]) -> tuple[str, ...]:
    """A converter. In a text every part of it would be found, "" too, which a proxy's 404 has."""
    codes = tuple(given)
    if isinstance(given, str) or "" in codes:
        raise TypeError(f"Failures: codes must be a collection of words, such as ['not_found'], not {given!r}")
    return codes


def _word(value: object) -> str:
    """A word of the cloud's. `said` is typed str, and an answer may have anything there."""
    return str(value) if isinstance(value, str | int) else ""


@documented
@frozen
class Failures:
    """How a cloud says that something went wrong. Raises TypeError for codes that are one text. For
    any thread."""

    said: Callable[[Any], Said] = _said
    """Reads the JSON body of an error. What it cannot read (LookupError, TypeError, AttributeError)
    is not the cloud's. By default {"error": {"code": "...", "message": "..."}}, or its inner part
    alone."""

    not_found: Collection[str] = field(default=("not_found",), converter=_codes)
    """The codes with which a 404 or 410 is the cloud's own: that there is no such thing."""

    busy: Collection[str] = field(default=("busy", "locked"), converter=_codes)
    """The codes with which a 409 says that the cloud still works on the thing."""

    quota: Collection[str] = field(default=("quota_exceeded", "limit_exceeded"), converter=_codes)
    """The codes that say that a limit of the account is reached, with status 403, 409, 422 or
    429."""

    def read(self, data: bytes) -> Said:
        """The cloud's words in a body; empty where somebody else wrote it."""
        try:
            said = self.said(json.loads(data))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return Said()
        return Said(_word(said.code), _word(said.message)[:MOST_WORDS])


@documented
@frozen
class Answer:
    """A good answer, with a status from 200 to 299."""

    asked: str
    """Method and path, for messages."""
    status: int
    headers: Mapping[str, str] = field(repr=False)
    data: bytes = field(repr=False)

    def read(self, kind: type[ModelT]) -> ModelT:
        """The body as a model. Raises CloudProviderError where it is no JSON, or a field is
        missing: half an answer is never taken for a whole one."""
        try:
            return kind.model_validate_json(self.data)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            places = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the body'}: {one['msg']}" for one in found)
            raise CloudProviderError(f"{self.asked}: the answer cannot be read: {places}") from None


def error_of(
    asked: str, status: int, headers: Mapping[str, str], data: bytes, failures: Failures, reason: str = ""
) -> CloudProviderError:
    """The table: what each status of an API means to the host."""
    said, wait = failures.read(data), retry_after(headers.get("Retry-After", ""))
    text = f"{asked}: {status} {said.message or said.code or reason}".rstrip()
    kind = CloudError
    match status:
        case 403 | 409 | 422 | 429 if said.code in failures.quota:
            return QuotaExceeded(text)
        case 401:  # the cloud's own words are left out: they might have the token in them
            text = f"{asked}: 401, the cloud does not accept the credentials. Check them in the cloud config"
        case 403:
            text = f"{text}. The credentials have no permission for this request"
        case 404 | 410 if said.code in failures.not_found:
            kind = NotFoundError
        case 404 | 410:  # of a proxy, or of a wrong path: nothing is gone because of it
            text = f"{text}. This answer is not the cloud's own: check the endpoint in the cloud config"
        case 409 | 423 if status == 423 or said.code in failures.busy:
            return Pending(text, wait or 5.0)
        case 409:
            kind = ConflictError
        case 422:
            kind, text = RefusedError, said.message or text
        case 429:
            return Throttled(text, wait, whole_account=True)
        case 503 if wait is not None:
            return Throttled(text, wait, whole_account=True)
    return kind(text, status=status, code=said.code)


def retry_after(value: str, now: Callable[[], float] = time.time) -> float | None:
    """The seconds that a Retry-After names, as a number or a date; None where it names none. Never
    negative, and an hour at most."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(LONGEST_WAIT, float(value[:9]))
    try:
        date = parsedate_tz(value)
        return None if date is None else min(LONGEST_WAIT, max(0.0, mktime_tz(date) - now()))
    except (ValueError, OverflowError, LookupError, TypeError):
        return None
