"""Looks once more at load balancers that were deleted soon after this manager took over.

The manager before may have been stopped in the middle of a call, as a paused virtual machine is, or
killed while the cloud was still at work. What it asked for is then done after our deletion, and no
Service is left that would make anyone look."""

from __future__ import annotations

import copy
import logging
import math
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kubernetes.client.models.v1_object_meta import V1ObjectMeta

from cloudprovider import LoadBalancerKept
from controllers.runtime.cache import key_of, uid_of
from controllers.runtime.queue import DONE, Result
from controllers.service.decide import ObservedLoadBalancer
from controllers.service.kube import CacheBehind

if TYPE_CHECKING:
    from kubernetes.client.models.v1_service import V1Service

    from controllers.runtime.clock import Clock
    from controllers.runtime.queue import WorkQueue
    from controllers.service.cloud import ServiceCloud
    from controllers.service.kube import ServiceAPI

log = logging.getLogger(__name__)

FIRST: Final = 60.0
"""Seconds from the begin of our work in which a deletion is looked at again."""
AFTER: Final = 30.0
"""Seconds from a deletion to that look."""


class SecondLook:
    """Thread-safe. `queue` holds the UIDs of Services; its worker calls `look`."""

    def __init__(self, queue: WorkQueue[str], api: ServiceAPI, cloud: ServiceCloud, clock: Clock) -> None:
        self._queue = queue
        self._api = api
        self._cloud = cloud
        self._clock = clock
        self._lock = threading.Lock()
        self._until = -math.inf
        self._waiting: dict[str, V1Service] = {}

    def begin(self) -> None:
        """This manager's work begins now."""
        self._until = self._clock.monotonic() + FIRST

    def deleted(self, service: V1Service) -> None:
        """The cloud confirmed that the load balancer of this Service is deleted."""
        if self._clock.monotonic() >= self._until:
            return
        with self._lock:
            self._waiting[uid_of(service)] = service
        self._queue.add_after(uid_of(service), AFTER, routine=True)  # a plan has no call that comes late

    def look(self, uid: str) -> Result:
        """One unit of work: delete the load balancer again if the cloud has it again.

        Raises what the cloud or the API server answered; the Service then waits for the next try.
        """
        with self._lock:
            service = self._waiting.get(uid)
        if service is not None and self._is_gone(service) and self._is_its_own(service):
            found = self._cloud.look(service)
            if found not in (ObservedLoadBalancer.NONE, ObservedLoadBalancer.ELSEWHERE):
                if found is not ObservedLoadBalancer.UNKNOWN:
                    log.warning(
                        "the load balancer of Service %s, which is deleted, is there again: a call of the manager "
                        "before this one was carried out late; deleting it again",
                        key_of(service),
                    )
                with suppress(LoadBalancerKept):
                    self._cloud.balancers.ensure_deleted(self._cloud.cluster, service)
        with self._lock:
            self._waiting.pop(uid, None)
        return DONE

    def _is_gone(self, service: V1Service) -> bool:
        """Whether the API server has no Service of this UID; one that is there may want it."""
        try:
            self._api.prove_gone(key_of(service), uid_of(service))
        except CacheBehind:
            return False
        return True

    def _is_its_own(self, service: V1Service) -> bool:
        """Whether a new Service of the same namespace and name would have another load balancer."""
        other, name = copy.copy(service), self._cloud.balancers.name
        other.metadata = metadata = copy.copy(service.metadata or V1ObjectMeta())
        metadata.uid = f"not-{uid_of(service)}"
        return name(self._cloud.cluster, service) != name(self._cloud.cluster, other)
