"""The review APIs (who is this token, may this user do that), and tokens of service accounts.

Answers for `api` from the server's Access; no review is stored. A service account's token ends with
its time, with its account, and with the server; it is opaque here instead of signed. See k8s.io/api
authentication/v1 and authorization/v1.
"""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime
from typing import Any, Final

from cloudprovider.testing.apiserver import errors
from cloudprovider.testing.apiserver.access import Access, Attributes, User
from cloudprovider.testing.apiserver.errors import JSON
from cloudprovider.testing.apiserver.kinds.schema import DecodeError, format_time, struct
from cloudprovider.testing.apiserver.storage import Store

AUDIENCE: Final = "https://kubernetes.default.svc"
_LIFETIME: Final = 3600
_SHORTEST, _LONGEST = 600, 1 << 32


def review(access: Access, user: User, kind: str, body: Any) -> JSON:
    """The reviewed object of a POST. Raises StatusError (400, 422)."""
    group = "authentication.k8s.io" if kind == "TokenReview" else "authorization.k8s.io"
    cleaned = _read(kind, group, body)
    spec = cleaned["spec"]
    if kind == "TokenReview":
        status = _token_status(access, spec)
    else:
        asked = _attributes(kind, spec)
        # Of another user; the other review is about who asks.
        if kind == "SubjectAccessReview":
            user = _subject(spec)
        status = {"allowed": access.allows(user, asked)}
    return {**cleaned, "kind": kind, "apiVersion": f"{group}/v1", "status": status}


def _read(kind: str, group: str, body: Any) -> JSON:
    if not isinstance(body, dict):
        raise errors.bad_request("the body of the request is not a JSON object")
    given = body.get("kind", kind), body.get("apiVersion", f"{group}/v1")
    if given != (kind, f"{group}/v1"):
        raise errors.bad_request(f"{given[0]} in version {given[1]!r} cannot be handled as a {kind}")
    try:
        return struct(kind).clean(body, None, "", [])
    except DecodeError as error:
        raise errors.bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {error}') from error


def _token_status(access: Access, spec: JSON) -> JSON:
    token = spec.get("token", "")
    if not token:
        raise errors.bad_request("token is required for TokenReview in authentication")
    found = access.user_of_token(token)
    wanted = spec.get("audiences") or [AUDIENCE]
    if found is None:
        return {"user": {}, "error": "[invalid bearer token, token lookup failed]"}
    described: JSON = {"username": found.name, "groups": list(found.groups)}
    if found.uid:
        described["uid"] = found.uid
    if AUDIENCE not in wanted:
        return {"user": {}, "error": f"token audiences [{AUDIENCE}] is invalid for the target audiences {wanted}"}
    return {"authenticated": True, "user": described, "audiences": [AUDIENCE]}


def _attributes(kind: str, spec: JSON) -> Attributes:
    resource, url = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and url is not None:
        why = "Invalid value: cannot be specified in combination with resourceAttributes"
        raise _wrong(kind, "spec.nonResourceAttributes", why)
    # Both given was refused before: a review is about one of them.
    if url is not None:
        return Attributes(url.get("verb", ""), path=url.get("path", ""))
    if resource is None:
        why = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise _wrong(kind, "spec.resourceAttributes", why)
    fields = ("verb", "group", "resource", "subresource", "namespace", "name")
    return Attributes(*(resource.get(field, "") for field in fields))


def _subject(spec: JSON) -> User:
    name, groups = spec.get("user", ""), tuple(spec.get("groups") or ())
    if not name and not groups:
        why = 'Invalid value: "": at least one of user or group must be specified'
        raise _wrong("SubjectAccessReview", "spec.user", why)
    return User(name, spec.get("uid", ""), groups)


def _wrong(kind: str, field: str, why: str) -> errors.StatusError:
    return errors.invalid("authorization.k8s.io", kind, "", [errors.Cause("FieldValueInvalid", why, field)])


def token_request(store: Store, access: Access, namespace: str, name: str, body: Any) -> JSON:
    """The answer to a TokenRequest for this account. Raises StatusError (400, 404, 422, 501)."""
    key = f"{namespace}/{name}"
    stored = store.get("serviceaccounts", key)
    if stored is None:
        raise errors.not_found("", "serviceaccounts", name)
    spec = _read("TokenRequest", "authentication.k8s.io", body).get("spec") or {}
    if spec.get("boundObjectRef"):
        raise errors.not_implemented("tokens bound to an object")
    seconds = spec.get("expirationSeconds")
    seconds = _LIFETIME if seconds is None else seconds
    # A client that asks for less fails against a real cluster, so it does here.
    if not _SHORTEST <= seconds <= _LONGEST:
        why = "duration less than 10 minutes" if seconds < _SHORTEST else "duration larger than 2^32 seconds"
        cause = errors.invalid_value("spec.expirationSeconds", seconds, f"may not specify a {why}")
        raise errors.invalid("authentication.k8s.io", "TokenRequest", "", [cause])
    uid, end = stored.object["metadata"]["uid"], time.time() + seconds
    audiences = spec.get("audiences") or [AUDIENCE]
    token = secrets.token_urlsafe(32)

    def is_valid() -> bool:
        found = store.get("serviceaccounts", key)
        # By the UID: an account that was deleted and created again has other tokens.
        return found is not None and found.object["metadata"]["uid"] == uid and time.time() < end

    if AUDIENCE in audiences:  # a token for another audience is none for this server
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        access.add_token(token, User(f"system:serviceaccount:{namespace}:{name}", uid, groups), is_valid)
    created = format_time(datetime.now(UTC))
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": created},
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": None},
        "status": {"token": token, "expirationTimestamp": format_time(datetime.fromtimestamp(end, UTC))},
    }
