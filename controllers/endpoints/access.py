"""Who asks (a client certificate, a bearer token, or anonymous), whether they may, and the
cluster's CA of client certificates.

Certificate before token, no credentials is anonymous, and wrong ones are refused, on open paths
too, as in k8s.io/apiserver. A TokenReview checks a token; answers are remembered under a keyed
hash, and tokens are neither kept nor logged. About tokens that were never good the API server is
asked only so often: anybody may invent them. What a user may read is asked by a
SubjectAccessReview about the path (a nonResourceURL of RBAC), in the order of k8s.io/apiserver:
always allowed group, always allowed paths, review."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from cloudprovider.internal.cleaning import text_of
from controllers.endpoints.reviews import LOOKUP_RULE, NeedsLookup, Remembered, Reviewer
from controllers.httpserver.messages import Certificate, Request, group_of
from controllers.runtime.api import ApiError, Forbidden, NotFound, RestClient
from controllers.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

AUTHENTICATED: Final = "system:authenticated"
MASTERS: Final = "system:masters"
CONFIG_MAP: Final = LOOKUP_RULE.names[0]
PATH: Final = f"/api/v1/namespaces/kube-system/configmaps/{CONFIG_MAP}"
REFRESH_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 10.0
_TIMEOUT: Final = 5.0
_OF_ALL: Final = (20.0, 100)  # unknown tokens a second, and at once
_OF_A_PEER: Final = (2.0, 20)
_PEERS: Final = 1024
_GOOD_SECONDS: Final = 3600.0  # for which a token that was good is asked about whenever that is due


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


class TooManyTokens(Exception):
    """So many unknown tokens have come recently that the API server is not asked about this one."""


class _Pace:
    """How many unknown tokens are asked about, of each peer and of all. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._all = 0.0  # when what was asked would be paid off at the allowed rate
        self._peers: OrderedDict[bytes, float] = OrderedDict()

    def allows(self, peer: bytes) -> bool:
        """Whether one more may be asked about now; then it counts."""
        now = self._clock.monotonic()
        with self._lock:
            every, own = max(self._all, now), max(self._peers.get(peer, now), now)
            for paid, (rate, burst) in ((every, _OF_ALL), (own, _OF_A_PEER)):
                if paid - now > (burst - 1) / rate:
                    return False
            self._all = every + 1 / _OF_ALL[0]
            self._peers[peer] = own + 1 / _OF_A_PEER[0]
            self._peers.move_to_end(peer)
            if len(self._peers) > _PEERS:
                # The one that was silent longest: what it asked for is paid off by now.
                self._peers.popitem(last=False)
            return True


class Authentication:
    """Thread-safe. Without a `reviewer` no token is accepted."""

    def __init__(self, reviewer: Reviewer | None, ttl: float, clock: Clock = SYSTEM_CLOCK) -> None:
        """`ttl`: seconds for which the API server's word about a token counts, whatever it is."""
        self._reviewer = reviewer
        self._ttl = ttl
        self._secret = secrets.token_bytes(32)
        self._known: Remembered[bytes, User | Unauthenticated] = Remembered(clock)
        self._good: Remembered[bytes, bool] = Remembered(clock)
        self._pace = _Pace(clock)

    def user(self, request: Request, *, ask: bool) -> User:
        """Who sent this request. Raises Unauthenticated, and NeedsLookup when only the API server
        knows and not `ask`.

        Raises TooManyTokens where it would be asked about too many unknown ones."""
        # As in k8s.io/apiserver: a certificate counts before a token.
        if request.certificate is not None:
            user = user_of_certificate(request.certificate)
            if user is not None:
                return user
        token = bearer_token(request.headers.get("authorization", ""))
        return ANONYMOUS if token is None else self._owner(token, ask, group_of(request.peer))

    def _owner(self, token: str, ask: bool, peer: bytes) -> User:
        # The token itself is kept nowhere, and without the key nobody can try tokens on the digest.
        key = hmac.digest(self._secret, token.encode("latin-1"), hashlib.sha256)
        found = self._known.get(key)
        if found is None:
            if self._reviewer is None:
                raise Unauthenticated("tokens are not accepted")
            if not ask:
                raise NeedsLookup
            # Guesses of strangers must not use up the questions for tokens that were good.
            if not self._good.get(key) and not self._pace.allows(peer):
                raise TooManyTokens
            try:
                status = self._reviewer.ask({"token": token})
            except ApiError as error:  # no answer, so nothing to remember
                log.debug("a token could not be checked, so the request is refused: %s", text_of(error))
                raise Unauthenticated("the token could not be checked") from None
            # A no is remembered as well: the same wrong token would be a question each time.
            found = _user_of(status) or Unauthenticated("the token is not valid")
            self._known.put(key, found, self._ttl)
            if isinstance(found, User):
                self._good.put(key, True, _GOOD_SECONDS)
        if isinstance(found, Unauthenticated):
            raise Unauthenticated(str(found))
        return found


def bearer_token(header: str) -> str | None:
    """The token of an Authorization header; None for none, as without credentials."""
    scheme, _, rest = header.strip().partition(" ")
    # Another scheme, Basic say, is no credential here, as in k8s.io/apiserver.
    if scheme.lower() != "bearer":
        return None
    return rest.partition(" ")[0] or None


