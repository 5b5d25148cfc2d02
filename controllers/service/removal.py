"""Stages 4 to 6 for a load balancer that shall not be: have the cloud delete it, then let go of the Service.

Called by `reconcile.py`, which knows that it is to go: by what this process did, or by what the Service shows
(`changes.claim`). Where neither proves that it is ours, the cloud is asked first, and a finalizer that may be another
controller's stays.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from attrs import evolve

from cloudprovider import ImplementedElsewhere, NotImplementedByProvider
from cloudprovider.helpers import has_load_balancer_finalizer
from controllers.cloudcalls import PRIORITY_NORMAL
from controllers.runtime.cache import is_newer, uid_of, version_of
from controllers.service import changes
from controllers.service.changes import Claim
from controllers.service.cloudside import CLOUD_ERRORS, PATIENT
from controllers.service.records import Record

if TYPE_CHECKING:
    from kubernetes.client.models.v1_service import V1Service

    from controllers.runtime.write import EventRecorder
    from controllers.service.cloudside import CloudSide
    from controllers.service.cluster import ServiceAPI
    from controllers.service.records import Records

log = logging.getLogger(__name__)

_HELD = ("SyncLoadBalancerFailed", "Error syncing load balancer: failed to delete load balancer")
_VANISHED = ("DeleteLoadBalancerFailed", "Error deleting load balancer")
_NOT_RELEASED = "failed to remove load balancer cleanup finalizer"


class Removal:
    """Takes load balancers away. Thread-safe: the work queue keeps two threads off one key."""

    def __init__(self, api: ServiceAPI, cloud: CloudSide, records: Records, recorder: EventRecorder) -> None:
        self._api = api
        self._cloud = cloud
        self._records = records
        self._recorder = recorder

    def of_service(self, key: str, service: V1Service, record: Record | None) -> None:
        """Remove what this process built or saw wanted (`record`), or what the Service shows to be ours or doubtful."""
        claim = changes.claim(service)
        if record is not None and is_behind_release(service, record):
            return
        if record is not None and record.released:
            # Ours is off: what holds the Service now is another's, and goes at its deletion only, as in Go.
            if _is_deleted(service) and has_load_balancer_finalizer(service):
                self._ask(key, service)
        elif record is not None or claim is Claim.REMOVE:
            self._remove(key, service, record)
        elif claim is Claim.ASK:
            self._ask(key, service)

    def of_former(self, key: str, record: Record) -> None:
        """Clean up for a Service that vanished without our finalizer, or was made anew under its name."""
        if not record.gone:
            self._api.prove_gone(key, record.uid)
            self._delete(key, record, _VANISHED)
        self._records.drop(key)

    def _ask(self, key: str, service: V1Service) -> None:
        """There is no proof that it is ours but what the cloud has for this Service."""
        deleted = _is_deleted(service)
        try:
            exists = self._cloud.look(service, PRIORITY_NORMAL) is not None
        except ImplementedElsewhere:
            exists = False
        except NotImplementedByProvider:
            exists = deleted  # to delete what is not there does no harm, and the Service must not hang
        if exists:
            self._remove(key, service, None)
        elif deleted:
            with self._cloud.telling(service, _NOT_RELEASED):
                self._api.write(key, service, changes.unheld(service))
        else:
            log.info("Service %s: the cloud has no load balancer for it, so its finalizer is kept as another's", key)

    def _remove(self, key: str, service: V1Service, record: Record | None) -> None:
        if record is None or not record.gone:
            record = evolve(record or Record(service=service, uid=uid_of(service)), service=service)
            record = self._delete(key, record, _HELD)
        with self._cloud.telling(service, _NOT_RELEASED):
            written = self._api.write(key, service, changes.released(service))
        self._records.put(key, evolve(record, released=True, version=version_of(written)))

    def _delete(self, key: str, record: Record, failure: tuple[str, str]) -> Record:
        """Have the cloud delete; returning means that it confirmed."""
        self._cloud.not_too_early(record, "delete")
        service = record.service
        record = self._records.put(key, evolve(record, spec="", nodes="", attempt="delete", not_before=0.0))
        self._recorder.event(service, "Normal", "DeletingLoadBalancer", "Deleting load balancer")
        try:
            with self._cloud.delays(key, record):
                self._cloud.balancers.ensure_deleted(self._cloud.cluster, service)
        except ImplementedElsewhere:
            log.debug("Service %s: its load balancer is another controller's", key)
        except CLOUD_ERRORS as error:
            unseen = not isinstance(error, PATIENT) and self._is_gone(service)
            if not (unseen and record.unseen):
                self._records.put(key, evolve(self._records.get(key) or record, unseen=unseen))
                if not unseen:
                    self._cloud.failed(service, *failure, error)
                raise
            log.info("Service %s: its deletion failed (%s), but the cloud has no load balancer any more", key, error)
        self._recorder.event(service, "Normal", "DeletedLoadBalancer", "Deleted load balancer")
        return self._records.put(key, evolve(record, gone=True))

    def _is_gone(self, service: V1Service) -> bool:
        """Whether the cloud says that there is none. An answer that fails says nothing; the deletion's error counts."""
        try:
            return self._cloud.balancers.get(self._cloud.cluster, service, priority=PRIORITY_NORMAL) is None
        except CLOUD_ERRORS as error:
            log.debug("Service %s: failed to look after a failed deletion: %s", uid_of(service), error)
            return False


def _is_deleted(service: V1Service) -> bool:
    return service.metadata is not None and service.metadata.deletion_timestamp is not None


def is_behind_release(service: V1Service, record: Record) -> bool:
    """Whether the cache does not show yet that our finalizer is off: what is built now would be held by nothing."""
    behind = is_newer(version_of(service), record.version) is not True
    return record.released and behind and has_load_balancer_finalizer(service)
