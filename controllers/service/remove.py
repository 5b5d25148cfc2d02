"""Stage 5: CALL, and 6: WRITE, of what is to go. Carries out the steps that `decide.py` chose about
load balancers that are not wanted any more.

Deletion is asked for each Service that the cloud may have built one for: as it was last built, and
as it is now where that differs. The cloud's word alone takes our finalizer off."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import evolve

from cloudprovider import ImplementedElsewhere, InvalidService, LoadBalancerKept
from controllers.cloudcalls import CLOUD_ERRORS, CallsClosed
from controllers.runtime.cache import uid_of
from controllers.runtime.queue import Parked
from controllers.runtime.write import Patch
from controllers.service import changes
from controllers.service.calls import SAYS_LATER, CacheBehind, ServiceCloud
from controllers.service.changes import as_built, named
from controllers.service.decide import Action, ServiceView, Step
from controllers.service.records import Record, State

if TYPE_CHECKING:
    from kubernetes.client.models.v1_service import V1Service

    from controllers.service.calls import ServiceAPI
    from controllers.service.conditions import Conditions

log = logging.getLogger(__name__)


class Remover:
    """Carries such steps out, as `Executor` does the others. Thread-safe as it is. `deleted` is
    called with each Service whose load balancer the cloud deleted."""

    def __init__(
        self,
        api: ServiceAPI,
        cloud: ServiceCloud,
        deleted: Callable[[V1Service], None],
        conditions: Conditions | None = None,
    ) -> None:
        self._api = api
        self._cloud = cloud
        self._deleted = deleted
        self._conditions = conditions
        self._records = cloud.records
        self._recorder = cloud.recorder

    def delete_others(self, key: str, view: ServiceView, step: Step) -> ServiceView:
        """What the Service had under former names. `record.others` may have its present name
        again."""
        service, record = view.present, view.known
        self._cloud.not_too_early(record, "delete others")
        name_of, cluster = self._cloud.balancers.name, self._cloud.cluster
        # By name, as that is what a deletion goes by: two former Services may have had one.
        present = name_of(cluster, service)
        names = {name_of(cluster, other): other for other in record.others}
        names.pop(present, None)
        if names:
            newest = self._api.newest(key, service)
            # Our cache may be behind: its owner may have taken the former name back.
            if changes.provider_annotations(newest) != changes.provider_annotations(service):
                raise CacheBehind(f"Service {key} has other annotations than our cache shows")
            asked = {**record.asked, "delete others": self._cloud.asking(record, "delete others")}
            record = self._records.put(key, evolve(record, asked=asked))
        left: list[V1Service] = []
        errors: list[Exception] = []
        for name, other in names.items():
            error = self._ask(key, service, record, "delete others", other, record.former_of(other))
            if isinstance(error, LoadBalancerKept):
                continue
            if error is not None and (isinstance(error, SAYS_LATER) or not self._cloud.shows_none(other)):
                what = f"Error syncing load balancer: failed to delete its former load balancer {name}"
                self._cloud.failed(service, "SyncLoadBalancerFailed", what, error)
                left.append(other)
                errors.append(error)
                continue
            if error is not None:
                log.info("Service %s: load balancer %s is not there any more: %s", key, name, error)
            message = f"Deleted the former load balancer {name}: the Service has {present} now"
            self._recorder.event(service, "Normal", "DeletedLoadBalancer", message)
        if errors:  # one that stays keeps no other one in the cloud, and those that went are not deleted again
            self._records.put(key, evolve(self._records.get(key) or record, others=tuple(left)))
            raise errors[0]
        annotations = (self._cloud.naming_annotations(service),)
        record = evolve(self._records.get(key) or record, others=(), annotations=annotations)
        return evolve(view, record=self._records.put(key, record))

    def delete(self, key: str, view: ServiceView, step: Step) -> ServiceView:
        record = view.known
        self._cloud.not_too_early(record, "delete")
        failure = "SyncLoadBalancerFailed", "Error syncing load balancer: failed to delete load balancer"
        service = record.service
        # A cache that is wrong must not cost a load balancer: the API server has the last word.
        if view.service is None or uid_of(view.service) != record.uid:
            self._api.prove_gone(key, record.uid)
            failure = "DeleteLoadBalancerFailed", "Error deleting load balancer"
        else:
            self._api.prove_unwanted(key, view.service, view.classes)
            service = view.service
        if record.status is not None and not changes.ingress(changes.status_of(service)):
            # The API server took it off with the type, and some providers find it by its address.
            service = changes.with_status(service, record.status)
        absent, again = record.state is State.ABSENT, record.asks_again("delete")
        asked = self._cloud.asking(record, "delete")
        record = evolve(
            record,
            service=service,
            state=State.ABSENT if absent else State.UNSURE,
            spec="",
            nodes="",
            others=self._others(record, service),
            built=None,
            found=None,
            removing=True,
            looking=None,
            asked={"delete": asked},  # should it be wanted again, that is another thing than before
        )
        self._records.put(key, record)
        if not again:  # one Event, however often it is tried
            self._recorder.event(service, "Normal", "DeletingLoadBalancer", "Deleting load balancer")
        errors: list[Exception] = []
        kept, none = False, True
        settled: str | None = None
        for one in (service, *record.others):
            # Of a load balancer of the same name its owner's last word counts, which the Service as
            # built may lack: that it is to be kept.
            if settled is not None and self._cloud.name(one) in ("", settled):
                continue
            error = self._ask(key, service, record, "delete", one, record.former_of(service))
            if isinstance(error, LoadBalancerKept):
                kept = True
                if one is service:
                    settled = self._cloud.name(service)
            elif error is not None:
                errors.append(error)
                none = none and not isinstance(error, SAYS_LATER) and self._cloud.shows_none(one)
                # Whether it is to stay is not known. Only a Service that the provider refuses is
                # deleted as it was built: its owner may never mend it.
                if one is service and not none and not isinstance(error.__cause__, InvalidService):
                    settled = self._cloud.name(service)
        if errors:
            first = errors[0]
            # Some providers fail to delete what is not there. One look that shows none may be
            # wrong, as lists in the cloud lag behind; a second one after another failure counts.
            if not (none and absent):
                state = State.ABSENT if none else State.UNSURE
                self._records.put(key, evolve(self._records.get(key) or record, state=state))
                if not none:
                    self._cloud.failed(service, *failure, first)
                raise first
            log.info("Service %s: its deletion failed (%s), but the cloud has no load balancer any more", key, first)
        if not kept:  # else it is there, and is not deleted again
            self._recorder.event(service, "Normal", "DeletedLoadBalancer", "Deleted load balancer")
            self._deleted(record.others[0] if record.others else service)
        return evolve(view, record=self._records.put(key, evolve(record, state=State.GONE, others=())))

    def leave(self, key: str, view: ServiceView, step: Step) -> ServiceView:
        """Another manager took the Service over while the deletion failed. The note, finalizer and
        status are its own, and in the same cloud account the load balancer, too."""
        service, record = view.present, view.known
        points = changes.ingress(record.status)
        address = ", ".join(str(point.ip or point.hostname) for point in points) or "no address"
        message = (
            f"The manager of {named([changes.class_of(service)])} took this Service over before its load balancer was "
            f"deleted ({address}; UID of the Service {record.uid}). It is left alone: where both managers have one "
            "cloud account and --cluster-name, it is that manager's now. Where they have not, delete it in the cloud"
        )
        log.warning("Service %s: %s", key, message)
        self._recorder.event(service, "Warning", "LoadBalancerLeft", message)
        self._records.drop(key)
        return evolve(view, record=None, over=True)

    def _ask(
        self, key: str, service: V1Service, record: Record, way: str, one: V1Service, former: V1Service | None
    ) -> Exception | None:
        """Have the cloud delete what it has for `one`. None: it confirmed, or it is another
        controller's. Else what it answered, LoadBalancerKept too, of which `service` is told."""
        try:
            with self._cloud.delays(key, record, way):
                self._cloud.balancers.ensure_deleted(
                    self._cloud.cluster, one, began=record.asked[way].since, former=former
                )
        except ImplementedElsewhere:
            log.debug("Service %s: its load balancer is another controller's", key)
        except LoadBalancerKept as kept:
            message = f"The load balancer stays in the cloud: {kept}"
            self._recorder.event(service, "Normal", "LoadBalancerKept", message)
            return kept
        except (Parked, CallsClosed):
            raise
        except CLOUD_ERRORS as error:
            return error
        return None

    def _others(self, record: Record, service: V1Service) -> tuple[V1Service, ...]:
        """As which Services there may be a load balancer, besides as this one: as it was built, and
        as the cloud was asked since; by the note, where another process did that."""
        known = [one for one in (record.last_built, record.last_asked, record.found) if one is not None]
        if not (record.others or record.last_built or record.last_asked):
            known += self._cloud.former_services(service)
        return changes.distinct([*record.others, *(as_built(service, one) for one in known)], service)

    def forget(self, key: str, view: ServiceView, step: Step) -> ServiceView:
        self._records.drop(key)
        return evolve(view, record=None, tried=frozenset())  # what was done for the former one

    def remove_finalizer(self, key: str, view: ServiceView, step: Step) -> ServiceView:
        service, record = view.present, view.record
        if step.action is not Action.RELEASE:  # never ours: note and status are another's
            patch = changes.finalizer_removed_patch(service)
        elif view.classes.handed_over(service) is not None:
            patch = Patch()  # a manager of another class has it now: note and finalizer are its own
        else:
            patch = changes.release_patch(service, wanted=view.classes.wants(service))
            if self._conditions is not None and not view.classes.is_others(service):
                patch = self._conditions.removed(service, patch)  # else it is the other controller's
        with self._cloud.reporting(service, "failed to remove load balancer cleanup finalizer"):
            service = self._api.write(key, service, patch)
        if step.action is Action.RELEASE:
            record = evolve(view.known.after(service), state=State.RELEASED)
            self._records.put(key, record)
        return evolve(view, service=service, record=record, over=True)

    def keep_finalizer(self, key: str, view: ServiceView, step: Step) -> ServiceView:
        log.info(
            "Service %s: the cloud has no load balancer for it; its finalizer stays, it may be another's",
            key,
        )
        return evolve(view, over=True)
