"""The condition LoadBalancerReady on Services (stages 4 and 6): what a run found out about a load
balancer, in words that `kubectl wait` and people read.

It goes with the write that is due: the claim before the cloud is asked, the address after it, the
release. A separate write comes at the end of a run, when that says something else than the Service
shows. Other conditions of the Service are never touched.

Follows: KEP-4631 for where it is, and the API conventions for conditions."""

from __future__ import annotations

import logging
import math
import re
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve, frozen

from cloudprovider import InvalidService, QuotaExceeded, RetryError, Throttled
from cloudprovider.internal.backoff import Backoff
from cloudprovider.internal.cleaning import one_line
from controllers.runtime.api import STRATEGIC_PATCH, ApiError
from controllers.runtime.write import Patch, combined, condition_set, timestamp, to_json
from controllers.service import changes
from controllers.service.calls import CacheBehind, TooEarly
from controllers.service.decide import ServiceView, wanted
from controllers.service.records import State

if TYPE_CHECKING:
    from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
    from kubernetes.client.models.v1_service import V1Service

    from controllers.runtime.clock import Clock
    from controllers.service.calls import ServiceAPI
    from controllers.service.records import Record, Records

log = logging.getLogger(__name__)

TYPE: Final = "LoadBalancerReady"
"""Type of the condition. Must never change: scripts wait for it."""

ALONE: Final = Backoff(base=5.0, cap=300.0, at_once=5, quiet=600.0)
"""Writing it by itself: what changes again and again is written ever more slowly."""

_LONGEST: Final = 1000  # characters of a message
_CHANGING: Final = re.compile(r"\S*\d\S*")
_STANDS: Final = (State.CONFIRMED, State.WRITTEN, State.RETARGETING)
_REASONS: Final = (
    (RetryError, "Pending"),
    (Throttled, "Throttled"),
    (InvalidService, "Refused"),
    (QuotaExceeded, "QuotaExceeded"),
)


@frozen
class Verdict:
    """What the condition is to say. An empty status: the Service is to have no such condition."""

    status: str
    reason: str
    message: str


BUILDING: Final = Verdict("False", "Building", "The cloud is asked to build the load balancer")
_NONE: Final = Verdict("", "", "")


def verdict(view: ServiceView, error: Exception | None) -> Verdict | None:
    """What is known at the end of a run that failed with this error; None: as it was."""
    service, record = view.service, view.record
    if isinstance(error, TooEarly | CacheBehind):
        error = None  # nothing was asked
    # What is there then goes with the release, or is another controller's.
    if service is None or record is None or record.state.deleted:
        return None
    if not view.classes.keeps(service):
        # The controller of its class may say by the same type how far its own load balancer is.
        if error is None or not record.removing or view.classes.is_others(service):
            return None
        return Verdict("False", "Deleting", f"The load balancer is to be deleted: {error}")
    if record.state is State.ELSEWHERE:
        # Another controller may write a condition of this type; only our own last word goes.
        return _NONE if _is_ours(service, record) else None
    stands = record.state in _STANDS and record.spec == wanted(view) and not record.new_status
    if stands:
        return built(record.status)
    if error is not None:
        reason = next((name for kind, name in _REASONS if isinstance(error, kind)), "Failed")
        # Where the cloud was not asked to build, one of a former process may serve all the while.
        return Verdict("False" if "ensure" in record.asked else "Unknown", reason, str(error))
    if record.looking is not None and view.classes.waits_for_others(service):
        return Verdict("False", "Waiting", "The manager of another class has yet to delete what it built")
    if record.warned and record.tried != wanted(view):
        return Verdict("False", "ChangesDelayed", "The Service was changed often, so its latest change waits")
    return None


def built(status: V1LoadBalancerStatus | None) -> Verdict:
    """What is to be said of a load balancer that the cloud confirmed with this status."""
    points = [str(point.ip or point.hostname) for point in changes.ingress(status)]
    if not points:
        return Verdict("False", "Pending", "The load balancer is built; the cloud has given it no address yet")
    return Verdict("True", "Ready", f"The load balancer has the address {', '.join(points)}")


