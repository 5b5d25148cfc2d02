"""Stage 6: WRITE. Patches of one Service, and quorum reads where the cache is no proof."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from cloudprovider.internal.backoff import Backoff
from controllers.runtime.api import ApiError, ObjectNotFound, RestClient, ServerError
from controllers.runtime.cache import (
    NODES,
    SERVICES,
    DecodeError,
    MalformedObject,
    Resource,
    list_meta,
    split_key,
    uid_of,
)
from controllers.runtime.clock import Clock, wait_for
from controllers.runtime.write import ObjectReplaced, Patch, patch
from controllers.service.cloud import TooEarly
from controllers.service.targets import Targets, targets

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_service import V1Service

    from controllers.service.classes import Classes

log = logging.getLogger(__name__)

_PROOF_LASTS = 10.0
_UID_RETRY: Final = Backoff(base=1.0, cap=30.0)
_MOMENT: Final = 0.25  # an answer takes milliseconds; at a start all workers ask together


class CacheBehind(Exception):
    """The API server has what our cache lacks. Nothing is done until they agree."""


class ServiceGone(Exception):
    """The API server has no such Service any more, or another one under its name."""


class ServiceAPI:
    """The API server for this controller. Thread-safe. Every method may raise ApiError."""

    def __init__(self, rest: RestClient, ready_only: bool, clock: Clock) -> None:
        self._rest = rest
        self._ready_only = ready_only
        self._clock = clock
        self._proved_empty = -_PROOF_LASTS

    def write(self, key: str, service: V1Service, change: Patch) -> V1Service:
        """Write a patch and return the Service as it is then; no request for an empty patch.

        Raises ServiceGone, and MalformedObject when the answer is none."""
        path = SERVICES.key_path(key, change.subresource or None)
        try:
            written = patch(
                self._rest, path, change.body, change.content_type, metadata_only=False, uid=uid_of(service)
            )
        except (ObjectNotFound, ObjectReplaced) as error:
            raise ServiceGone(str(error)) from error
        return service if written is None else SERVICES.parse(written)

    def newest(self, key: str, service: V1Service) -> V1Service:
        """The Service as the API server has it now. Raises ServiceGone, and MalformedObject."""
        for raw in self._named(key):
            if raw.get("metadata", {}).get("uid") == uid_of(service):
                return SERVICES.parse(raw)
        raise ServiceGone(f"Service {key} with UID {uid_of(service)} is not there any more")

    def prove_gone(self, key: str, uid: str) -> None:
        """Return when the API server has no Service of this key with this UID; else CacheBehind."""
        for raw in self._named(key):
            if raw.get("metadata", {}).get("uid") == uid:
                raise CacheBehind(f"Service {key} is not in our cache, but the API server has it, with UID {uid}")

    def prove_unwanted(self, key: str, service: V1Service, classes: Classes) -> None:
        """Return when the Service is being deleted, or the API server too shows that no load
        balancer of ours is wanted, nor another manager's built; else CacheBehind. Raises
        ServiceGone, and MalformedObject."""
        if service.metadata is not None and service.metadata.deletion_timestamp is not None:
            return
        newest = self.newest(key, service)
        if classes.keeps(newest):
            raise CacheBehind(f"Service {key} wants a load balancer again, but our cache does not show it yet")
        if classes.taken_over(newest):
            raise CacheBehind(f"Service {key} has another manager now, but our cache does not show it yet")

    def confirmed(self, present: Targets, *, may_be_empty: bool) -> Targets:
        """The targets, after the API server confirmed it should there be none; raise CacheBehind
        when there are some.

        A cache that is wrongly empty must not take every node out of every load balancer.
        `may_be_empty`: nothing is lost if they are.
        """
        if present.nodes or may_be_empty or self._clock.monotonic() - self._proved_empty < _PROOF_LASTS:
            return present
        nodes: list[V1Node] = []
        for raw in self._list(NODES, NODES.path(), {}):
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

    def _named(self, key: str) -> list[dict[str, Any]]:
        namespace, name = split_key(key)
        return self._list(SERVICES, SERVICES.path(namespace), {"fieldSelector": f"metadata.name={name}"})

    def _list(self, resource: Resource[Any], path: str, query: dict[str, str]) -> list[dict[str, Any]]:
        # Without a resourceVersion: etcd's quorum answers, and no other permissions are needed than
        # for the watch. A proxy's page must not pass for an empty list.
        answer = self._rest.get(path, query=query)
        try:
            list_meta(resource.kind, answer.get("kind"), answer["metadata"].get("resourceVersion"), "")
            items: list[dict[str, Any]] = answer["items"] or []
        except (DecodeError, AttributeError, KeyError, TypeError) as error:
            raise ServerError(f"the answer is no {resource.kind}List", status=200, method="GET", path=path) from error
        return items


class KubeSystemUID:
    """The UID of the namespace kube-system, which tells clusters apart. Thread-safe.

    It is part of what is remembered on every Service. A guess that turns out wrong would have every
    load balancer ensured, now and once more at the next start. So without a definite answer no load
    balancer is built or changed, and it is asked for again: by one reconcile at a time, while the
    others wait a moment for its answer, then without a worker.

    `ask` returns it, or None where it may not be read, raises ApiError if unsure."""

    def __init__(self, ask: Callable[[], str | None], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = threading.Lock()
        self._asked = threading.Condition(self._lock)
        self._known: str | None = None
        self._asking = False
        self._failures = 0
        self._next = 0.0
        self._error = ""

    def get(self) -> str:
        """The UID; "" where it may not be read. Raises TooEarly while the answer is awaited."""
        with self._lock:
            if self._asking:
                wait_for(self._clock, self._asked, lambda: not self._asking, _MOMENT)
            if self._known is not None:
                return self._known
            left = self._next - self._clock.monotonic()
            if self._asking or left > 0:
                raise TooEarly(max(left, _UID_RETRY.base))
            self._asking = True
        try:
            known = self._ask() or ""
            with self._lock:
                self._known, self._error = known, ""
        except ApiError as error:
            raise TooEarly(self._failed(error)) from error
        finally:
            with self._lock:
                self._asking = False
                self._asked.notify_all()
        if self._failures:
            log.info("the namespace kube-system was read; load balancers are now built and changed")
        return known

    def missing(self) -> str:
        """What keeps it unknown; empty when it is known, or was not asked for yet."""
        with self._lock:
            return self._error

    def _failed(self, error: ApiError) -> float:
        with self._lock:
            wait = _UID_RETRY.delay(self._failures)
            self._failures += 1
            self._next = self._clock.monotonic() + wait
            self._error = f"namespace kube-system could not be read (attempt {self._failures}): {error}"
            log.warning(
                "no load balancer is built or changed until the cluster's identity is known: %s; retrying in %.3g s",
                self._error,
                wait,
            )
            return wait
