"""Stage: beside all. Load balancers in the cloud that are no Service's.

One that this manager deleted soon after it took over may be there again: the manager before may
have been stopped in the middle of a call, which the cloud carries out late. It is deleted again.
Those that the provider lists as this cluster's are compared with the Services, and only reported:
another cluster with the same name and account may own them."""

from __future__ import annotations

import logging
import math
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cloudprovider import LoadBalancerKept, OwnedLoadBalancer
from cloudprovider.helpers import wants_load_balancer
from controllers.cloudcalls import CallsClosed
from controllers.runtime.cache import Lister, key_of, uid_of
from controllers.runtime.queue import DONE, Parked, Result
from controllers.runtime.write import Reference
from controllers.service.classes import WITHOUT_CLASS, Classes, Ownership
from controllers.service.cloud import CLOUD_ERRORS, ServiceCloud
from controllers.service.decide import ObservedLoadBalancer
from controllers.service.kube import CacheBehind, ServiceAPI

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from kubernetes.client.models.v1_service import V1Service

    from controllers.runtime.clock import Clock
    from controllers.runtime.queue import WorkQueue
    from controllers.service.metrics import ServiceMetrics

log = logging.getLogger(__name__)

KUBE_SYSTEM = Reference("Namespace", "kube-system")
"""Events about the whole cluster are on this namespace, as it outlives every Service."""
FIRST: Final = 60.0
"""Seconds from the begin of our work in which a deletion is checked again."""
AFTER: Final = 30.0
"""Seconds from a deletion to that check."""
CONFIRM_AFTER: Final = 60.0
"""Seconds, at most, between the search that first lists an orphan and the one that confirms it."""
_MOST_NAMED: Final = 10