def user_of_certificate(certificate: Certificate) -> User | None:
    """The common name is the user, the organizations are the groups; None without a common name."""
    parts = [pair for relative in certificate.get("subject", ()) for pair in relative]
    names = [value for kind, value in parts if kind == "commonName"]
    if not names or not names[-1]:
        return None
    # kube-apiserver reads the groups of a user from the organizations, too.
    groups = [value for kind, value in parts if kind == "organizationName"]
    # Of several common names the last one counts, as in crypto/x509.
    return User(names[-1], groups=tuple(dict.fromkeys([*groups, AUTHENTICATED])))


def _user_of(status: Mapping[str, Any]) -> User | None:
    described = status.get("user")
    # A wrong token is answered with 201 as well: this field alone is a yes.
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


class Undecided(Exception):
    """The API server did not say."""


class Authorization:
    """Thread-safe. Without a `reviewer` only what is open or asked by system:masters is allowed."""

    def __init__(
        self,
        reviewer: Reviewer | None,
        open_paths: Sequence[str],
        allowed_ttl: float,
        denied_ttl: float,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`open_paths` may end with *. A yes and a no are kept for their `ttl` seconds."""
        self._reviewer = reviewer
        trimmed = [path.removeprefix("/") for path in open_paths]
        self._open = frozenset(path for path in trimmed if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in trimmed if path.endswith("*"))
        self._ttls = {True: allowed_ttl, False: denied_ttl}
        self._known: Remembered[tuple[User, str, str], bool] = Remembered(clock)

    def is_open(self, path: str) -> bool:
        """Whether everybody may read this path."""
        path = path.removeprefix("/")
        return path in self._open or any(path.startswith(prefix) for prefix in self._prefixes)

    def may(self, user: User, verb: str, path: str, *, ask: bool) -> bool:
        """Whether this user may, whatever is open.

        Raises Undecided, and NeedsLookup when only the API server knows and not `ask`.
        """
        # As in k8s.io/apiserver: about administrators of the cluster nobody is asked.
        if MASTERS in user.groups:
            return True
        if self._reviewer is None:
            return False
        key = (user, verb, path)
        known = self._known.get(key)
        if known is None:
            if not ask:
                raise NeedsLookup
            spec: dict[str, Any] = {
                "user": user.name,
                "groups": list(user.groups),
                "nonResourceAttributes": {"verb": verb, "path": path},
            }
            if user.uid:
                spec["uid"] = user.uid
            if user.extra:
                spec["extra"] = {name: list(values) for name, values in user.extra}
            try:
                known = self._reviewer.ask(spec).get("allowed") is True
            except ApiError as error:
                reason = text_of(error)
                log.debug("it is not known whether %s may %s %s: %s", text_of(user.name), verb, path, reason)
                raise Undecided(reason) from None
            # A no is kept as well: a probe without the right would be a question each time.
            self._known.put(key, known, self._ttls[known])
        return known


class ClusterCA:
    """The cluster's own CA of client certificates, from the ConfigMap that kube-apiserver keeps up
    to date; asked for at most once a minute, the last known one in between.

    Used where there is no `--client-ca-file`; where it cannot be read, HTTPS is served without
    client certificates. `quiet`: what cannot be read is no warning. Follows k8s.io/apiserver
    options/authentication.go."""

    name = f"ConfigMap kube-system/{CONFIG_MAP}"

    def __init__(self, rest: RestClient, *, quiet: bool = False, clock: Clock = SYSTEM_CLOCK) -> None:
        self._rest = rest
        self._quiet = quiet
        self._clock = clock
        self._known = b""
        self._next = float("-inf")
        self._logged = ""
        self._refusals = 0

    def read(self) -> bytes:
        """The present CA, as far as known; asks the API server when that is due. Never raises."""
        now = self._clock.monotonic()
        if now < self._next:
            return self._known
        # Set before the request: while it fails, not every handshake asks again.
        self._next = now + RETRY_SECONDS
        try:
            found = self._rest.get(PATH, timeout=_TIMEOUT)
            self._known = str((found.get("data") or {}).get("client-ca-file", "")).encode()
        except NotFound:
            # An answer, not an outage: what was trusted before is trusted no longer.
            self._known, self._refusals = b"", 0
            self._tell("there is none, so this cluster has no CA of client certificates")
        except Forbidden:
            # An API server that has just started has not read the roles, and refuses everybody.
            self._refusals += 1
            if self._refusals > 1:
                self._tell(f"missing permission: {LOOKUP_RULE.fix()}")
        except ApiError as error:
            # An API server that is away takes no trust away.
            log.debug("%s cannot be read now: %s", self.name, text_of(error))
            return self._known
        else:
            self._next = now + REFRESH_SECONDS
            self._logged = ""
            self._refusals = 0
        return self._known

    def _tell(self, problem: str) -> None:
        self._next = self._clock.monotonic() + REFRESH_SECONDS
        # Asked about each minute, told once: it is the same until somebody changes the roles.
        if problem != self._logged:
            self._logged = problem
            log.log(
                logging.INFO if self._quiet else logging.WARNING,
                "client certificates are not accepted: %s: %s. Other ways: --client-ca-file, "
                "--authentication-skip-lookup",
                self.name,
                problem,
            )
