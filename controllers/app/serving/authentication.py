"""Who asks: a client certificate, a bearer token, or anonymous.

Stage: beside all of them. Data comes from a request's certificate (checked in the handshake, `tls.py`) or its token,
which the API server is asked about by a TokenReview; a user goes to `authorization.py`. Certificate before token, no
credentials is anonymous, and wrong ones are refused, on open paths too: as k8s.io/apiserver does (authenticatorfactory,
request/bearertoken, request/x509). Tokens are neither kept nor logged: what is remembered has a keyed hash for a name.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping
from typing import Any, Final

import attrs

from controllers.app.serving.http1 import Certificate, Request
from controllers.app.serving.reviews import AskFirst, Remembered, Reviewer
from controllers.runtime.api import ApiError
from controllers.runtime.cleaning import text_of
from controllers.runtime.clock import SYSTEM_CLOCK, Clock

__all__ = ["ANONYMOUS", "Authentication", "Unauthenticated", "User", "bearer_token", "user_of_certificate"]

log = logging.getLogger(__name__)

AUTHENTICATED: Final = "system:authenticated"


@attrs.frozen
class User:
    """An identity, as the API server's reviews have it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


ANONYMOUS: Final = User("system:anonymous", groups=("system:unauthenticated",))


class Unauthenticated(Exception):
    """The credentials are wrong, or could not be checked."""


class Authentication:
    """Thread-safe. Without a `reviewer` no token is accepted."""

    def __init__(self, reviewer: Reviewer | None, ttl: float, clock: Clock = SYSTEM_CLOCK) -> None:
        """`ttl`: seconds for which the API server's word about a token counts, whatever it is."""
        self._reviewer = reviewer
        self._ttl = ttl
        self._secret = secrets.token_bytes(32)
        self._known: Remembered[bytes, User | Unauthenticated] = Remembered(clock)

    def user(self, request: Request, *, ask: bool) -> User:
        """Who sent this request. Raises Unauthenticated, and AskFirst when only the API server knows and not `ask`."""
        if request.certificate is not None:
            user = user_of_certificate(request.certificate)
            if user is not None:
                return user
        token = bearer_token(request.headers.get("authorization", ""))
        return ANONYMOUS if token is None else self._owner(token, ask)

    def _owner(self, token: str, ask: bool) -> User:
        key = hmac.digest(self._secret, token.encode("latin-1"), hashlib.sha256)
        found = self._known.get(key)
        if found is None:
            if self._reviewer is None:
                raise Unauthenticated("tokens are not accepted")
            if not ask:
                raise AskFirst
            try:
                status = self._reviewer.ask({"token": token})
            except ApiError as error:  # no answer, so nothing to remember
                log.debug("a token could not be checked, so the request is refused: %s", text_of(error))
                raise Unauthenticated("the token could not be checked") from None
            found = _user_of(status) or Unauthenticated("the token is not valid")
            self._known.put(key, found, self._ttl)
        if isinstance(found, Unauthenticated):
            raise Unauthenticated(str(found))
        return found


def bearer_token(header: str) -> str | None:
    """The token of an Authorization header; None for what is none, which counts as no credentials at all."""
    scheme, _, rest = header.strip().partition(" ")
    if scheme.lower() != "bearer":
        return None
    return rest.partition(" ")[0] or None


def user_of_certificate(certificate: Certificate) -> User | None:
    """The common name is the user, the organizations are the groups; None without a common name."""
    parts = [pair for relative in certificate.get("subject", ()) for pair in relative]
    names = [value for kind, value in parts if kind == "commonName"]
    if not names or not names[-1]:
        return None
    groups = [value for kind, value in parts if kind == "organizationName"]
    return User(names[-1], groups=tuple(dict.fromkeys([*groups, AUTHENTICATED])))


def _user_of(status: Mapping[str, Any]) -> User | None:
    described = status.get("user")
    if status.get("authenticated") is not True or not isinstance(described, dict):
        return None
    name = described.get("username")
    if not isinstance(name, str) or not name:
        return None
    groups = [str(group) for group in described.get("groups") or ()]
    extra = described.get("extra") or {}
    return User(
        name,
        str(described.get("uid") or ""),
        tuple(dict.fromkeys([*groups, AUTHENTICATED])),
        tuple((str(key), tuple(str(value) for value in values or ())) for key, values in sorted(extra.items())),
    )