class Orphans:
    """`queue` holds the UIDs of Services whose load balancer was deleted; its worker calls
    `delete_again`. Thread-safe, but for `search`: one thread at a time."""

    def __init__(
        self,
        queue: WorkQueue[str],
        lister: Lister[V1Service],
        api: ServiceAPI,
        cloud: ServiceCloud,
        metrics: ServiceMetrics,
        clock: Clock,
        confirm_after: float = CONFIRM_AFTER,
        classes: Classes = WITHOUT_CLASS,
    ) -> None:
        self._queue = queue
        self._lister = lister
        self._api = api
        self._cloud = cloud
        self._metrics = metrics
        self._clock = clock
        self._confirm_after = confirm_after
        self._classes = classes
        self._lock = threading.Lock()
        self._until = -math.inf
        self._deleted: dict[str, V1Service] = {}
        self._suspects: frozenset[OwnedLoadBalancer] = frozenset()
        self._reported: frozenset[OwnedLoadBalancer] = frozenset()

    def begin(self) -> None:
        """This manager's work begins now."""
        self._until = self._clock.monotonic() + FIRST

    def deleted(self, service: V1Service) -> None:
        """The cloud confirmed that the load balancer of this Service is deleted."""
        if self._clock.monotonic() >= self._until:
            return
        with self._lock:
            self._deleted[uid_of(service)] = service
        self._queue.add_after(uid_of(service), AFTER, routine=True)  # a plan has no call that comes late

    def delete_again(self, uid: str) -> Result:
        """One unit of work: delete the load balancer if the cloud has it again.

        Raises what the cloud or the API server answered; the Service then waits for the next try.
        """
        with self._lock:
            service = self._deleted.get(uid)
        if service is not None and self._is_nobodys(service):
            found = self._cloud.look(service)
            # Where the provider cannot say what there is, to delete what is not there does no harm.
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
            self._deleted.pop(uid, None)
        return DONE

    def _is_nobodys(self, service: V1Service) -> bool:
        """Whether the API server has no Service of this UID, which may want it, and a new one of
        its namespace and name, which may come at any time, would have another load balancer."""
        try:
            self._api.prove_gone(key_of(service), uid_of(service))
        except CacheBehind:
            return False
        metadata = service.metadata
        assert metadata is not None, "it has a UID"
        other = metadata.model_copy(update={"uid": f"not-{uid_of(service)}"})
        return self._name(service) != self._name(service.model_copy(update={"metadata": other}))

    def search(self) -> float | None:
        """Compare what the provider lists with the Services, and report what is new. What one
        search sees the next must confirm, as load balancers and Services come and go meanwhile.

        Returns the seconds after which to search again, where the cloud did not answer, or to
        confirm what was seen for the first time; else None.
        """
        try:
            owned = self._cloud.balancers.owned(self._cloud.cluster)
            found = frozenset(orphans(owned, self._lister.list(), self._names, self._classes))
        except CLOUD_ERRORS as error:
            self._metrics.orphan_errors.inc()
            log.warning("searching for load balancers without a Service failed: %s: %s", type(error).__name__, error)
            return self._confirm_after
        confirmed = found & self._suspects
        self._suspects = found
        self._metrics.orphans.set(len(confirmed))
        if confirmed - self._reported:
            self._report(sorted(confirmed, key=lambda orphan: orphan.name))
        elif self._reported and not confirmed:
            log.info("every load balancer has a Service again")
        self._reported = confirmed
        return self._confirm_after if found - confirmed else None

    def _names(self, service: V1Service) -> set[str] | None:
        """The load balancer's present name, and the one under which it still serves while a change
        waits or fails; None where this process does not know what serves, or the provider fails to
        name it."""
        record = self._cloud.records.get(key_of(service))
        if record is None or record.built is None:
            return None
        try:
            return {self._name(service), self._name(record.built)}
        except (Parked, CallsClosed):
            raise
        except CLOUD_ERRORS as error:  # one Service's annotations must not hide the orphans of all
            self._metrics.orphan_errors.inc()
            log.warning("the name of the load balancer of Service %s: %s", key_of(service), error)
            return None

    def _name(self, service: V1Service) -> str:
        # Not `ServiceCloud.name`: a name that the provider fails to say proves nothing.
        return self._cloud.balancers.name(self._cloud.cluster, service)

    def _report(self, confirmed: Sequence[OwnedLoadBalancer]) -> None:
        names = [
            f"{orphan.name} (Service {orphan.service or orphan.service_uid})" for orphan in confirmed[:_MOST_NAMED]
        ]
        rest = f" and {len(confirmed) - _MOST_NAMED} more" if len(confirmed) > _MOST_NAMED else ""
        message = (
            f"{len(confirmed)} load balancers of cluster {self._cloud.cluster!r} in the cloud have no Service, or "
            "one that has another load balancer: "
            f"{', '.join(names)}{rest}. Delete them in the cloud, unless another cluster of that name owns them"
        )
        log.warning("%s", message)
        self._cloud.recorder.event(KUBE_SYSTEM, "Warning", "OrphanedLoadBalancers", message)


def orphans(
    owned: Sequence[OwnedLoadBalancer],
    services: Sequence[V1Service],
    names: Callable[[V1Service], Container[str] | None],
    classes: Classes = WITHOUT_CLASS,
) -> list[OwnedLoadBalancer]:
    """Those for which no Service asks, nor holds our finalizer, and that were not kept on purpose.
    By UID, else by name.

    Where a Service that asks for one has several, those that are not among its `names`, too."""
    holders = [
        one
        for one in services
        # Those of other managers of this cluster count: their load balancers may be listed too.
        if wants_load_balancer(one)
        or classes.ownership(one) is not Ownership.NONE
        or classes.handed_over(one) is not None
    ]
    by_uid = {uid_of(service): service for service in holders}
    by_key = {key_of(service): service for service in holders}
    held: dict[str, list[OwnedLoadBalancer]] = {}
    found = []
    for balancer in owned:
        if balancer.kept:
            continue  # its owner wants it to outlive the Service
        uid = balancer.service_uid
        # A new Service under the same name is no holder of what the former one had.
        holder = by_uid.get(uid) if uid else by_key.get(balancer.service)
        if holder is None:
            found.append(balancer)
        else:
            held.setdefault(key_of(holder), []).append(balancer)
    for key, balancers in held.items():
        # A single one may still serve under its former name; this process may not know it yet.
        if len(balancers) > 1 and classes.keeps(by_key[key]):
            present = names(by_key[key])
            if present is not None:
                found += [balancer for balancer in balancers if balancer.name not in present]
    return found
