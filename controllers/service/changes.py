"""What a Service asks for, and of whom; the note of what was applied; patches (stages 4 and 6).
Pure.

The note is an annotation on the Service, for the next process. Before the first call to the cloud
it says that the load balancer is ours, with the finalizer and in one write; after the call, in one
write with the status, it has a digest of what the load balancer was built from, and one of its
targets.

Several managers may serve one cluster, each its own classes, and all of them put the same finalizer
and the same annotation on Services. What tells them apart is the class: that of the Service, or,
once its type is another one, the class in our note."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import field, frozen
from kubernetes.client.models.v1_service_status import V1ServiceStatus

from cloudprovider.helpers import (
    annotations_of,
    has_load_balancer_finalizer,
    load_balancer_status_equal,
    wants_load_balancer,
)
from cloudprovider.wellknown import LOAD_BALANCER_CLEANUP_FINALIZER, SERVICE_TYPE_LOAD_BALANCER
from controllers.runtime.api import STRATEGIC_PATCH
from controllers.runtime.cache import uid_of
from controllers.runtime.write import Patch, combined, finalizer_added, finalizer_removed, to_json

if TYPE_CHECKING:
    from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
    from kubernetes.client.models.v1_service import V1Service

APPLIED: Final = "kubernetes-cloud-provider/applied-load-balancer"
"""Annotation on Services: what was applied to the load balancer. Must never change."""

SPEC: Final = (
    "ports", "session_affinity", "session_affinity_config", "load_balancer_ip", "load_balancer_source_ranges",
    "external_ips", "external_traffic_policy", "health_check_node_port", "ip_families",
    "allocate_load_balancer_node_ports",
)  # fmt: skip
"""The fields of the spec that load balancers depend on: those of Go's needsUpdate."""
_NOTE: Final = re.compile(
    r"v2 uid=([!-~]{1,100}) spec=([0-9a-f]{16}|none) nodes=([0-9a-f]{16}|none)"
    r"(?: class=([!-~]{1,400}))?(?: annotations=(\[.*\]))?"
)
_NOTHING: Final = "none"
_MOST_NOTED: Final = 8000  # characters, of all annotations together; with more, none is noted
_OF_NO_PROVIDER: Final = frozenset({APPLIED, "kubectl.kubernetes.io/last-applied-configuration"})

NotedAnnotations: TypeAlias = "tuple[Mapping[str, str], ...]"
"""Annotations that tell load balancers of one Service apart, by load balancer."""


@frozen
class Scope:
    """What all Services of a cluster share, as far as their load balancers depend on it."""

    cluster_name: str
    kube_system_uid: str
    """UID of the namespace kube-system; "" where it may not be read."""
    revision: str
    """The provider's word for how it builds."""


def _short_enough(annotations: NotedAnnotations) -> NotedAnnotations:
    return annotations if any(annotations) and len(_compact(annotations)) <= _MOST_NOTED else ()


@frozen
class Note:
    """What the annotation says."""

    uid: str
    """UID of the Service that it was written for."""
    spec: str = _NOTHING
    """Fingerprint that the cloud confirmed; "none" while it is asked to build."""
    nodes: str = _NOTHING
    """Digest of the targets that the cloud confirmed."""
    annotations: NotedAnnotations = field(default=(), converter=_short_enough)
    """With which annotations the cloud may have built one, the present ones last; none where the
    load balancer's name does not depend on them. Empty: it never did, or an older note."""
    lb_class: str = ""
    """Class of the Service that it was written for; "" without one."""

    def __str__(self) -> str:
        lb_class = f" class={self.lb_class}" if self.lb_class else ""
        annotations = f" annotations={_compact(self.annotations)}" if self.annotations else ""
        return f"v2 uid={self.uid} spec={self.spec} nodes={self.nodes}{lb_class}{annotations}"


def class_of(service: V1Service) -> str:
    """The class of a Service; "" without one."""
    return (service.spec.load_balancer_class if service.spec is not None else None) or ""


def fingerprint(service: V1Service, scope: Scope, depends_on: str = "") -> str:
    """A digest of everything of the Service that its load balancer depends on, by the host's word
    and the provider's."""
    spec = service.spec
    content: dict[str, Any] = {
        "uid": uid_of(service),
        "scope": [scope.cluster_name, scope.kube_system_uid, scope.revision],
        "spec": {name: _plain(getattr(spec, name)) for name in SPEC},
        # Our own note changes with each call: with it no digest would ever be the same again.
        "annotations": {key: value for key, value in annotations_of(service).items() if key != APPLIED},
    }
    # Absent, not empty: without the hook the digest is that of earlier versions.
    if depends_on:
        content["provider"] = depends_on
    if lb_class := class_of(service):  # what has none keeps the digest of earlier versions
        content["class"] = lb_class
    return hashlib.sha256(_compact(content).encode()).hexdigest()[:16]


def note_of(service: V1Service) -> Note | None:
    """What the annotation says was applied; None without one, and for one that cannot be read."""
    found = _NOTE.fullmatch(annotations_of(service).get(APPLIED, ""))
    if found is None:
        return None
    try:
        annotations = json.loads(found[5] or "[]")
    except (ValueError, RecursionError):  # brackets nest as deep as its owner likes
        return None
    # Anybody who may edit the Service may write it, so it is read like a stranger's.
    if not all(isinstance(each, dict) and all(isinstance(one, str) for one in each.values()) for each in annotations):
        return None
    return Note(found[1], found[2], found[3], tuple(annotations), found[4] or "")


