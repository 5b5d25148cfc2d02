"""Stage: beside all. Load balancers in the cloud that are no Service's, and Services that nobody
serves as the controller is off.

One that this manager deleted soon after it took over may be there again: the manager before may
have been stopped in the middle of a call, which the cloud carries out late. It is deleted again.
Those that the provider lists as this cluster's are compared with the Services, and only reported:
another cluster with the same name and account may own them.

`ServicesOff` runs while the service controller is off. Services with a load balancer of ours are
counted. One that is deleted, and waits for our finalizer for longer than another manager would
need, gets an Event with what to do. Nothing is deleted: where --controllers leaves the service
controller out, another manager may serve these Services, and a provider without load balancers
cannot delete any."""

from __future__ import annotations

import logging
import math
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cloudprovider import LoadBalancerKept, OwnedLoadBalancer
from cloudprovider.helpers import has_load_balancer_finalizer, wants_load_balancer
from cloudprovider.internal.cleaning import few
from cloudprovider.wellknown import LOAD_BALANCER_CLEANUP_FINALIZER
from controllers.cloudcalls import CLOUD_ERRORS, CallsClosed
from controllers.runtime.api import ApiError, Forbidden
from controllers.runtime.base import ControllerBase, HasDrainTimeout
from controllers.runtime.cache import SERVICES, Lister, MalformedObject, key_of, uid_of
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import DONE, Parked, Result
from controllers.runtime.write import Reference
from controllers.service.calls import CacheBehind, ServiceAPI, ServiceCloud
from controllers.service.changes import WITHOUT_CLASS, Classes, Ownership, ingress, own_note, status_of
from controllers.service.decide import ObservedLoadBalancer

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from kubernetes.client.models.v1_service import V1Service

    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.clock import Clock
    from controllers.runtime.queue import WorkQueue

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

PERIOD: Final = 60.0
"""Seconds between two lists."""
REPORT_AFTER: Final = 120.0
"""Seconds that a deletion is seen to wait until it is reported."""
_TOLD_AGAIN: Final = 1800.0  # Events are gone after an hour
_FORBIDDEN: Final = 3600.0


