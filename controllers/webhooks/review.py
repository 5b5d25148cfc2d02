"""AdmissionReview of admission.k8s.io/v1: the request that comes in, its handler, and the
answer that goes back.

Follows
https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/ and
k8s.io/api/admission/v1.
"""

from __future__ import annotations

import base64
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import attrs

from cloudprovider.internal.cleaning import one_line
from cloudprovider.internal.jsonpatch import Operation, patch_between
from cloudprovider.internal.readonly import ordinary

T = TypeVar("T")

VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
# Letters; kubectl shows warnings on one line, and the API server cuts long ones.
_WARNING: Final = 256
_WARNINGS: Final = 16
_DEEPEST: Final = 200  # brackets within brackets; a CustomResourceDefinition has some 80
_MARKS: Final = b'[]{},"'
_MARK: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{},]', re.DOTALL)
"""A text, an unfinished one at the end too, or what stands between values. Possessive: never tries
twice."""
_WIDE: Final = re.compile(rb"\\u(?!00[0-7])")
"""An escape of a letter beyond ASCII. Go escapes <, > and & so, which are not."""
# Bytes that it may take, as part of an object of the Kubernetes client and of its copy.
_OF_A_MARK: Final = 1024


class BadReview(Exception):
    """What came is no review that can be answered. `uid` is its request's, where that much is
    known."""

    def __init__(self, message: str, uid: str = "") -> None:
        super().__init__(message)
        self.uid = uid


@attrs.frozen(kw_only=True)
class AdmissionRequest:
    """What the API server is asked to do, and by whom. `resource` is plural, in small letters:
    "persistentvolumes"."""

    uid: str
    operation: str
    """CREATE, UPDATE, DELETE or CONNECT."""
    group: str
    version: str
    resource: str
    subresource: str = ""
    kind: str = ""
    name: str = ""
    """Empty where the API server still makes it from `generateName`."""
    namespace: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    dry_run: bool = False
    """Nothing will be stored: a handler must have no effect besides its answer. It never should
    have one."""
    _object: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    _old_object: Mapping[str, Any] | None = attrs.field(default=None, repr=False)

    @property
    def object(self) -> dict[str, Any]:
        """A copy of the object as it is to be stored, as JSON has it, to be changed at will; empty
        for DELETE.

        Made again each time, so read it once. Where the API server does not identify itself to the
        webhook server, all of it is what some client says: its UID and resourceVersion too.
        """
        return dict(ordinary(self._object or {}))

    @property
    def old_object(self) -> dict[str, Any]:
        """A copy of the object that is stored; empty for CREATE."""
        return dict(ordinary(self._old_object or {}))

    def __str__(self) -> str:
        """For log lines: "CREATE persistentvolumes pv-1"."""
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return one_line(f"{self.operation} {what} {name}".strip(), 300)


@attrs.frozen(kw_only=True)
class Answer:
    """What a handler says of a request; made by `allow`, `change` and `deny`."""

    allowed: bool
    patch: tuple[Operation, ...] = ()
    """JSON Patch operations. Only for mutating webhooks."""
    code: int = 0
    """HTTP status that the user gets where it is denied."""
    reason: str = ""
    message: str = ""
    warnings: tuple[str, ...] = ()
    """Shown to the user by kubectl, one line each."""
    audit: Mapping[str, str] = attrs.field(factory=dict)
    """Annotations for the API server's audit log, without the webhook's name, which it puts before
    them."""


def allow(*, warnings: Iterable[str] = (), audit: Mapping[str, str] | None = None) -> Answer:
    """Let it be done as it was asked for."""
    return Answer(allowed=True, warnings=tuple(warnings), audit=dict(audit or {}))


def change(
    request: AdmissionRequest,
    changed: Mapping[str, Any],
    *,
    warnings: Iterable[str] = (),
    audit: Mapping[str, str] | None = None,
) -> Answer:
    """Let it be done with this object in place of `request.object`; only the differences are sent.
    For mutating ones.

    Raises TypeError or ValueError where the object cannot be written as JSON.
    """
    patch = patch_between(request._object or {}, changed)
    json.dumps(patch, allow_nan=False)
    return Answer(allowed=True, patch=patch, warnings=tuple(warnings), audit=dict(audit or {}))


def deny(message: str, *, code: int = 403, reason: str = "", warnings: Iterable[str] = ()) -> Answer:
    """Refuse it; the user gets `message`, with this HTTP status of 400 to 599 and Kubernetes'
    `reason` for it."""
    if not 400 <= code <= 599:
        raise ValueError(f"code={code}: a refusal has an HTTP status of 400 to 599")
    return Answer(allowed=False, code=code, reason=reason, message=message, warnings=tuple(warnings))


class Handler(ABC):
    """Answers the requests of one webhook, in many threads at once, on every replica, leading or
    not.

    It must change nothing: the same request may come again, with `dry_run`, or never be carried
    out.
    """

    @abstractmethod
    def handle(self, request: AdmissionRequest) -> Answer:
        """Say what becomes of a request, by `allow`, `change` or `deny`.

        `cloudprovider.current_call()` tells how much time is left: a little less than the API
        server waits. What comes later is thrown away, and what this raises becomes an HTTP 500; in
        both cases the API server goes by the `failurePolicy` of the webhook's configuration.
        """

    def late(self, request: AdmissionRequest) -> Answer | None:
        """What to say where `handle` has not answered in time, or there is no free thread for it.
        Must not block.

        None: nothing (an HTTP error), so that the `failurePolicy` decides.
        """
        return None


