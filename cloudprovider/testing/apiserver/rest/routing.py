"""From a method and a path to what is asked for: kind, namespace, name, subresource, verb.

First step of every request; pure. Unknown paths of API groups that the real server has are 501, all
others 404.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

import attrs

from cloudprovider.testing.apiserver.kinds.kind import Kind


@attrs.frozen
class Target:
    """A resource request. `name` is "" for a collection, `namespace` "" for cluster scope or all
    namespaces."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


_VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def verb_of(method: str, target: Target, watching: bool) -> str:
    """The verb that RBAC would be asked about: get, list, watch, create, update, patch, delete,
    deletecollection."""
    verb = _VERBS.get(method, method.lower())
    if target.name:
        return verb
    if verb == "get":
        return "watch" if watching else "list"
    return "deletecollection" if verb == "delete" else verb


class Router:
    """Finds resources by path. Immutable after construction."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._by_prefix: dict[tuple[str, str], Kind] = {(kind.prefix, kind.plural): kind for kind in kinds}

    def kinds(self) -> list[Kind]:
        """All resources."""
        return list(self._by_prefix.values())

    def find(self, path: str) -> Target | None:
        """The resource that a path means, None if it means none of ours."""
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[0] == "api" and len(parts) >= 3:
            prefix, rest = "/api/" + parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) >= 4:
            prefix, rest = f"/apis/{parts[1]}/{parts[2]}", parts[3:]
        else:
            return None
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            return self._target(prefix, rest[1], rest[2:])
        return self._target(prefix, "", rest)

    def _target(self, prefix: str, namespace: str, rest: list[str]) -> Target | None:
        kind = self._by_prefix.get((prefix, rest[0]))
        if kind is None or len(rest) > 3 or (namespace and not kind.namespaced) or "" in rest:
            return None
        name = rest[1] if len(rest) > 1 else ""
        if name and kind.namespaced and not namespace:
            return None
        subresource = rest[2] if len(rest) > 2 else ""
        if subresource and subresource not in kind.subresources:
            return None
        return Target(kind, namespace, name, subresource)
