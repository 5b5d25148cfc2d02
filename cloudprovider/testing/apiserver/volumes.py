"""PersistentVolumes: defaults, validation, the protection finalizer.

Follows pkg/apis/core/validation/validation.go, pkg/registry/core/persistentvolume and
plugin/pkg/admission/storage/storageobjectinuseprotection of k8s.io/kubernetes. Volume sources whose rules are
not known here are refused with 501.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Final

from cloudprovider.testing.apiserver.errors import (
    JSON,
    Cause,
    forbidden_value,
    invalid_value,
    not_implemented,
    not_supported,
    required,
)
from cloudprovider.testing.apiserver.kinds import Strategy
from cloudprovider.testing.apiserver.metadata import IMMUTABLE
from cloudprovider.testing.apiserver.names import dns_subdomain, qualified_name
from cloudprovider.testing.apiserver.quantity import amount
from cloudprovider.testing.apiserver.schema import format_time

PROTECTION: Final = "kubernetes.io/pv-protection"
_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_POLICIES: Final = ("Delete", "Recycle", "Retain")
_PLAIN: Final = frozenset(
    [
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    ]
)
_REQUIRED: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
    "awsElasticBlockStore": ("awsElasticBlockStore", ("volumeID",)),
    "azureDisk": ("azureDisk", ("diskName", "diskURI")),
    "cinder": ("cinder", ("volumeID",)),
    "csi": ("csi", ("driver", "volumeHandle")),
    "gcePersistentDisk": ("persistentDisk", ("pdName",)),
    "hostPath": ("hostPath", ("path",)),
    "local": ("local", ("path",)),
    "nfs": ("nfs", ("server", "path")),
    "vsphereVolume": ("vsphereVolume", ("volumePath",)),
}
"""Volume sources: the name in error paths, and the fields that must not be empty."""


_MOUNT_OPTIONS: Final = "volume.beta.kubernetes.io/mount-options"
_MOUNTABLE: Final = frozenset(
    ["awsElasticBlockStore", "azureDisk", "cinder", "gcePersistentDisk", "nfs", "vsphereVolume"]
)
_OLD_ANNOTATIONS: Final = {
    "volume.beta.kubernetes.io/storage-class": 'deprecated since v1.8; use "storageClassName" attribute instead',
    _MOUNT_OPTIONS: 'deprecated since v1.31; use "mountOptions" attribute instead',
}
_OLD_LABELS: Final = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
}
_FOLLOWERS: Final = {key: why.split('"')[1] for key, why in _OLD_LABELS.items()}
"""Labels by the deprecated ones that they follow."""


def _now() -> str:
    return format_time(datetime.now(UTC))


class VolumeStrategy(Strategy):
    """Rules of PersistentVolumes."""

    returns_deleted_object = True

    def __init__(self, now: Callable[[], str] = _now) -> None:
        self._now = now

    def default(self, obj: JSON) -> None:
        """Phase, reclaim policy, volume mode, host path type."""
        spec, status = obj["spec"], obj["status"]
        if "phase" not in status:
            obj["status"] = {**status, "phase": "Pending"}
        defaults: JSON = {}
        if "persistentVolumeReclaimPolicy" not in spec:
            defaults["persistentVolumeReclaimPolicy"] = "Retain"
        if "volumeMode" not in spec:
            defaults["volumeMode"] = "Filesystem"
        if "hostPath" in spec and "type" not in spec["hostPath"]:
            defaults["hostPath"] = {**spec["hostPath"], "type": ""}
        if defaults:
            obj["spec"] = {**spec, **defaults}

    def admit(self, obj: JSON) -> None:
        """A volume is protected from deletion while it is in use."""
        finalizers = obj["metadata"].get("finalizers") or []
        if PROTECTION not in finalizers:
            obj["metadata"]["finalizers"] = [*finalizers, PROTECTION]

    def prepare_create(self, obj: JSON) -> None:
        """New volumes are pending."""
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": self._now()}

    def prepare_status(self, obj: JSON, old: JSON) -> None:
        """The spec stays; a new phase gets its time."""
        obj["spec"] = old["spec"]
        status, before = obj["status"], old["status"]
        if status.get("phase") == before.get("phase"):
            if "lastPhaseTransitionTime" in before and "lastPhaseTransitionTime" not in status:
                obj["status"] = {**status, "lastPhaseTransitionTime": before["lastPhaseTransitionTime"]}
        elif status.get("lastPhaseTransitionTime") == before.get("lastPhaseTransitionTime"):
            obj["status"] = {**status, "lastPhaseTransitionTime": self._now()}

    def validate(self, obj: JSON) -> list[Cause]:
        """Access modes, capacity, policy, exactly one volume source."""
        spec = obj["spec"]
        causes = _access_modes(spec.get("accessModes") or ()) + _capacity(spec.get("capacity") or {})
        policy = spec.get("persistentVolumeReclaimPolicy")
        if policy and policy not in _POLICIES:
            causes.append(not_supported("spec.persistentVolumeReclaimPolicy", policy, _POLICIES))
        affinity = spec.get("nodeAffinity")
        if affinity is not None:
            causes += _node_affinity(affinity)
        causes += _sources(spec)
        if _MOUNT_OPTIONS in (obj["metadata"].get("annotations") or {}) and not _MOUNTABLE & spec.keys():
            why = "may not specify mount options for this volume type"
            causes.append(forbidden_value(f"metadata.annotations.{_MOUNT_OPTIONS}", why))
        storage_class = spec.get("storageClassName", "")
        if storage_class:
            causes += [
                invalid_value("spec.storageClassName", storage_class, why) for why in dns_subdomain(storage_class)
            ]
        mode = spec.get("volumeMode")
        if mode is not None and mode not in ("Block", "Filesystem"):
            causes.append(not_supported("spec.volumeMode", mode, ["Block", "Filesystem"]))
        return causes

    def validate_update(self, obj: JSON, old: JSON) -> list[Cause]:
        """The source of a volume does not change."""
        causes = self.validate(obj)
        spec, before = obj["spec"], old["spec"]
        if {key: spec[key] for key in spec if key not in _PLAIN} != {
            key: before[key] for key in before if key not in _PLAIN
        }:
            causes.append(
                forbidden_value(
                    "spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation\n"
                )
            )
        if spec.get("volumeMode") != before.get("volumeMode"):
            causes.append(invalid_value("volumeMode", spec.get("volumeMode"), IMMUTABLE))
        return causes + _affinity_step(spec.get("nodeAffinity"), before.get("nodeAffinity"))

    def warnings(self, obj: JSON) -> list[str]:
        """Deprecated policies, annotations and labels."""
        spec = obj["spec"]
        annotations = obj["metadata"].get("annotations") or {}
        found = [f"metadata.annotations[{key}]: {why}" for key, why in _OLD_ANNOTATIONS.items() if key in annotations]
        if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
            found.append(
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the "
                "recommended approach is to use dynamic provisioning."
            )
        terms = ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
        for at, term in enumerate(terms):
            for place, expression in enumerate(term.get("matchExpressions") or ()):
                why = _OLD_LABELS.get(expression["key"])
                if why is not None:
                    path = f"spec.nodeAffinity.required.nodeSelectorTerms[{at}].matchExpressions[{place}].key"
                    found.append(f"{path}: {expression['key']} is {why}")
        return found

    def validate_name(self, name: str) -> list[str]:
        """A DNS subdomain."""
        return dns_subdomain(name)


def _access_modes(modes: Sequence[str]) -> list[Cause]:
    path = "spec.accessModes"
    if not modes:
        return [required(path)]
    causes = [not_supported(path, mode, _MODES) for mode in modes if mode not in _MODES]
    if "ReadWriteOncePod" in modes and any(mode in _MODES and mode != "ReadWriteOncePod" for mode in modes):
        causes.append(forbidden_value(path, "may not use ReadWriteOncePod with other access modes"))
    return causes


def _capacity(capacity: Mapping[str, str]) -> list[Cause]:
    path = "spec.capacity"
    causes = [] if capacity else [required(path)]
    if set(capacity) != {"storage"}:
        causes.append(not_supported(path, dict(capacity), ["storage"]))
    for name, text in capacity.items():
        if amount(text) <= 0:
            causes.append(invalid_value(f"{path}[{name}]", text, "must be greater than zero"))
    return causes


def _sources(spec: JSON) -> list[Cause]:
    found = [name for name in spec if name not in _PLAIN]
    for name in found:
        if name not in _REQUIRED:
            raise not_implemented(f"volumes of the kind {name}")
    if not found:
        return [required("spec", "must specify a volume type")]
    causes = [forbidden_value(f"spec.{name}", "may not specify more than 1 volume type") for name in sorted(found)[1:]]
    name = sorted(found)[0]
    shown, fields = _REQUIRED[name]
    causes += [required(f"spec.{shown}.{field}") for field in fields if not spec[name].get(field)]
    if name in ("hostPath", "local") and ".." in spec[name].get("path", "").split("/"):
        causes.append(invalid_value(f"spec.{shown}.path", spec[name]["path"], "must not contain '..'"))
    if name == "local" and spec.get("nodeAffinity") is None:
        causes.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    return causes


def _node_affinity(affinity: JSON) -> list[Cause]:
    path = "spec.nodeAffinity.required"
    wanted = affinity.get("required")
    if wanted is None:
        return [required(path, "must specify required node constraints")]
    terms = wanted.get("nodeSelectorTerms") or []
    if not terms:
        return [required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")]
    causes: list[Cause] = []
    for at, term in enumerate(terms):
        if term.get("matchFields"):
            raise not_implemented("matchFields in a volume's nodeAffinity")
        for place, expression in enumerate(term.get("matchExpressions") or ()):
            here = f"{path}.nodeSelectorTerms[{at}].matchExpressions[{place}]"
            causes += _expression(here, expression)
    return causes


def _affinity_step(affinity: JSON | None, before: JSON | None) -> list[Cause]:
    """Once set it stays, but for the deprecated labels, which may become those that follow them."""
    if before is None or affinity == before or (affinity and _renewed(affinity, before) == affinity):
        return []
    detail = f"{IMMUTABLE}, except for updating from beta label to GA"
    return [invalid_value("nodeAffinity", _in_go(affinity), detail)]


def _renewed(affinity: JSON, before: JSON) -> JSON:
    """The old affinity with those keys replaced that the new one replaces too."""
    terms = []
    wanted = (affinity.get("required") or {}).get("nodeSelectorTerms") or []
    for at, term in enumerate((before.get("required") or {}).get("nodeSelectorTerms") or []):
        now = (wanted[at].get("matchExpressions") or []) if at < len(wanted) else []
        renewed = [
            {**old, "key": new["key"]} if _FOLLOWERS.get(old["key"]) == new["key"] else old
            for old, new in zip_longest(term.get("matchExpressions") or [], now, fillvalue={"key": ""})
        ]
        terms.append({**term, "matchExpressions": renewed} if "matchExpressions" in term else term)
    return {**before, "required": {**(before.get("required") or {}), "nodeSelectorTerms": terms}}


def _in_go(affinity: JSON | None) -> JSON | None:
    """An affinity as the real server's messages show it: its Go struct as JSON."""
    if affinity is None:
        return None
    terms = [
        {
            "MatchExpressions": [
                {"Key": one["key"], "Operator": one["operator"], "Values": one.get("values")}
                for one in term.get("matchExpressions") or ()
            ]
            or None,
            "MatchFields": None,
        }
        for term in (affinity.get("required") or {}).get("nodeSelectorTerms") or ()
    ]
    return {"Required": {"NodeSelectorTerms": terms or None} if affinity.get("required") is not None else None}


def _expression(path: str, expression: JSON) -> list[Cause]:
    operator, values, key = expression["operator"], expression.get("values") or (), expression["key"]
    causes: list[Cause] = []
    if operator in ("In", "NotIn") and not values:
        causes.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist") and values:
        causes.append(
            forbidden_value(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        )
    elif operator in ("Gt", "Lt") and len(values) != 1:
        causes.append(required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
    elif operator not in ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"):
        causes.append(invalid_value(f"{path}.operator", operator, "not a valid selector operator"))
    return causes + [invalid_value(f"{path}.key", key, why) for why in qualified_name(key)]