class Conditions:
    """Makes the patches, and those that go alone it writes. Thread-safe."""

    def __init__(self, api: ServiceAPI, records: Records, clock: Clock) -> None:
        self._api = api
        self._records = records
        self._clock = clock

    def building(self, service: V1Service, claim: Patch) -> Patch:
        """The claim, in one write with the condition."""
        if _shown(service).get("reason") == BUILDING.reason:
            return claim
        return self.added(service, claim, BUILDING)

    def added(self, service: V1Service, patch: Patch, said: Verdict) -> Patch:
        """A patch of a Service to /status, with the condition; as it is where that stays."""
        more = self._patch(service, said)
        return combined(Patch(patch.body, STRATEGIC_PATCH, "status"), more) if more else patch

    def removed(self, service: V1Service, patch: Patch) -> Patch:
        """A patch of a Service to /status, and the condition goes with it."""
        return self.added(service, patch, _NONE)

    def tell(self, key: str, view: ServiceView, error: Exception | None) -> float:
        """Write it at the end of a run that failed with this error, where the Service shows another
        one. Returns the seconds until it may be written, inf where nothing is left to write. Raises
        what the API server answered, but not over that error."""
        said = verdict(view, error)
        patch = Patch() if said is None else self._patch(view.present, said)
        if not patch:
            return math.inf
        record, now = view.known, self._clock.monotonic()
        # By itself: it came with no write that was due, so what flaps must not cost one each time.
        if (left := record.condition_writes.left(now)) > 0:
            return left
        try:
            service = self._api.write(key, view.present, patch)
        except ApiError as refused:
            # The error of the run counts more; this write comes again at the end of the next one.
            if error is None:
                raise
            log.debug("Service %s: its condition was not written: %s", key, refused)
        else:
            writes = ALONE.next(record.condition_writes, now)
            self._records.put(key, evolve(record.after(service), condition_writes=writes, said=reason_of(service)))
        return math.inf

    def _patch(self, service: V1Service, said: Verdict) -> Patch:
        shown = _shown(service)
        if not said.status:
            gone = {"status": {"conditions": [{"$patch": "delete", "type": TYPE}]}}
            return Patch(gone, STRATEGIC_PATCH, "status") if shown else Patch()
        wanted: dict[str, Any] = {"type": TYPE, "status": said.status, "reason": said.reason}
        # Tenants read it, as they read Events: no credential of an error's text, no forged line.
        wanted["message"] = one_line(said.message, _LONGEST)
        generation = service.metadata.generation if service.metadata is not None else None
        if generation:  # no Service of Kubernetes 1.37 has one
            wanted["observedGeneration"] = generation
        # An error with a request ID in it differs each time, and must not cost a write each time.
        if said.status != "True" and _alike(shown, wanted):
            return Patch()
        return condition_set([shown] if shown else [], wanted, now=timestamp(self._clock.time()))


def reason_of(service: V1Service) -> str:
    """The reason in the condition as the Service has it; "" without one."""
    return str(_shown(service).get("reason", ""))


def _is_ours(service: V1Service, record: Record) -> bool:
    """Whether the condition on the Service is one that this process wrote, or the one before it
    with the address that the Service still has."""
    reason = reason_of(service)
    if reason and reason in (BUILDING.reason, record.said):
        return True
    last = built(changes.status_of(service))
    return (reason, _shown(service).get("message")) == (last.reason, last.message)


def _shown(service: V1Service) -> dict[str, Any]:
    """The condition as the Service has it; empty without it."""
    found = (service.status.conditions if service.status is not None else None) or ()
    return next((to_json(one) for one in found if one.type == TYPE), {})


def _alike(shown: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether they differ at most in what changes with every answer of the cloud: a time, a
    percentage, the ID of a request."""
    if any(shown.get(name) != wanted.get(name) for name in ("status", "reason", "observedGeneration")):
        return False
    return _CHANGING.sub("#", str(shown.get("message"))) == _CHANGING.sub("#", str(wanted["message"]))
