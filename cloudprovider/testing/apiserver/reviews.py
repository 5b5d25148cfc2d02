"""The review APIs: who is this token, may this user do that.

Answers for `api` from the server's Access; nothing is stored. See k8s.io/api authentication/v1 and authorization/v1.
"""

from __future__ import annotations

from typing import Any

from cloudprovider.testing.apiserver import errors
from cloudprovider.testing.apiserver.access import Access, Attributes, User
from cloudprovider.testing.apiserver.errors import JSON
from cloudprovider.testing.apiserver.schema import Context, DecodeError, struct

AUDIENCE = "https://kubernetes.default.svc"


def review(access: Access, user: User, kind: str, body: Any) -> JSON:
    """The reviewed object of a POST. Raises StatusError (400, 422)."""
    if not isinstance(body, dict):
        raise errors.bad_request("the body of the request is not a JSON object")
    group = "authentication.k8s.io" if kind == "TokenReview" else "authorization.k8s.io"
    given = body.get("kind", kind), body.get("apiVersion", f"{group}/v1")
    if given != (kind, f"{group}/v1"):
        raise errors.bad_request(f"{given[0]} in version {given[1]!r} cannot be handled as a {kind}")
    try:
        cleaned = struct(kind).clean(body, None, "", Context())
    except DecodeError as error:
        raise errors.bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {error}') from error
    status = {
        "TokenReview": _token,
        "SubjectAccessReview": _subject,
        "SelfSubjectAccessReview": _self_subject,
        "SelfSubjectRulesReview": _rules,
    }[kind](access, user, cleaned["spec"])
    answer: JSON = {**cleaned, "kind": kind, "apiVersion": f"{group}/v1", "status": status}
    return answer


def _token(access: Access, user: User, spec: JSON) -> JSON:
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
        raise errors.invalid(
            "authorization.k8s.io",
            kind,
            "",
            [
                errors.Cause(
                    "FieldValueInvalid",
                    "Invalid value: cannot be specified in combination with resourceAttributes",
                    "spec.nonResourceAttributes",
                )
            ],
        )
    if resource is None and url is None:
        raise errors.invalid(
            "authorization.k8s.io",
            kind,
            "",
            [
                errors.Cause(
                    "FieldValueInvalid",
                    "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
                    "spec.resourceAttributes",
                )
            ],
        )
    if url is not None:
        return Attributes(url.get("verb", ""), path=url.get("path", ""))
    asked = resource or {}
    return Attributes(
        asked.get("verb", ""),
        asked.get("group", ""),
        asked.get("resource", ""),
        asked.get("subresource", ""),
        asked.get("namespace", ""),
        asked.get("name", ""),
    )


def _verdict(access: Access, user: User, asked: Attributes) -> JSON:
    return {"allowed": access.allows(user, asked)}


def _subject(access: Access, user: User, spec: JSON) -> JSON:
    asked = _attributes("SubjectAccessReview", spec)
    name, groups = spec.get("user", ""), tuple(spec.get("groups") or ())
    if not name and not groups:
        raise errors.invalid(
            "authorization.k8s.io",
            "SubjectAccessReview",
            "",
            [
                errors.Cause(
                    "FieldValueInvalid",
                    'Invalid value: "": at least one of user or group must be specified',
                    "spec.user",
                )
            ],
        )
    return _verdict(access, User(name, spec.get("uid", ""), groups), asked)


def _self_subject(access: Access, user: User, spec: JSON) -> JSON:
    return _verdict(access, user, _attributes("SelfSubjectAccessReview", spec))


def _rules(access: Access, user: User, spec: JSON) -> JSON:
    if access.denied_verbs(user):
        raise errors.not_implemented("SelfSubjectRulesReview beside deny rules")
    everything = "system:masters" in user.groups
    if not everything:
        raise errors.not_implemented("SelfSubjectRulesReview for users outside system:masters")
    return {
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": False,
    }