class Orphans:
    """`queue` holds the UIDs of Services whose load balancer was deleted; its worker calls
    `delete_again`. Thread-safe, but for `search`: one thread at a time."""

    def __init__(
        self,
        queue: WorkQueue[str],
        lister: Lister[V1Service],
        api: ServiceAPI,
        cloud: ServiceCloud,
        metrics: Metrics,
        clock: Clock,
        confirm_after: float = CONFIRM_AFTER,
        classes: Classes = WITHOUT_CLASS,
    ) -> None:
        self._queue = queue
        self._lister = lister
        self._api = api
        self._cloud = cloud
        self._orphans = metrics.gauge(
            "service_controller_orphaned_load_balancers",
            "Load balancers in the cloud whose Service is gone, as far as the provider can list them.",
        )
        self._errors = metrics.counter(
            "service_controller_orphan_check_errors_total", "Searches for orphaned load balancers that failed."
        )
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
        # By UID: a new Service of that name has a key, and a load balancer, of its own.
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
            self._errors.inc()
            log.warning("searching for load balancers without a Service failed: %s: %s", type(error).__name__, error)
            return self._confirm_after
        # A Service may have been created, or deleted, between the cloud's answer and our cache's.
        confirmed = found & self._suspects
        self._suspects = found
        self._orphans.set(len(confirmed))
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
            self._errors.inc()
            log.warning("the name of the load balancer of Service %s: %s", key_of(service), error)
            return None

    def _name(self, service: V1Service) -> str:
        # Not `ServiceCloud.name`: a name that the provider fails to say proves nothing.
        return self._cloud.balancers.name(self._cloud.cluster, service)

    def _report(self, confirmed: Sequence[OwnedLoadBalancer]) -> None:
        names = few(
            [f"{orphan.name} (Service {orphan.service or orphan.service_uid})" for orphan in confirmed], _MOST_NAMED
        )
        message = (
            f"{len(confirmed)} load balancers of cluster {self._cloud.cluster!r} in the cloud have no Service, or "
            "one that has another load balancer: "
            f"{names}. Delete them in the cloud, unless another cluster of that name owns them"
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


class UnservedMetrics:
    """Gauges of a manager whose service controller is off."""

    def __init__(self, metrics: Metrics) -> None:
        self.services = metrics.gauge(
            "service_controller_unserved_services",
            "Services with a load balancer of ours, while the service controller of this manager is off.",
        )
        self.deletions = metrics.gauge(
            "service_controller_unserved_deletions",
            "Deleted Services that wait for our finalizer, while the service controller of this manager is off.",
        )


class ServicesOff(ControllerBase):
    """Runs in the service controller's place. `run` may be called once."""

    NAME = "service-lb-controller-off"
    CLIENT = "shared-informers"  # the manager's own: the service controller may have no account
    EVENT_SOURCE = "service-controller"

    def __init__(
        self,
        clients: ClientBuilder,
        options: HasDrainTimeout,
        classes: Classes,
        metrics: Metrics | None,
        clock: Clock,
        *,
        why: str,
    ) -> None:
        """`why`: why the service controller is off, for people."""
        super().__init__(clients, options, metrics, clock)
        self._why = why
        self._classes = classes
        self._gauges = UnservedMetrics(self._metrics)
        self._since: dict[str, float] = {}  # by UID: when it was first seen to be deleted
        self._told: dict[str, float] = {}
        self._counted = 0
        self._waiting = ""
        self._every(PERIOD, "services", self.look)

    def notes(self) -> list[tuple[str, bool, str]]:
        """The deletions that wait. It is no fault of this program. Thread-safe."""
        return [("deletions", True, self._waiting)]

    def look(self) -> float | None:
        """Look at all Services once. For one thread; returns seconds until the next look if they
        are not the usual ones."""
        try:
            services = self._list()
        except Forbidden as error:
            log.warning(
                "missing permission: list on services. Without it deleted Services that wait for the service "
                "controller, which is off, are not reported. Fix: apply the RBAC manifest again (%s)",
                error,
            )
            # Nobody grants a permission by the minute: one line an hour is enough.
            return _FORBIDDEN
        except ApiError as error:
            log.debug("%s: Services could not be listed: %s", self.NAME, error)
            return None
        now = self._clock.monotonic()
        held = [key_of(one) for one in services if self._has_ours(one)]
        self._gauges.services.set(len(held))
        # More than at the last look: the same line each minute would bury the rest of the log.
        if len(held) > self._counted:
            log.warning(
                "%d Services have a load balancer and our finalizer %s, and the service controller is off: %s. If no "
                "other manager serves them, their load balancers get no changes, and they cannot be deleted: %s",
                len(held), LOAD_BALANCER_CLEANUP_FINALIZER, self._why, few(held, _MOST_NAMED),
            )  # fmt: skip
        self._counted = len(held)
        deleted = {uid_of(one): one for one in services if self._waits(one)}
        self._since = {uid: self._since.get(uid, now) for uid in deleted}
        self._told = {uid: self._told[uid] for uid in deleted if uid in self._told}
        stuck = {uid: one for uid, one in deleted.items() if now - self._since[uid] >= REPORT_AFTER}
        self._gauges.deletions.set(len(stuck))
        for uid, service in stuck.items():
            if uid not in self._told or now - self._told[uid] >= _TOLD_AGAIN:
                self._told[uid] = now
                self._tell(service)
        names = few([key_of(one) for one in stuck.values()], _MOST_NAMED)
        self._waiting = f"{len(stuck)} deleted Services wait for our finalizer: {names}" if stuck else ""
        return None

    def _tell(self, service: V1Service) -> None:
        points = [str(point.ip or point.hostname) for point in ingress(status_of(service))]
        message = (
            f"This Service waits for its finalizer {LOAD_BALANCER_CLEANUP_FINALIZER}, as the service controller is "
            f"off: {self._why}. If no other manager serves Services, delete its load balancer in the cloud "
            f"({', '.join(points) or 'no address'}; UID of the Service {uid_of(service)}), and then remove the "
            "finalizer with kubectl edit"
        )
        log.warning("Service %s: %s", key_of(service), message)
        self._recorder.event(service, "Warning", "LoadBalancerNotDeleted", message)

    def _list(self) -> list[V1Service]:
        # From the API server's cache: what waits for minutes is in it.
        answer = self._rest.get(SERVICES.path(), query={"resourceVersion": "0"})
        services = []
        for raw in answer.get("items") or ():
            try:
                services.append(SERVICES.parse(raw))
            except MalformedObject as error:
                log.debug("%s: %s", self.NAME, error)
        return services

    def _has_ours(self, service: V1Service) -> bool:
        note = own_note(service)
        return has_load_balancer_finalizer(service) and note is not None and note.lb_class in self._classes.served

    def _waits(self, service: V1Service) -> bool:
        deleted = service.metadata is not None and service.metadata.deletion_timestamp is not None
        return deleted and self._classes.ownership(service) is Ownership.REMOVE
