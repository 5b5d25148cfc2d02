"""Service accounts, and their tokens: who asks at /token gets a bearer token of this server for the account.

The strategy is the store's; `api` answers TokenRequests from here. A token ends with its time, with its account, and
with the server. Follows pkg/registry/core/serviceaccount and pkg/apis/authentication/validation of k8s.io/kubernetes;
tokens are opaque here instead of signed, and bound objects are not supported.
"""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime
from typing import Any, Final

from cloudprovider.testing.apiserver import errors
from cloudprovider.testing.apiserver.access import Access, User
from cloudprovider.testing.apiserver.errors import JSON
from cloudprovider.testing.apiserver.kinds import Strategy
from cloudprovider.testing.apiserver.names import dns_subdomain
from cloudprovider.testing.apiserver.reviews import AUDIENCE
from cloudprovider.testing.apiserver.schema import Context, DecodeError, struct
from cloudprovider.testing.apiserver.store import Store

_API: Final = "authentication.k8s.io/v1"
_LIFETIME: Final = 3600
_SHORTEST, _LONGEST = 600, 1 << 32


class ServiceAccountStrategy(Strategy):
    """Rules of service accounts: there is no status and no spec."""

    returns_deleted_object = True

    def prepare_create(self, obj: JSON) -> None:
        """No secret is listed by who creates the account."""
        obj.pop("secrets", None)

    def prepare_update(self, obj: JSON, old: JSON) -> None:
        """Everything may change."""

    def validate_name(self, name: str) -> list[str]:
        """A DNS subdomain."""
        return dns_subdomain(name)


def token_request(store: Store, access: Access, namespace: str, name: str, body: Any) -> JSON:
    """The answer to a TokenRequest for this account. Raises StatusError (400, 404, 422, 501)."""
    key = f"{namespace}/{name}"
    stored = store.get("serviceaccounts", key)
    if stored is None:
        raise errors.not_found("", "serviceaccounts", name)
    if not isinstance(body, dict):
        raise errors.bad_request("the body of the request is not a JSON object")
    given = body.get("kind", "TokenRequest"), body.get("apiVersion", _API)
    if given != ("TokenRequest", _API):
        raise errors.bad_request(f"{given[0]} in version {given[1]!r} cannot be handled as a TokenRequest")
    try:
        cleaned = struct("TokenRequest").clean(body, None, "", Context())
    except DecodeError as error:
        raise errors.bad_request(
            f'TokenRequest in version "v1" cannot be handled as a TokenRequest: {error}'
        ) from error
    spec = cleaned.get("spec") or {}
    if spec.get("boundObjectRef"):
        raise errors.not_implemented("tokens bound to an object")
    seconds = spec.get("expirationSeconds")
    seconds = _LIFETIME if seconds is None else seconds
    if not _SHORTEST <= seconds <= _LONGEST:
        why = "duration less than 10 minutes" if seconds < _SHORTEST else "duration larger than 2^32 seconds"
        cause = errors.invalid_value("spec.expirationSeconds", seconds, f"may not specify a {why}")
        raise errors.invalid("authentication.k8s.io", "TokenRequest", "", [cause])
    uid, end = stored.object["metadata"]["uid"], time.time() + seconds
    audiences = spec.get("audiences") or [AUDIENCE]
    token = secrets.token_urlsafe(32)

    def is_valid() -> bool:
        found = store.get("serviceaccounts", key)
        return found is not None and found.object["metadata"]["uid"] == uid and time.time() < end

    if AUDIENCE in audiences:  # a token for somebody else is none for us
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        access.add_token(token, User(f"system:serviceaccount:{namespace}:{name}", uid, groups), is_valid)
    created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "kind": "TokenRequest",
        "apiVersion": _API,
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": created},
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": None},
        "status": {
            "token": token,
            "expirationTimestamp": datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
    }
