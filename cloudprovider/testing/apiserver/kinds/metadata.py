"""Rules for `metadata` that all kinds share: names, labels, annotations, finalizers, and what an
update may change. Owners, which no cloud controller writes, are not checked.

Called by `operations` for every write; pure. Follows k8s.io/apimachinery
pkg/api/validation/objectmeta.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cloudprovider.testing.apiserver.errors import (
    JSON,
    Cause,
    forbidden_value,
    invalid_value,
    required,
    too_long,
)
from cloudprovider.testing.apiserver.kinds.kind import Kind
from cloudprovider.testing.apiserver.kinds.names import dns_label, label_value, path_segment, qualified_name

_ANNOTATION_LIMIT: Final = 256 * 1024

STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")
NOT_STANDARD: Final = "name is neither a standard finalizer name nor is it fully qualified"
IMMUTABLE: Final = "field is immutable"


def validate_labels(labels: Mapping[str, str], path: str) -> list[Cause]:
    """Keys are qualified names, values label values."""
    causes: list[Cause] = []
    for key, value in labels.items():
        causes += [invalid_value(path, key, why) for why in qualified_name(key)]
        causes += [invalid_value(path, value, why) for why in label_value(value)]
    return causes


def validate(meta: JSON, kind: Kind) -> list[Cause]:
    """What is wrong with an object's metadata by itself."""
    causes: list[Cause] = []
    name = meta.get("name", "")
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    else:
        why_not = [*path_segment(name), *kind.strategy.validate_name(name)]
        causes += [invalid_value("metadata.name", name, why) for why in why_not]
    if kind.namespaced:
        causes += [invalid_value("metadata.namespace", meta["namespace"], why) for why in dns_label(meta["namespace"])]
    elif meta.get("namespace"):
        causes.append(forbidden_value("metadata.namespace", "not allowed on this type"))
    causes += validate_labels(meta.get("labels") or {}, "metadata.labels")
    annotations = meta.get("annotations") or {}
    for key in annotations:
        causes += [invalid_value("metadata.annotations", key, why) for why in qualified_name(key.lower())]
    # In bytes and over all of them, as etcd counts.
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATION_LIMIT:
        causes.append(too_long("metadata.annotations", _ANNOTATION_LIMIT))
    finalizers = meta.get("finalizers") or ()
    for finalizer in finalizers:
        causes += [invalid_value("metadata.finalizers", finalizer, why) for why in qualified_name(finalizer)]
    # Kinds of the core group alone know which finalizers are standard ones.
    if kind.strategy.has_core_metadata:
        for at, finalizer in enumerate(finalizers):
            if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
                causes.append(invalid_value(f"metadata.finalizers[{at}]", finalizer, NOT_STANDARD))
    return causes


def carry_over(meta: JSON, old: Mapping[str, Any]) -> None:
    """Keep what an update may leave out: UID, creation and deletion times, generation."""
    if not meta.get("uid"):
        meta["uid"] = old.get("uid", "")
    for field in ("creationTimestamp", "generation"):
        if field in old:
            meta[field] = old[field]
        else:
            meta.pop(field, None)
    if old.get("deletionTimestamp"):
        meta["deletionTimestamp"] = old["deletionTimestamp"]
    if old.get("deletionGracePeriodSeconds") is not None and meta.get("deletionGracePeriodSeconds") is None:
        meta["deletionGracePeriodSeconds"] = old["deletionGracePeriodSeconds"]


def validate_update(meta: JSON, old: Mapping[str, Any], kind: Kind) -> list[Cause]:
    """What is wrong with updated metadata: rules by itself, then what may not change."""
    causes: list[Cause] = []
    # What is stored was checked when it came; a rule that is new must not keep it from being
    # changed.
    if any(meta.get(field) != old.get(field) for field in _CHECKED):
        causes += validate(meta, kind)
    if old.get("deletionTimestamp"):
        # A controller that is late would hold a deletion that others have finished.
        extra = sorted(set(meta.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if extra:
            listed = "[]string{" + ", ".join(f'"{one}"' for one in extra) + "}"
            detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {listed}"
            causes.append(forbidden_value("metadata.finalizers", detail))
    for field in ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if meta.get(field) != old.get(field):
            causes.append(invalid_value(f"metadata.{field}", meta.get(field), IMMUTABLE))
    return causes


_CHECKED: Final = ("labels", "annotations", "finalizers", "ownerReferences", "name", "namespace", "generateName")
