"""Which Services are this manager's, by their `loadBalancerClass` (stages 3 and 4). Pure.

Several managers may serve one cluster, each its own classes, and all of them put the same finalizer
and the same annotation on Services. What tells them apart is the class: that of the Service, or,
once its type is another one, the class in our note."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Final

from attrs import field, frozen

from cloudprovider.helpers import has_load_balancer_finalizer, wants_load_balancer
from cloudprovider.wellknown import SERVICE_TYPE_LOAD_BALANCER
from controllers.runtime.cache import uid_of
from controllers.service.changes import SPEC, class_of, ingress, own_note, status_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_service import V1Service


class Ownership(Enum):
    """What a Service, by all that it shows, asks of us."""

    KEEP = "a load balancer of ours is to be there"
    REMOVE = "one that is ours is to go"
    ASK = "one is to go if the cloud has it; the Service shows no proof that it is ours"
    NONE = "nothing: it has none of ours"


def _set(names: Iterable[str]) -> frozenset[str]:
    return frozenset(names)


@frozen
class Classes:
    """The classes that this manager serves; "" stands for Services without one."""

    served: frozenset[str] = field(converter=_set)

    def wants(self, service: V1Service) -> bool:
        """Whether a load balancer of ours is wanted. Says nothing about a deletion."""
        return wants_load_balancer(service, self.served)

    def keeps(self, service: V1Service) -> bool:
        """Whether one is to be there: wanted, and the Service is not being deleted."""
        metadata = service.metadata
        return self.wants(service) and metadata is not None and metadata.deletion_timestamp is None

    def is_others(self, service: V1Service) -> bool:
        """Whether another controller's load balancer is wanted, by a class that is none of ours."""
        spec = service.spec
        return spec is not None and spec.type == SERVICE_TYPE_LOAD_BALANCER and not self.wants(service)

    def ownership(self, service: V1Service) -> Ownership:
        """What a Service asks of us. What this process did for it is not known here."""
        if self.keeps(service):
            return Ownership.KEEP
        if service.metadata is None or not has_load_balancer_finalizer(service):
            return Ownership.NONE
        # The finalizer's name is well known, so it proves nothing. Our note does, with the
        # Service's own UID in it: one that was copied or restored names another Service.
        note = own_note(service)
        if self.wants(service) or (note is not None and note.lb_class in self.served):
            return Ownership.REMOVE
        # The controller of that class has the same finalizer, and may be deleting its load balancer
        # behind it. So may another manager of this project, whose note it is.
        if self.is_others(service) or note is not None or "" not in self.served:
            return Ownership.NONE
        return Ownership.ASK

    def handed_over(self, service: V1Service) -> str | None:
        """The class of another manager of this project that has, by its note, the load balancer of
        this Service; None where there is no such."""
        note = own_note(service)
        if note is None or note.lb_class in self.served or self.wants(service):
            return None
        return note.lb_class if has_load_balancer_finalizer(service) else None

    def taken_over(self, service: V1Service) -> bool:
        """Whether the manager of the Service's present class builds for it now, by its note. With
        the same cloud account its load balancer has the name of the one that we had."""
        return self.is_others(service) and self.handed_over(service) == class_of(service)

    def waits_for_others(self, service: V1Service) -> bool:
        """Whether another manager has yet to delete what it built, when the Service was of another
        class. Our note in place of its own would take its proof away."""
        note = own_note(service)
        if note is None or note.lb_class in self.served or not has_load_balancer_finalizer(service):
            return False
        return note.lb_class != class_of(service)

    def relevant(self, service: V1Service, *, whole: bool = False) -> tuple[object, ...]:
        """Everything of the Service that may mean work; versions alike in it bring no work.
        `whole`: the provider may depend on all that its users write."""
        metadata, spec = service.metadata, service.spec
        wanted = self.wants(service)
        return (
            uid_of(service),
            wanted,
            metadata is not None and metadata.deletion_timestamp is not None,
            has_load_balancer_finalizer(service),
            self.ownership(service),
            *((getattr(spec, name) for name in SPEC) if wanted else ()),
            metadata.annotations if metadata is not None and wanted else None,
            (spec, metadata.labels) if whole and metadata is not None and wanted else None,
            # Another program may fill in a status, but it must not be missing.
            bool(ingress(status_of(service))) if wanted else None,
        )

    def __str__(self) -> str:
        return named(self.served)


WITHOUT_CLASS: Final = Classes([""])
"""What a manager serves that is told nothing else."""


def named(classes: Iterable[str]) -> str:
    """Classes, in words."""
    return ", ".join(sorted(f"class {one}" if one else "no class" for one in classes))
