"""Compares the load balancers that the cloud says this cluster owns with the Services, reports
those without, and those that a Service had under a former name.

They are never deleted: another cluster with the same name and account may own them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cloudprovider import OwnedLoadBalancer
from cloudprovider.helpers import wants_load_balancer
from controllers.runtime.cache import Lister, key_of, uid_of
from controllers.runtime.write import EventRecorder, Reference
from controllers.service.changes import Ownership, ownership, wants_load_balancer_from_us
from controllers.service.cloud import CLOUD_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from kubernetes.client.models.v1_service import V1Service

    from controllers.cloudcalls.capabilities import LoadBalancerCalls
    from controllers.service.metrics import ServiceMetrics
    from controllers.service.records import Records

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
        records: Records,
        metrics: ServiceMetrics,
        confirm_after: float,
    ) -> None:
        self._lister = lister
        self._records = records
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
            found = frozenset(orphans(owned, self._lister.list(), self._names))
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
        waits or fails; None while this process does not know what serves."""
        record = self._records.get(key_of(service))
        if record is None or record.built is None:
            return None
        return {self._balancers.name(self._cluster, one) for one in (service, record.built)}

    def _report(self, confirmed: Sequence[OwnedLoadBalancer]) -> None:
        names = [
            f"{orphan.name} (Service {orphan.service or orphan.service_uid})" for orphan in confirmed[:_MOST_NAMED]
        ]
        rest = f" and {len(confirmed) - _MOST_NAMED} more" if len(confirmed) > _MOST_NAMED else ""
        message = (
            f"{len(confirmed)} load balancers of cluster {self._cluster!r} in the cloud have no Service, or "
            "one that has another load balancer: "
            f"{', '.join(names)}{rest}. Delete them in the cloud, unless another cluster of that name owns them"
        )
        log.warning("%s", message)
        self._recorder.event(KUBE_SYSTEM, "Warning", "OrphanedLoadBalancers", message)


def orphans(
    owned: Sequence[OwnedLoadBalancer],
    services: Sequence[V1Service],
    names: Callable[[V1Service], Container[str] | None],
) -> list[OwnedLoadBalancer]:
    """Those for which no Service asks, nor holds our finalizer, and that were not kept on purpose.
    By UID, else by name.

    Where a Service that asks for one has several, those that are not among its `names`, too."""
    holders = [one for one in services if wants_load_balancer(one) or ownership(one) is not Ownership.NONE]
    by_uid = {uid_of(service): service for service in holders}
    by_key = {key_of(service): service for service in holders}
    held: dict[str, list[OwnedLoadBalancer]] = {}
    found = []
    for balancer in owned:
        if balancer.kept:
            continue
        uid = balancer.service_uid
        holder = by_uid.get(uid) if uid else by_key.get(balancer.service)
        if holder is None:
            found.append(balancer)
        else:
            held.setdefault(key_of(holder), []).append(balancer)
    for key, balancers in held.items():
        if len(balancers) > 1 and wants_load_balancer_from_us(by_key[key]):
            present = names(by_key[key])
            if present is not None:
                found += [balancer for balancer in balancers if balancer.name not in present]
    return found
