"""What runs while the service controller is off: it reports deleted Services that wait for it.

Stage: beside all. Services with a load balancer of ours are counted. One that is deleted, and waits
for our finalizer for longer than another manager would need, gets an Event with what to do. Nothing
is deleted: where --controllers leaves the service controller out, another manager may serve these
Services, and a provider without load balancers cannot delete any."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from cloudprovider.helpers import has_load_balancer_finalizer
from cloudprovider.wellknown import LOAD_BALANCER_CLEANUP_FINALIZER
from controllers.runtime.api import ApiError, Forbidden
from controllers.runtime.base import ControllerBase
from controllers.runtime.cache import SERVICES, MalformedObject, key_of, uid_of
from controllers.runtime.metrics import Metrics
from controllers.service.changes import ingress, own_note, status_of
from controllers.service.classes import Classes, Ownership

if TYPE_CHECKING:
    from kubernetes.client.models.v1_service import V1Service

    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.clock import Clock
    from controllers.service.options import ServiceOptions

log = logging.getLogger(__name__)

PERIOD: Final = 60.0
"""Seconds between two lists."""
REPORT_AFTER: Final = 120.0
"""Seconds that a deletion is seen to wait until it is reported."""
_TOLD_AGAIN: Final = 1800.0  # Events are gone after an hour
_FORBIDDEN: Final = 3600.0
_MOST_NAMED: Final = 10


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
        self, clients: ClientBuilder, options: ServiceOptions, metrics: Metrics | None, clock: Clock, *, why: str
    ) -> None:
        """`why`: why the service controller is off, for people."""
        super().__init__(clients, options, metrics, clock)
        self._why = why
        self._classes = Classes(options.classes)
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
            return _FORBIDDEN
        except ApiError as error:
            log.debug("%s: Services could not be listed: %s", self.NAME, error)
            return None
        now = self._clock.monotonic()
        held = [key_of(one) for one in services if self._has_ours(one)]
        self._gauges.services.set(len(held))
        if len(held) > self._counted:
            log.warning(
                "%d Services have a load balancer and our finalizer %s, and the service controller is off: %s. If no "
                "other manager serves them, their load balancers get no changes, and they cannot be deleted: %s",
                len(held), LOAD_BALANCER_CLEANUP_FINALIZER, self._why, _few(held),
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
        names = _few([key_of(one) for one in stuck.values()])
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


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
