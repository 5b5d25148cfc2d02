"""Rules for `metadata` that all kinds share: names, labels, annotations, finalizers, owners, and what an update may change.

Called by `operations` for every write; pure. Follows k8s.io/apimachinery pkg/api/validation/objectmeta.go.
"""

from __future__ import annotations

import re
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
from cloudprovider.testing.apiserver.kinds import Kind

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_ANNOTATION_LIMIT: Final = 256 * 1024

IMMUTABLE: Final = "field is immutable"


def dns_label(text: str) -> list[str]:
    """Why this is no DNS label (RFC 1123); empty if it is one."""
    found = [] if len(text) <= 63 else ["must be no more than 63 bytes"]
    if not _LABEL.fullmatch(text):
        found.append(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
            "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
            "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        )
    return found


def dns_label_1035(text: str) -> list[str]:
    """Why this is no DNS label (RFC 1035: starts with a letter)."""
    found = [] if len(text) <= 63 else ["must be no more than 63 bytes"]
    if not _LABEL_1035.fullmatch(text):
        found.append(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
            "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
            "'[a-z]([-a-z0-9]*[a-z0-9])?')"
        )
    return found


def dns_subdomain(text: str) -> list[str]:
    """Why this is no DNS subdomain (RFC 1123)."""
    found = [] if len(text) <= 253 else ["must be no more than 253 bytes"]
    if not _SUBDOMAIN.fullmatch(text):
        found.append(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
            "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
            "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        )
    return found


def path_segment(text: str) -> list[str]:
    """Why this cannot be one part of a URL path."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{bad}'" for bad in "/%" if bad in text]


def qualified_name(text: str) -> list[str]:
    """Why this is no label key: `name` or `prefix/name`."""
    rule = (
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
        "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    )
    parts = text.split("/")
    found: list[str] = []
    if len(parts) == 2:
        if not parts[0]:
            found.append("prefix part must be non-empty")
        else:
            found += [f"prefix part {why}" for why in dns_subdomain(parts[0])]
    elif len(parts) > 2:
        return [
            "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. "
            "'example.com/MyName')"
        ]
    name = parts[-1]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > 63:
        found.append("name part must be no more than 63 bytes")
    if not _NAME.fullmatch(name):
        found.append(rule)
    return found


def label_value(text: str) -> list[str]:
    """Why this is no label value."""
    found = [] if len(text) <= 63 else ["must be no more than 63 bytes"]
    if text and not _NAME.fullmatch(text):
        found.append(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
            "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
            "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        )
    return found


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
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATION_LIMIT:
        causes.append(too_long("metadata.annotations", _ANNOTATION_LIMIT))
    causes += _owners(meta.get("ownerReferences") or ())
    for finalizer in meta.get("finalizers") or ():
        causes += [invalid_value("metadata.finalizers", finalizer, why) for why in qualified_name(finalizer)]
    return causes


def _owners(references: Any) -> list[Cause]:
    causes: list[Cause] = []
    path = "metadata.ownerReferences"
    for reference in references:
        for field, why in (("apiVersion", "version must not be empty"), ("kind", "must not be empty"),
                           ("name", "must not be empty"), ("uid", "must not be empty")):  # fmt: skip
            if not reference.get(field):
                causes.append(invalid_value(f"{path}.{field}", reference.get(field, ""), why))
    return causes


def carry_over(meta: JSON, old: Mapping[str, Any]) -> None:
    """Take over what an update cannot change but may leave out: UID, creation and deletion times, generation."""
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
    """What is wrong with updated metadata: rules by itself, then what may not change. `carry_over` came before."""
    causes: list[Cause] = []
    if any(meta.get(field) != old.get(field) for field in _CHECKED):
        causes += validate(meta, kind)
    if old.get("deletionTimestamp"):
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
