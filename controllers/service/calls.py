"""Stages 5 and 6: CALL and WRITE. `ServiceCloud`: what every call about a load balancer has around
it, the time that the cloud named before it wants to be asked the same again, and the Event about a
failure. `ServiceAPI`: patches of one Service, and quorum reads where the cache is no proof."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from attrs import evolve

from cloudprovider import ImplementedElsewhere, NotImplementedByProvider, RetryError, Throttled
from cloudprovider.internal.backoff import Backoff
from controllers.cloudcalls import CLOUD_ERRORS, PRIORITY_NORMAL, PRIORITY_SWEEP, CallsClosed
from controllers.runtime.api import ApiError, ObjectNotFound, RestClient
from controllers.runtime.cache import NODES, SERVICES, MalformedObject, key_of, quorum_list, uid_of
from controllers.runtime.clock import Clock, wait_for
from controllers.runtime.queue import Parked, pending, retry_after_of
from controllers.runtime.write import ObjectReplaced, Patch, patch
from controllers.service import changes
from controllers.service.changes import Scope
from controllers.service.decide import ObservedLoadBalancer
from controllers.service.targets import Targets, targets

if TYPE_CHECKING:
    from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
    from kubernetes.client.models.v1_service import V1Service

    from controllers.cloudcalls.capabilities import LoadBalancerCalls
    from controllers.runtime.write import EventRecorder
    from controllers.service.changes import Classes
    from controllers.service.records import Asked, Record, Records

log = logging.getLogger(__name__)

SAYS_LATER: Final = (RetryError, Throttled, Parked, CallsClosed)
"""Those that say "later", and nothing about what there is."""
_PROOF_LASTS = 10.0
_UID_RETRY: Final = Backoff(base=1.0, cap=30.0)
_MOMENT: Final = 0.25  # an answer takes milliseconds; at a start all workers ask together


class TooEarly(Exception):
    """The same is not to be asked of the cloud yet."""

    def __init__(self, seconds: float, *, answered: bool = False) -> None:
        """`answered`: it was asked before, and only time brings another answer."""
        super().__init__(f"{seconds:.3g} s too early")
        self.seconds = seconds
        self.answered = answered


class CacheBehind(Exception):
    """The API server has what our cache lacks. Nothing is done until they agree."""


class ServiceGone(Exception):
    """The API server has no such Service any more, or another one under its name."""


class ServiceCloud:
    """The cloud's load balancers, as the reconciler asks for them. Thread-safe."""

    def __init__(
        self,
        balancers: LoadBalancerCalls,
        records: Records,
        recorder: EventRecorder,
        cluster_name: str,
        identity: KubeSystemUID,
        clock: Clock,
    ) -> None:
        self.balancers = balancers
        self.has_depends_on = balancers.has_hook("depends_on")
        """Whether the provider has a word for what else a load balancer depends on."""
        self.cluster = cluster_name
        self.records = records
        self.recorder = recorder
        self._identity = identity
        self._clock = clock

    def scope(self) -> Scope:
        """What all load balancers of the cluster depend on. Raises TooEarly while that is not
        known, and what the cloud answered."""
        return Scope(self.cluster, self._identity.get(), self.balancers.revision())

    def not_too_early(self, record: Record, way: str, what: str = "", resting: float = 0.0) -> None:
        """Raise TooEarly while the cloud's word holds when to ask for the same again, and for as
        long as it backs off: an event is no reason to ask sooner."""
        last = record.asked.get(way)
        # Another question (another spec, other targets) need not wait for the end of this one.
        if last is not None and last.what == what:
            left = max(resting, last.not_before - self._clock.monotonic())
            if left > 0:
                raise TooEarly(left, answered=True)

    @contextmanager
    def delays(self, key: str, record: Record, way: str) -> Iterator[None]:
        """Around a call that changes the cloud: remember that it failed, and when to ask the same
        again."""
        try:
            yield
        except CLOUD_ERRORS as error:
            not_before = self._clock.monotonic() + (retry_after_of(error) or 0.0)
            asked = {**record.asked, way: evolve(record.asked[way], not_before=not_before, failed=True)}
            self.records.put(key, evolve(record, asked=asked))
            raise

    def asking(self, record: Record, way: str) -> Asked:
        """What is about to be asked of the cloud, and since when."""
        return record.asking(way, self._clock.monotonic())[way]

    def look(self, service: V1Service, *, sweep: bool = False) -> V1LoadBalancerStatus | ObservedLoadBalancer:
        """What the cloud has. When the look fails, tells the Service's owner and raises."""
        try:
            found = self.balancers.get(self.cluster, service, priority=PRIORITY_SWEEP if sweep else PRIORITY_NORMAL)
        # Another controller builds it: there is nothing of ours to repair or to delete.
        except ImplementedElsewhere:
            return ObservedLoadBalancer.ELSEWHERE
        except NotImplementedByProvider:
            return ObservedLoadBalancer.UNKNOWN
        except CLOUD_ERRORS as error:
            self.failed(
                service,
                "SyncLoadBalancerFailed",
                "Error syncing load balancer: failed to read it from the cloud",
                error,
            )
            raise
        return ObservedLoadBalancer.NONE if found is None else found

    def name(self, service: V1Service) -> str:
        """The load balancer's name; "" where the provider fails to say, which harms no call."""
        try:
            return self.balancers.name(self.cluster, service)
        except (Parked, CallsClosed):
            raise  # no second call beside one that has not ended
        except CLOUD_ERRORS as error:
            log.debug("the name of the load balancer of Service %s: %s", key_of(service), error)
            return ""

    def depends_on(self, service: V1Service) -> str:
        """What else its load balancer depends on. When the provider fails to say, tells the
        Service's owner and raises."""
        try:
            return self.balancers.depends_on(service)
        except CLOUD_ERRORS as error:
            what = "Error syncing load balancer: the provider failed to say what it depends on"
            self.failed(service, "SyncLoadBalancerFailed", what, error)
            raise

    def naming_annotations(self, service: V1Service) -> dict[str, str]:
        """The annotations of a Service whose load balancer's name depends on some of them; else
        none."""
        annotations = changes.provider_annotations(service)
        name = self.name(service) if annotations else ""
        return annotations if name and self.name(changes.annotated(service, {})) != name else {}

    def former_services(self, service: V1Service) -> list[V1Service]:
        """As which Services, by our note on this one, there may be load balancers of other names
        than its present one. Without status: whose address it shows is not known."""
        note = changes.own_note(service)
        if note is None or not (note.annotations or changes.provider_annotations(service)):
            return []
        found: dict[str, V1Service] = {}
        for noted in note.annotations or ({},):  # none noted: no name depended on them then
            former = changes.annotated(service, noted)
            found[self.name(former)] = changes.with_status(former, None)
        # A name that the provider failed to say proves nothing; the present one is no former one.
        for name in ("", self.name(service)):
            found.pop(name, None)
        return list(found.values())

    def shows_none(self, service: V1Service) -> bool:
        """Whether the cloud says, after a failed deletion, that there is none. A look that fails
        says nothing; the deletion's error counts."""
        try:
            return self.balancers.get(self.cluster, service, priority=PRIORITY_NORMAL) is None
        except CLOUD_ERRORS as error:
            log.debug("Service %s: could not check the cloud after a failed deletion: %s", uid_of(service), error)
            return False

    @contextmanager
    def reporting(self, service: V1Service, what: str) -> Iterator[None]:
        """Around a write to the Service: an Event says what the API server refused."""
        try:
            yield
        except ApiError as error:
            self.failed(service, "SyncLoadBalancerFailed", f"Error syncing load balancer: {what}", error)
            raise

    def failed(self, service: V1Service, reason: str, what: str, error: Exception) -> None:
        """Tell the Service's owner; a cloud that is still at work has not failed (`waiting`)."""
        if isinstance(error, CallsClosed):
            return  # the manager stops, which is no failure of this Service
        if isinstance(error, RetryError):
            log.debug("Service %s: %s: %s", uid_of(service), what, error)
            return
        self.recorder.event(service, "Warning", reason, f"{what}: {error}")

    def waiting(self, key: str, service: V1Service | None, error: RetryError, long: bool) -> None:
        """Tell the Service's owner what the cloud is at work on, and that it takes long."""
        record = self.records.get(key)
        about = service if service is not None or record is None else record.service
        if about is not None:
            kind, message = pending("the load balancer", error, long)
            self.recorder.event(about, kind, "LoadBalancerPending", message)


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
        # Deleted, or created again under its name: what was worked out for it is void.
        except (ObjectNotFound, ObjectReplaced) as error:
            raise ServiceGone(str(error)) from error
        return service if written is None else SERVICES.parse(written)

    def newest(self, key: str, service: V1Service) -> V1Service:
        """The Service as the API server has it now. Raises ServiceGone, and MalformedObject."""
        for raw in quorum_list(self._rest, SERVICES, dict, key):
            if raw.get("metadata", {}).get("uid") == uid_of(service):
                return SERVICES.parse(raw)
        raise ServiceGone(f"Service {key} with UID {uid_of(service)} is not there any more")

    def prove_gone(self, key: str, uid: str) -> None:
        """Return when the API server has no Service of this key with this UID; else CacheBehind."""
        for raw in quorum_list(self._rest, SERVICES, dict, key):
            if raw.get("metadata", {}).get("uid") == uid:
                raise CacheBehind(f"Service {key} is not in our cache, but the API server has it, with UID {uid}")

    def prove_unwanted(self, key: str, service: V1Service, classes: Classes) -> None:
        """Return when the Service is being deleted, or the API server too shows that no load
        balancer of ours is wanted, nor another manager's built; else CacheBehind. Raises
        ServiceGone, and MalformedObject."""
        # A deletion is never taken back: a cache that shows one is proof enough.
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
        try:
            found = targets(quorum_list(self._rest, NODES, NODES.parse), self._ready_only).nodes
        except MalformedObject as error:
            message = f"our cache has no target, and a node of the API server is unreadable: {error}"
            raise CacheBehind(message) from error
        if found:
            raise CacheBehind(f"our cache has no target for load balancers, but the API server has {len(found)}")
        # One list of all nodes serves the whole burst: at a start hundreds of Services ask for it.
        self._proved_empty = self._clock.monotonic()
        return present


