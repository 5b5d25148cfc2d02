"""Namespaces: life cycle, the label with their name, protection of the system's own.

Follows pkg/registry/core/namespace and plugin/pkg/admission/namespace/lifecycle of k8s.io/kubernetes. There is
no namespace controller here (nor beside a bare kube-apiserver): a deleted namespace stays Terminating until its
finalizers are removed by /finalize.
"""

from __future__ import annotations

from typing import Final

from cloudprovider.testing.apiserver.errors import JSON, Cause, forbidden, invalid_value
from cloudprovider.testing.apiserver.kinds import Strategy
from cloudprovider.testing.apiserver.metadata import NOT_STANDARD, STANDARD_FINALIZERS
from cloudprovider.testing.apiserver.names import dns_label, qualified_name

PROTECTED: Final = ("default", "kube-public", "kube-system")
_NAME_LABEL: Final = "kubernetes.io/metadata.name"


class NamespaceStrategy(Strategy):
    """Rules of namespaces."""

    returns_deleted_object = True
    has_spec_finalizers = True

    def default(self, obj: JSON) -> None:
        """The phase, and the label that carries the name."""
        if "phase" not in obj["status"]:
            obj["status"] = {**obj["status"], "phase": "Active"}
        self._label(obj)

    def _label(self, obj: JSON) -> None:
        meta = obj["metadata"]
        name, labels = meta.get("name", ""), meta.get("labels") or {}
        if name and labels.get(_NAME_LABEL) != name:
            meta["labels"] = {**labels, _NAME_LABEL: name}

    def prepare_create(self, obj: JSON) -> None:
        """Active, and held by the finalizer `kubernetes`."""
        finalizers = obj["spec"].get("finalizers") or []
        if "kubernetes" not in finalizers:
            obj["spec"] = {**obj["spec"], "finalizers": [*finalizers, "kubernetes"]}
        obj["status"] = {"phase": "Active"}
        self._label(obj)

    def prepare_update(self, obj: JSON, old: JSON) -> None:
        """Neither status nor the finalizers of the spec change this way."""
        obj["spec"], obj["status"] = old["spec"], old["status"]

    def prepare_finalize(self, obj: JSON, old: JSON) -> None:
        """/finalize changes the finalizers of the spec only."""
        obj["status"] = old["status"]

    def validate(self, obj: JSON) -> list[Cause]:
        """The finalizers of the spec."""
        causes: list[Cause] = []
        for finalizer in obj["spec"].get("finalizers") or ():
            causes += [invalid_value("spec.finalizers", finalizer, why) for why in qualified_name(finalizer)]
            if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
                causes.append(invalid_value("spec.finalizers", finalizer, NOT_STANDARD))
        return causes

    def validate_status(self, obj: JSON, old: JSON) -> list[Cause]:
        """The phase must agree with the deletion."""
        phase = obj["status"].get("phase", "")
        if obj["metadata"].get("deletionTimestamp"):
            why = "may only be 'Terminating' if `deletionTimestamp` is not empty"
            return [] if phase == "Terminating" else [invalid_value("status.Phase", phase, why)]
        why = "may only be 'Active' if `deletionTimestamp` is empty"
        return [] if phase == "Active" else [invalid_value("status.Phase", phase, why)]

    def validate_name(self, name: str) -> list[str]:
        """A DNS label."""
        return dns_label(name)

    def admit_delete(self, obj: JSON) -> None:
        """The system's namespaces may not be deleted. Raises StatusError (403)."""
        name = obj["metadata"]["name"]
        if name in PROTECTED:
            raise forbidden("", "namespaces", name, "this namespace may not be deleted")

    def mark_deleted(self, obj: JSON) -> None:
        """Deletion starts with the phase."""
        obj["metadata"].pop("deletionGracePeriodSeconds", None)
        obj["status"] = {**obj["status"], "phase": "Terminating"}
