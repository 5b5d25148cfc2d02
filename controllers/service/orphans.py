"""Compares the load balancers that the cloud says this cluster owns with the Services, reports
those without.

They are never deleted: another cluster with the same name and account may own them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cloudprovider import OwnedLoadBalancer
from cloudprovider.helpers import wants_load_balancer
from controllers.runtime.cache import Lister, uid_of
from controllers.runtime.write import EventRecorder, Reference
from controllers.service.changes import Ownership, ownership
from controllers.service.cloud import CLOUD_ERRORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubernetes.client.models.v1_service import V1Service

    from controllers.cloudcalls.capabilities import LoadBalancerCalls
    from controllers.service.metrics import ServiceMetrics

log = logging.getLogger(__name__)

KUBE_SYSTEM = Reference("Namespace", "kube-system")
"""Events about the whole cluster are on this namespace, as it outlives every Service."""
_MOST_NAMED = 10


class OrphanReport:
    """One search per call; what the first sees the next must confirm, as they come and go
    meanwhile.

    One thread at a time."""

    def __init__(
        self,
        lister: Lister[V1Service],
        balancers: LoadBalancerCalls,
        recorder: EventRecorder,
        cluster_name: str,
        metrics: ServiceMetrics,
        confirm_after: float,
    ) -> None:
        self._lister = lister
        self._balancers = balancers
        self._recorder = recorder
        self._cluster = cluster_name
        self._metrics = metrics
        self._confirm_after = confirm_after
        self._suspects: frozenset[OwnedLoadBalancer] = frozenset()
        self._reported: frozenset[OwnedLoadBalancer] = frozenset()

    def search(self) -> float | None:
        """Search, and report what is confirmed and new.

        Returns the seconds after which to search again, where the cloud did not answer, or to
        confirm what was seen for the first time; else None.
        """
        try:
            owned = self._balancers.owned(self._cluster)
        except CLOUD_ERRORS as error:
            self._metrics.orphan_errors.inc()
            log.warning("searching for load balancers without a Service failed: %s: %s", type(error).__name__, error)
            return self._confirm_after
        services = self._lister.list()
        found = frozenset(orphans(owned, services))
        confirmed = found & self._suspects
        self._suspects = found
        self._metrics.orphans.set(len(confirmed))
        if confirmed - self._reported:
            self._report(sorted(confirmed, key=lambda orphan: orphan.name))
        elif self._reported and not confirmed:
            log.info("every load balancer has a Service again")
        self._reported = confirmed
        return self._confirm_after if found - confirmed else None

    def _report(self, confirmed: Sequence[OwnedLoadBalancer]) -> None:
        names = [
            f"{orphan.name} (Service {orphan.service or orphan.service_uid})" for orphan in confirmed[:_MOST_NAMED]
        ]
        rest = f" and {len(confirmed) - _MOST_NAMED} more" if len(confirmed) > _MOST_NAMED else ""
        message = (
            f"{len(confirmed)} load balancers of cluster {self._cluster!r} in the cloud have no Service: "
            f"{', '.join(names)}{rest}. Delete them in the cloud, unless another cluster of that name owns them"
        )
        log.warning("%s", message)
        self._recorder.event(KUBE_SYSTEM, "Warning", "OrphanedLoadBalancers", message)


def orphans(owned: Sequence[OwnedLoadBalancer], services: Sequence[V1Service]) -> list[OwnedLoadBalancer]:
    """Pure: those for which no Service asks, nor holds our finalizer, and that were not kept on
    purpose. By UID, else by name."""
    holders = [one for one in services if wants_load_balancer(one) or ownership(one) is not Ownership.NONE]
    uids = {uid_of(service) for service in holders}
    names = {f"{service.metadata.namespace}/{service.metadata.name}" for service in holders if service.metadata}
    return [
        balancer
        for balancer in owned
        if not balancer.kept
        and (balancer.service_uid not in uids if balancer.service_uid else balancer.service not in names)
    ]