def own_note(service: V1Service) -> Note | None:
    """The note, if it was written for this very Service: one that was copied names another."""
    note = note_of(service)
    return note if note is not None and note.uid == uid_of(service) else None


def trusted_note(service: V1Service, wanted: str) -> Note | None:
    """The note, if it is worth asking the cloud whether it still holds: for this fingerprint, with
    our finalizer and a status on the Service. Anything else means that a load balancer may be half
    built, or another's."""
    note = note_of(service)
    if note is None or note.spec != wanted or not has_load_balancer_finalizer(service):
        return None
    return note if ingress(status_of(service)) else None


def shows_built(service: V1Service, shown: V1LoadBalancerStatus | None) -> bool:
    """Whether what the cloud shows is that load balancer: by our note, or as it has the address
    that the Service has. Without any address it is half built."""
    if not ingress(shown):
        return False
    return own_note(service) is not None or load_balancer_status_equal(shown, status_of(service))


def as_built(service: V1Service, built: V1Service) -> V1Service:
    """The Service as its load balancer was built: spec and annotations of then, the rest of now.
    Providers find the load balancer by either."""
    return annotated(service, annotations_of(built)).model_copy(update={"spec": built.spec})


def annotated(service: V1Service, annotations: Mapping[str, str]) -> V1Service:
    """The Service with these annotations in place of its own."""
    metadata = service.metadata
    assert metadata is not None, "it has a UID"
    metadata = metadata.model_copy(update={"annotations": dict(annotations)})
    return service.model_copy(update={"metadata": metadata})


def with_status(service: V1Service, status: V1LoadBalancerStatus | None) -> V1Service:
    """The Service with this status of its load balancer."""
    return service.model_copy(update={"status": V1ServiceStatus(load_balancer=status)})


def provider_annotations(service: V1Service) -> dict[str, str]:
    """Its annotations, without those that no provider reads."""
    return {key: value for key, value in annotations_of(service).items() if key not in _OF_NO_PROVIDER}


def distinct(services: Iterable[V1Service], present: V1Service) -> tuple[V1Service, ...]:
    """Those whose annotations are others than the present ones, and than each other's."""
    found: list[V1Service] = []
    for one in services:
        if all(provider_annotations(one) != provider_annotations(other) for other in (present, *found)):
            found.append(one)
    return tuple(found)


def status_of(service: V1Service) -> V1LoadBalancerStatus | None:
    """The load balancer's status, as the Service has it."""
    return service.status.load_balancer if service.status is not None else None


def ingress(status: V1LoadBalancerStatus | None) -> list[Any]:
    """The ingress points of a status."""
    return list((status.ingress if status is not None else None) or ())


# ---- whose a Service is


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
        # The finalizer goes when that manager has deleted: a note without it is history.
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


# ---- patches


def claim_patch(service: V1Service, annotations: NotedAnnotations = (), *, keep_note: bool) -> Patch:
    """Before the cloud is asked to build: our finalizer is on; and, unless the note stays true
    whatever comes of it, it says that the load balancer is ours, and no longer what was applied."""
    metadata = service.metadata
    present = metadata.finalizers if metadata is not None else None
    claim = Note(uid_of(service), annotations=annotations, lb_class=class_of(service))
    note = Patch() if keep_note else _annotation(service, claim)
    return combined(finalizer_added(present, LOAD_BALANCER_CLEANUP_FINALIZER), note)


def status_patch(service: V1Service, status: V1LoadBalancerStatus | None, note: Note | None) -> Patch:
    """The status and the note of what was applied (None: as it is) in one write to it."""
    body: dict[str, Any] = dict(_annotation(service, note).body) if note is not None else {}
    if status is not None and not load_balancer_status_equal(status_of(service), status):
        body["status"] = {"loadBalancer": {"ingress": [to_json(point) for point in ingress(status)] or None}}
    return Patch(body, STRATEGIC_PATCH, "status")


def release_patch(service: V1Service, *, wanted: bool) -> Patch:
    """After the cloud confirmed the deletion: status, note and finalizer go in one write to
    /status.

    Not the status of a Service that wants none of ours (`wanted`): the API server took ours off
    when the type changed, and what is there now is another controller's."""
    gone: dict[str, Any] = {}
    if ingress(status_of(service)) and wanted:
        gone = {"status": {"loadBalancer": {"ingress": None}}}
    patch = combined(finalizer_removed_patch(service), _annotation(service, None), Patch(gone, STRATEGIC_PATCH))
    return Patch(patch.body, STRATEGIC_PATCH, "status")


def finalizer_removed_patch(service: V1Service) -> Patch:
    """The finalizer goes, and nothing else."""
    present = service.metadata.finalizers if service.metadata is not None else None
    return finalizer_removed(present, LOAD_BALANCER_CLEANUP_FINALIZER)


def _annotation(service: V1Service, note: Note | None) -> Patch:
    before, after = annotations_of(service).get(APPLIED), None if note is None else str(note)
    body = {} if before == after else {"metadata": {"annotations": {APPLIED: after}}}
    return Patch(body, STRATEGIC_PATCH)


def _compact(content: object) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """JSON of a field of the spec; lists of a model's, and None and "nothing in it" alike."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value] or None
    return to_json(value) if hasattr(value, "model_dump") else value
