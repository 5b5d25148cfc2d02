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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from cloudprovider.internal.cleaning import one_line

Operation = dict[str, Any]
"""Of a JSON Patch."""

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
        return _copied(self._object or {})

    @property
    def old_object(self) -> dict[str, Any]:
        """A copy of the object that is stored; empty for CREATE."""
        return _copied(self._old_object or {})

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
    resource = _Fields(fields.object("resource") or {}, "resource.")
    user = _Fields(fields.object("userInfo") or {}, "userInfo.")
    found = AdmissionRequest(
        uid=fields.text("uid"),
        operation=fields.text("operation"),
        group=resource.text("group"),
        version=resource.text("version"),
        resource=resource.text("resource"),
        subresource=fields.text("subResource"),
        kind=_Fields(fields.object("kind") or {}, "kind.").text("kind"),
        name=fields.text("name"),
        namespace=fields.text("namespace"),
        user=user.text("username"),
        groups=user.texts("groups"),
        dry_run=fields.flag("dryRun"),
        object=fields.object("object"),
        old_object=fields.object("oldObject"),
    )
    problems = [*fields.problems, *resource.problems, *user.problems]
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


def patch_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Operation, ...]:
    """The JSON Patch (RFC 6902) that turns `before` into `after`, both of JSON values.

    Only what differs is in it, so that two webhooks that change different fields do not undo each
    other's work. Lists are replaced whole.
    """
    return tuple(_between("", before, after))


def _between(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Operation]:
    for key in sorted(before.keys() | after.keys()):
        place = f"{path}/{_escaped(key)}"
        if key not in after:
            yield {"op": "remove", "path": place}
        elif key not in before:
            yield {"op": "add", "path": place, "value": after[key]}
        # Inside, so that what another webhook changes beside it stays.
        elif isinstance(before[key], Mapping) and isinstance(after[key], Mapping):
            yield from _between(place, before[key], after[key])
        elif not _same(before[key], after[key]):
            yield {"op": "replace", "path": place, "value": after[key]}


def _same(one: Any, other: Any) -> bool:
    """Equality of JSON values, where true is not 1 and 1 is not 1.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _status(code: int, message: str, reason: str) -> dict[str, Any]:
    status = {"status": "Failure", "code": code, "message": one_line(message)}
    return status | ({"reason": reason} if reason else {})


def _review(response: Mapping[str, Any]) -> bytes:
    return json.dumps({"apiVersion": VERSION, "kind": KIND, "response": response}).encode() + b"\n"


def _copied(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy_of(one) for key, one in value.items()}


def _copy_of(value: Any) -> Any:
    if isinstance(value, dict):
        return _copied(value)
    return [_copy_of(one) for one in value] if isinstance(value, list) else value


class _Fields:
    """Reads fields of their right types, and collects what is wrong. A field that is missing or
    null is empty."""

    def __init__(self, raw: Mapping[str, Any], where: str = "") -> None:
        self._raw = raw
        self._where = where
        self.problems: list[str] = []

    def text(self, name: str) -> str:
        value = self._of(name, str, "a text")
        return value if isinstance(value, str) else ""

    def flag(self, name: str) -> bool:
        return self._of(name, bool, "true or false") is True

    def object(self, name: str) -> Mapping[str, Any] | None:
        value = self._of(name, dict, "an object")
        return value if isinstance(value, dict) else None

    def texts(self, name: str) -> tuple[str, ...]:
        value: Sequence[Any] = self._of(name, list, "a list") or ()
        if not all(isinstance(one, str) for one in value):
            self.problems.append(f"{self._where}{name} must hold texts")
            return ()
        return tuple(value)

    def _of(self, name: str, kind: type[Any], what: str) -> Any:
        value = self._raw.get(name)
        if value is None or isinstance(value, kind):
            return value
        self.problems.append(f"{self._where}{name} must be {what}")
        return None
