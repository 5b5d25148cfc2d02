"""May this user read that path? Open paths, system:masters, for the rest the API server's answer.

The API server is asked by a SubjectAccessReview about the path (a nonResourceURL of RBAC), in the
order of k8s.io/apiserver: always allowed group, always allowed paths, review."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from cloudprovider.internal.cleaning import text_of
from controllers.endpoints.authentication import User
from controllers.endpoints.reviews import NeedsLookup, Remembered, Reviewer
from controllers.runtime.api import ApiError
from controllers.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

MASTERS: Final = "system:masters"


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
            self._known.put(key, known, self._ttls[known])
        return known
