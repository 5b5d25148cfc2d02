"""Stage 6, and proof for stage 4: writes to one Service, and questions to the API server where the cache is no proof.

Used by the reconciler. Questions are lists without a resourceVersion, which etcd's quorum answers, and which need no
other right than the watch does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controllers.runtime.api import NotFound
from controllers.runtime.cache import NODES, SERVICES, MalformedObject, split_key, uid_of
from controllers.runtime.write import ObjectReplaced, patch
from controllers.service.targets import Targets, targets

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_service import V1Service

    from controllers.runtime.api import RestClient
    from controllers.runtime.clock import Clock
    from controllers.runtime.write import Patch

_PROOF_LASTS = 10.0


class CacheBehind(Exception):
    """The API server has what our cache lacks. Nothing is done until they agree."""


class ServiceGone(Exception):
    """The API server has no such Service any more, or another one under its name."""


class ServiceAPI:
    """The API server as the service controller needs it. Thread-safe. Every method may raise ApiError."""

    def __init__(self, rest: RestClient, ready_only: bool, clock: Clock) -> None:
        self._rest = rest
        self._ready_only = ready_only
        self._clock = clock
        self._proved_empty = -_PROOF_LASTS

    def write(self, key: str, service: V1Service, change: Patch) -> V1Service:
        """Write a patch and return the Service as it is then; without a request where the patch is empty.

        Raises ServiceGone, and MalformedObject when the answer is none.
        """
        path = SERVICES.key_path(key, change.subresource or None)
        try:
            written = patch(
                self._rest, path, change.body, change.content_type, metadata_only=False, uid=uid_of(service)
            )
        except ObjectReplaced as error:
            raise ServiceGone(str(error)) from error
        except NotFound as error:
            if error.details.get("name") != split_key(key)[1]:
                raise  # a proxy's 404, say: it proves nothing about the Service
            raise ServiceGone(str(error)) from error
        return service if written is None else SERVICES.parse(written)

    def prove_gone(self, key: str, uid: str) -> None:
        """Return when the API server has no Service of this key with this UID; raise CacheBehind when it has."""
        namespace, name = split_key(key)
        for raw in self._list(SERVICES.path(namespace), {"fieldSelector": f"metadata.name={name}"}):
            if raw.get("metadata", {}).get("uid") == uid:
                raise CacheBehind(f"Service {key} is not in our cache, but the API server has it, with UID {uid}")

    def confirmed(self, present: Targets, *, may_be_empty: bool) -> Targets:
        """The targets, after the API server confirmed it should there be none; raise CacheBehind when there are some.

        A cache that is wrongly empty must not take every node out of every load balancer. `may_be_empty`: nothing is
        lost if they are.
        """
        if present.nodes or may_be_empty or self._clock.monotonic() - self._proved_empty < _PROOF_LASTS:
            return present
        nodes: list[V1Node] = []
        for raw in self._list(NODES.path(), {}):
            try:
                nodes.append(NODES.parse(raw))
            except MalformedObject as error:
                raise CacheBehind(
                    f"our cache has no target, and a node of the API server is unreadable: {error}"
                ) from error
        found = targets(nodes, self._ready_only).nodes
        if found:
            raise CacheBehind(f"our cache has no target for load balancers, but the API server has {len(found)}")
        self._proved_empty = self._clock.monotonic()
        return present

    def _list(self, path: str, query: dict[str, str]) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self._rest.get(path, query=query).get("items") or []
        return items