class KubeSystemUID:
    """The UID of the namespace kube-system, which tells clusters apart. Thread-safe.

    It is part of what is remembered on every Service. A guess that turns out wrong would have every
    load balancer ensured, now and again at the next start. So without a definite answer no load
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
        self.missing = ""
        """What keeps it unknown; empty when it is known, or was not asked for yet."""

    def get(self) -> str:
        """The UID; "" where it may not be read. Raises TooEarly while the answer is awaited."""
        with self._lock:
            if self._asking:
                wait_for(self._clock, self._asked, lambda: not self._asking, _MOMENT)
            if self._known is not None:
                return self._known
            left = self._next - self._clock.monotonic()
            # Not in the worker: deletions need no identity, and must not wait behind what does.
            if self._asking or left > 0:
                raise TooEarly(max(left, _UID_RETRY.base))
            self._asking = True
        try:
            # Where it may not be read it stays unknown: no retry changes that.
            known = self._ask() or ""
            with self._lock:
                self._known, self.missing = known, ""
        except ApiError as error:
            raise TooEarly(self._failed(error)) from error
        finally:
            with self._lock:
                self._asking = False
                self._asked.notify_all()
        if self._failures:
            log.info("the namespace kube-system was read; load balancers are now built and changed")
        return known

    def _failed(self, error: ApiError) -> float:
        with self._lock:
            wait = _UID_RETRY.delay(self._failures)
            self._failures += 1
            self._next = self._clock.monotonic() + wait
            self.missing = f"namespace kube-system could not be read (attempt {self._failures}): {error}"
            log.warning(
                "no load balancer is built or changed until the cluster's identity is known: %s; retrying in %.3g s",
                self.missing,
                wait,
            )
            return wait