def marks_in(body: bytes, most: int) -> int:
    """How many texts, brackets and commas JSON text holds, or a few more; counted before anything
    is made of them.

    Raises BadReview where there are more than `most`, or brackets are too deep.
    """
    some = sum(map(body.count, (bytes((mark,)) for mark in _MARKS)))
    if some <= min(most, _DEEPEST):
        return some  # those within texts counted too
    number = depth = 0
    for number, mark in enumerate(_MARK.finditer(body), 1):
        first = body[mark.start()]
        if first in b"[{":
            depth += 1
        elif first in b"]}":
            depth -= 1
        if number > most or depth > _DEEPEST:
            raise BadReview(f"the review has more than {most} values, or brackets more than {_DEEPEST} deep")
    return number


def memory_of(body: bytes, marks: int) -> int:
    """Bytes that a review may take when it is parsed and answered, on no account less than it
    does."""
    # One letter beyond ASCII makes each letter of its text up to four bytes, however it is written.
    narrow = body.isascii() and _WIDE.search(body) is None
    return len(body) * (2 if narrow else 8) + marks * _OF_A_MARK


def parse(body: bytes) -> AdmissionRequest:
    """The request in an AdmissionReview. Unknown fields are no error: later API servers send more.
    Raises BadReview.

    Its memory is bounded by the caller, with `marks_in`.
    """
    try:
        # As the API server sends it: in no other encoding is what was counted.
        review = json.loads(body.decode())
    except (ValueError, RecursionError):
        raise BadReview("the body is no JSON") from None
    if not isinstance(review, dict):
        raise BadReview("the body is no JSON object")
    request = review.get("request")
    uid = request.get("uid") if isinstance(request, dict) else None
    known = uid if isinstance(uid, str) else ""
    if (review.get("apiVersion"), review.get("kind")) != (VERSION, KIND):
        raise BadReview(f"the body is no {KIND} of {VERSION}; no other version is answered", known)
    if not isinstance(request, dict):
        raise BadReview("the review has no request")
    fields = _Fields(request)
    groups = fields.get("userInfo.groups", list) or []
    found = AdmissionRequest(
        uid=fields.get("uid", str) or "",
        operation=fields.get("operation", str) or "",
        group=fields.get("resource.group", str) or "",
        version=fields.get("resource.version", str) or "",
        resource=fields.get("resource.resource", str) or "",
        subresource=fields.get("subResource", str) or "",
        kind=fields.get("kind.kind", str) or "",
        name=fields.get("name", str) or "",
        namespace=fields.get("namespace", str) or "",
        user=fields.get("userInfo.username", str) or "",
        groups=tuple(groups),
        dry_run=fields.get("dryRun", bool) or False,
        object=fields.get("object", dict),
        old_object=fields.get("oldObject", dict),
    )
    problems = list(fields.problems)
    if not all(isinstance(one, str) for one in groups):
        problems.append("userInfo.groups must hold texts")
    problems += [f"{name} is missing" for name in ("uid", "operation", "resource") if not getattr(found, name)]
    if found.operation in ("CREATE", "UPDATE") and request.get("object") is None:
        problems.append("object is missing")
    if problems:
        raise BadReview(f"the review's request is wrong: {'; '.join(problems)}", known)
    return found


def encode(uid: str, answer: Answer) -> bytes:
    """The body with this answer to the request of that uid."""
    response: dict[str, Any] = {"uid": uid, "allowed": answer.allowed}
    if answer.patch:
        patch = json.dumps(answer.patch, separators=(",", ":"), allow_nan=False).encode()
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
    if not answer.allowed:
        response["status"] = _status(answer.code, answer.message, answer.reason)
    if answer.warnings:
        response["warnings"] = [one_line(text, _WARNING) for text in answer.warnings[:_WARNINGS]]
    if answer.audit:
        response["auditAnnotations"] = {key: one_line(value) for key, value in answer.audit.items()}
    return _review(response)


def refusal(uid: str, code: int, message: str) -> bytes:
    """The body of an answer that is no answer: with an HTTP status beside 200, the API server goes
    by the webhook's `failurePolicy`, and shows none of this; people who try the webhook by hand
    do."""
    return _review({"uid": uid, "allowed": False, "status": _status(code, message, "")})


def _status(code: int, message: str, reason: str) -> dict[str, Any]:
    status = {"status": "Failure", "code": code, "message": one_line(message)}
    return status | ({"reason": reason} if reason else {})


def _review(response: Mapping[str, Any]) -> bytes:
    return json.dumps({"apiVersion": VERSION, "kind": KIND, "response": response}).encode() + b"\n"


_KINDS: Final[Mapping[type, str]] = {str: "a text", bool: "true or false", dict: "an object", list: "a list"}


class _Fields:
    """Reads fields of their right types, and collects what is wrong."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw
        self.problems: dict[str, None] = {}

    def get(self, path: str, kind: type[T]) -> T | None:
        """The field, as in "resource.group"; None where it is missing, null, or of another type."""
        holder, _, name = path.rpartition(".")
        value = ((self.get(holder, dict) or {}) if holder else self._raw).get(name)
        if isinstance(value, kind):
            return value
        if value is not None:
            self.problems[f"{path} must be {_KINDS[kind]}"] = None
        return None
