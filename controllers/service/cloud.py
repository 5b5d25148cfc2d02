"""Stage 5: CALL. What every call about a load balancer has around it: the time that the cloud named
before it wants to be asked the same again, and the Event about a failure."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from attrs import evolve

from cloudprovider import (
    CloudProviderError,
    ImplementedElsewhere,
    NotImplementedByProvider,
    RetryError,
    Throttled,
)
from controllers.cloudcalls import PRIORITY_NORMAL, PRIORITY_SWEEP, CallsClosed, CloudCallError
from controllers.runtime.api import ApiError
from controllers.runtime.cache import key_of, uid_of
from controllers.runtime.queue import Parked, pending, retry_after_of
from controllers.service import changes
from controllers.service.decide import ObservedLoadBalancer
from controllers.service.targets import traits_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_service import V1Service

    from controllers.cloudcalls.capabilities import LoadBalancerCalls
    from controllers.runtime.clock import Clock
    from controllers.runtime.write import EventRecorder
    from controllers.service.records import Asked, Record, Records

log = logging.getLogger(__name__)

CLOUD_ERRORS: Final = (CloudProviderError, CloudCallError, Parked)
"""What a call to the cloud may raise."""
SAYS_LATER: Final = (RetryError, Throttled, Parked, CallsClosed)
"""Those that say "later", and nothing about what there is."""


class TooEarly(Exception):
    """The same is not to be asked of the cloud yet."""

    def __init__(self, seconds: float, *, answered: bool = False) -> None:
        """`answered`: it was asked before, and only time brings another answer."""
        super().__init__(f"{seconds:.3g} s too early")
        self.seconds = seconds
        self.answered = answered


class ServiceCloud:
    """The cloud's load balancers, as the reconciler asks for them. Thread-safe."""

    def __init__(
        self,
        balancers: LoadBalancerCalls,
        records: Records,
        recorder: EventRecorder,
        cluster_name: str,
        clock: Clock,
    ) -> None:
        self.balancers = balancers
        self.cluster = cluster_name
        self.records = records
        self.recorder = recorder
        self._clock = clock

    def not_too_early(self, record: Record, way: str, what: str = "", resting: float = 0.0) -> None:
        """Raise TooEarly while the cloud's word holds when to ask for the same again, and for as
        long as it backs off: an event is no reason to ask sooner."""
        last = record.asked.get(way)
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


class NodeTraits:
    """The provider's word for each node, as a digest, for as long as nothing changed that it may
    depend on. Asked in a thread of the provider, once for all nodes that changed. Thread-safe.

    Where the provider fails to say, the last one holds until it is asked again, and an Event on the
    node tells."""

    def __init__(self, balancers: LoadBalancerCalls, recorder: EventRecorder) -> None:
        self._balancers = balancers
        self._recorder = recorder
        self._lock = threading.Lock()
        self._known: dict[str, tuple[tuple[object, ...] | None, str]] = {}
        """By name: what it was asked about (None: it failed to say), and the digest."""

    def of(self, nodes: Sequence[V1Node]) -> tuple[Mapping[str, str], bool]:
        """The digest for each of these nodes, by name, and whether the provider said all that it
        was asked; other nodes are forgotten."""
        with self._lock:
            known = self._known
        read = {key_of(node): traits_of(node) for node in nodes}
        asked = [node for node in nodes if known.get(key_of(node), (None, ""))[0] != read[key_of(node)]]
        found = {name: known[name] for name in read if name in known}
        try:
            answers = self._balancers.target_traits(asked) if asked else []
        except CLOUD_ERRORS as error:
            answers = []
            log.warning("what load balancers depend on of %d nodes is not known: %s", len(asked), error)
        for node, answer in zip(asked, answers, strict=False):
            name = key_of(node)
            if isinstance(answer, Exception):
                found[name] = None, found.get(name, (None, ""))[1]
                what = "What load balancers depend on of this node is not known"
                self._recorder.event(node, "Warning", "TargetTraitsFailed", f"{what}: {answer}")
            else:
                digest = hashlib.sha256(answer.encode()).hexdigest()[:16] if answer else ""
                found[name] = read[name], f" {digest}" if digest else ""
        with self._lock:
            self._known = found
        whole = len(answers) == len(asked) and not any(isinstance(one, Exception) for one in answers)
        return {name: digest for name, (_, digest) in found.items()}, whole
