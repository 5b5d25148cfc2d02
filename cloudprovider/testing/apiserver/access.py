"""Who may do what: bearer tokens, users, and the few rules that tests set. Not RBAC: a user with a
token of this server may do everything except what a `deny` rule forbids; others may do nothing but
read the paths that every cluster shows to anybody."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Final

import attrs

ANONYMOUS: Final = "system:anonymous"
_PUBLIC: Final = re.compile(r"/(healthz|livez|readyz|version)/?")


@attrs.frozen
class User:
    """An identity: `name`, `uid`, and its `groups`."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()


@attrs.frozen
class Attributes:
    """One action that may be allowed or not. For URLs beside the API set `path` and leave the
    resource empty."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


@attrs.frozen
class Rule:
    """What a `deny` rule forbids; every part that is None fits everything. Patterns must match the
    whole value.

    `resource` is `nodes`, or `nodes/status` for a subresource.
    """

    user: str | None = None
    verb: str | None = None
    resource: str | None = None
    namespace: str | None = None
    name: str | None = None
    path: str | None = None

    def fits(self, user: User, asked: Attributes) -> bool:
        """Does the rule speak of this action?"""
        resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        pairs = (
            (self.user, user.name), (self.verb, asked.verb), (self.resource, resource),
            (self.namespace, asked.namespace), (self.name, asked.name), (self.path, asked.path),
        )  # fmt: skip
        # The whole value, or a rule about "nodes" would forbid "nodes/status" too.
        return all(pattern is None or re.fullmatch(pattern, value) for pattern, value in pairs)


class Access:
    """Tokens and rules of one server. Safe from many threads; changes take effect with the next
    request."""

    def __init__(self, token: str, *, anonymous: bool = False) -> None:
        self._lock = threading.Lock()
        self._users: Mapping[str, User] = {token: User("admin", "1", ("system:masters", "system:authenticated"))}
        self._rules: tuple[Rule, ...] = ()
        self._valid: Mapping[str, Callable[[], bool]] = {}
        self.anonymous = anonymous
        """Requests without credentials are the user system:anonymous (as kube-apiserver has it by
        default) instead of 401.
        """

    def add_user(self, token: str, name: str, *, uid: str = "", groups: tuple[str, ...] = ()) -> User:
        """Accept one more bearer token."""
        user = User(name, uid, (*groups, "system:authenticated"))
        self.add_token(token, user)
        return user

    def add_token(self, token: str, user: User, is_valid: Callable[[], bool] | None = None) -> None:
        """Accept a bearer token of this user as long as `is_valid()` says so, or until it is
        revoked."""
        with self._lock:
            if is_valid is not None:
                # New mappings in place of changed ones: readers take no lock.
                self._valid = {**self._valid, token: is_valid}
            self._users = {**self._users, token: user}

    def revoke(self, token: str) -> None:
        """Accept a token no more; an unknown one is a no-op."""
        with self._lock:
            self._users = {held: user for held, user in self._users.items() if held != token}

    def deny(
        self,
        *,
        user: str | None = None,
        verb: str | None = None,
        resource: str | None = None,
        namespace: str | None = None,
        name: str | None = None,
        path: str | None = None,
    ) -> Rule:
        """Forbid an action from now on (403); give the rule to `allow_again` to lift it."""
        rule = Rule(user, verb, resource, namespace, name, path)
        with self._lock:
            self._rules = (*self._rules, rule)
        return rule

    def allow_again(self, rule: Rule | None = None) -> None:
        """Lift one deny rule, or all of them."""
        with self._lock:
            # By identity: two rules may say the same, and each is lifted by whoever set it.
            self._rules = tuple(one for one in self._rules if rule is not None and one is not rule)

    def user_of_token(self, token: str) -> User | None:
        """Whose token this is; None for an unknown token, or one that has ended."""
        user, is_valid = self._users.get(token), self._valid.get(token)
        return user if is_valid is None or is_valid() else None

    def authenticate(self, authorization: str) -> User | None:
        """The user of an Authorization header; None means 401."""
        if not authorization:
            # Only where no credentials came: wrong ones are 401 in the real server too.
            return User(ANONYMOUS, "", ("system:unauthenticated",)) if self.anonymous else None
        scheme, _, token = authorization.partition(" ")
        return self.user_of_token(token.strip()) if scheme.lower() == "bearer" else None

    def allows(self, user: User, asked: Attributes) -> bool:
        """May the user do that?"""
        # Before the administrators' group: a test takes rights away from the manager, which has
        # that.
        if self._rules and any(rule.fits(user, asked) for rule in self._rules):
            return False
        if "system:masters" in user.groups or any(user.name == known.name for known in self._users.values()):
            return True
        # What the role system:public-info-viewer grants to everybody.
        return asked.verb == "get" and _PUBLIC.fullmatch(asked.path) is not None


def explain(user: User, asked: Attributes) -> str:
    """Why a request was refused, in the real server's words."""
    if asked.path:
        return f'User "{user.name}" cannot {asked.verb} path "{asked.path}"'
    resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    scope = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    return f'User "{user.name}" cannot {asked.verb} resource "{resource}" in API group "{asked.group}" {scope}'
