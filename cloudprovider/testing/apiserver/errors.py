"""The embedded API server's answers of failure: one exception that is a Kubernetes Status.

Raised by every layer below HTTP (store operations, patching, validation) and rendered by the HTTP
handler; nothing here knows about sockets. Messages and reasons are what kube-apiserver 1.36
answers, as the parity test compares.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

JSON = dict[str, Any]
"""One JSON object. What the store holds is shared and never mutated in place."""


@attrs.frozen
class Cause:
    """One reason why an object is invalid: a line of `details.causes`.

    `reason` is a FieldValue* constant, `field` a path such as `spec.podCIDR`, `message` starts with
    the reason in words.
    """

    reason: str
    message: str
    field: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def invalid_value(field: str, value: Any, detail: str) -> Cause:
    """The value has the wrong content (Go: field.Invalid)."""
    return Cause("FieldValueInvalid", f"Invalid value: {quote(value)}: {detail}", field)


def required(field: str, detail: str = "") -> Cause:
    """The value is missing (Go: field.Required)."""
    return Cause("FieldValueRequired", "Required value" + (f": {detail}" if detail else ""), field)


def forbidden_value(field: str, detail: str) -> Cause:
    """The value may not be set, or not be changed (Go: field.Forbidden)."""
    return Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def not_supported(field: str, value: Any, supported: Sequence[str]) -> Cause:
    """The value is not one of an enumeration (Go: field.NotSupported)."""
    listed = ", ".join(f'"{one}"' for one in supported)
    return Cause("FieldValueNotSupported", f"Unsupported value: {quote(value)}: supported values: {listed}", field)


def too_long(field: str, limit: int) -> Cause:
    """The value exceeds a length in bytes (Go: field.TooLong)."""
    return Cause("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", field)


def quote(value: Any) -> str:
    """A value as Go's field errors print it: strings in quotes, `null` for nothing."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return str(value)


class StatusError(Exception):
    """A request that failed; `body()` is the Status object that the client gets.

    `code` is the HTTP status; `headers` go with the answer (Retry-After). Caught within its
    request."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details) if details else None
        self.headers = dict(headers or {})
        self.metadata = dict(metadata or {})

    def body(self) -> JSON:
        """The Status object (a new one at each call)."""
        status: JSON = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": dict(self.metadata),
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = dict(self.details)
        status["code"] = self.code
        return status


def object_details(name: str, group: str, kind: str, **more: Any) -> JSON:
    """`details` that point at one object; empty parts are left out."""
    parts: JSON = {"name": name, "group": group, "kind": kind, **more}
    return {key: value for key, value in parts.items() if value}


def qualified(group: str, plural: str) -> str:
    """`leases.coordination.k8s.io`, or just `nodes` in the core group."""
    return f"{plural}.{group}" if group else plural


def bad_request(message: str) -> StatusError:
    """400: the request itself cannot be understood."""
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    """401: no credentials, or unknown ones."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(group: str, plural: str, name: str, why: str) -> StatusError:
    """403: the user may not, or admission refuses."""
    shown = f'{qualified(group, plural)} "{name}"' if name else qualified(group, plural)
    return StatusError(403, "Forbidden", f"{shown} is forbidden: {why}", details=object_details(name, group, plural))


def not_found(group: str, plural: str, name: str) -> StatusError:
    """404: no such object."""
    message = f'{qualified(group, plural)} "{name}" not found'
    return StatusError(404, "NotFound", message, details=object_details(name, group, plural))


def method_not_allowed() -> StatusError:
    """405: the resource exists, the method does not fit it."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def already_exists(group: str, plural: str, name: str, *, going: bool = False) -> StatusError:
    """409 AlreadyExists: create under a name that is taken, by an object whose deletion is under
    way if `going`."""
    message = f'{"object is being deleted: " if going else ""}{qualified(group, plural)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=object_details(name, group, plural))


def conflict(group: str, plural: str, name: str, why: str) -> StatusError:
    """409 Conflict: a stale resourceVersion or a failed precondition."""
    message = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=object_details(name, group, plural))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
"""Why a stale resourceVersion is refused."""


def expired(message: str, *, metadata: Mapping[str, Any] | None = None) -> StatusError:
    """410: the revision asked for was compacted away."""
    return StatusError(410, "Expired", message, metadata=metadata)


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> StatusError:
    """422: the object breaks a rule; every broken rule is listed."""
    causes = list(dict.fromkeys(causes))
    shown = str(causes[0]) if len(causes) == 1 else "[" + ", ".join(str(cause) for cause in causes) + "]"
    qualified_kind = f"{kind}.{group}" if group else kind
    return StatusError(
        422,
        "Invalid",
        f'{qualified_kind} "{name}" is invalid: {shown}',
        details=object_details(name, group, kind, causes=[attrs.asdict(cause) for cause in causes]),
    )


def too_large_resource_version(wanted: int, current: int) -> StatusError:
    """504: the client has seen a later revision than this server holds."""
    return StatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {wanted}, current: {current}",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
    )


def not_implemented(what: str) -> StatusError:
    """501: the real server can, this one cannot; it says so and never guesses."""
    return StatusError(501, "NotImplemented", f"the embedded API server does not support {what}")
