"""Nodes: what the real server defaults, admits and refuses for them.

Follows pkg/apis/core/validation/validation.go, pkg/registry/core/node and
plugin/pkg/admission/nodetaint of k8s.io/kubernetes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cloudprovider.testing.apiserver.errors import (
    JSON,
    Cause,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)
from cloudprovider.testing.apiserver.kinds.kind import Strategy
from cloudprovider.testing.apiserver.kinds.names import cidr_problem, dns_subdomain, label_value, qualified_name

NOT_READY: Final = "node.kubernetes.io/not-ready"
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class NodeStrategy(Strategy):
    """Rules of nodes."""

    def default(self, obj: JSON) -> None:
        """Allocatable defaults to capacity."""
        status = obj["status"]
        # A kubelet reports both; a Node that a test or a cloud creates has the one at most.
        if "capacity" in status and "allocatable" not in status:
            obj["status"] = {**status, "allocatable": status["capacity"]}
        _pair_pod_cidrs(obj)

    def admit(self, obj: JSON) -> None:
        """Every new node starts with the not-ready taint."""
        taints = obj["spec"].get("taints") or []
        if not any(taint["key"] == NOT_READY and taint["effect"] == "NoSchedule" for taint in taints):
            obj["spec"] = {**obj["spec"], "taints": [*taints, {"key": NOT_READY, "effect": "NoSchedule"}]}

    def validate(self, obj: JSON) -> list[Cause]:
        """Taints and pod CIDRs."""
        spec = obj["spec"]
        causes = _taints(spec.get("taints") or ())
        cidrs = spec.get("podCIDRs") or []
        for at, cidr in enumerate(cidrs):
            causes += [invalid_value(f"spec.podCIDRs[{at}]", cidr, why) for why in cidr_problem(cidr)]
        if len(cidrs) > 1 and not causes and (len(cidrs) > 2 or len({":" in cidr for cidr in cidrs}) < 2):
            causes.append(invalid_value("spec.podCIDRs", cidrs, "may specify no more than one CIDR for each IP family"))
        return causes

    def validate_update(self, obj: JSON, old: JSON) -> list[Cause]:
        """The rules of a new node, and what may not change."""
        # A status update has the very object: no need to check hundreds of taints for each
        # heartbeat.
        same = obj["spec"] is old["spec"] or obj["spec"] == old["spec"]
        return ([] if same else self.validate(obj)) + self._step(obj, old)

    def validate_status(self, obj: JSON, old: JSON) -> list[Cause]:
        """Addresses."""
        return self._step(obj, old)

    def _step(self, obj: JSON, old: JSON) -> list[Cause]:
        status, spec, before = obj["status"], obj["spec"], old["spec"]
        causes: list[Cause] = []
        if status is not old["status"]:
            causes += _duplicate_addresses(status.get("addresses") or ())
        held = before.get("podCIDRs") or []
        # Pods run with addresses of it: who has given a range once cannot take it back.
        if held and held != (spec.get("podCIDRs") or []):
            causes.append(
                forbidden_value("spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid')
            )
        # It would become another machine's node: for that it has to be created again.
        if before.get("providerID") and before["providerID"] != spec.get("providerID", ""):
            causes.append(
                forbidden_value("spec.providerID", 'node updates may not change providerID except from "" to valid')
            )
        if spec.get("externalID", "") != before.get("externalID", ""):
            causes.append(forbidden_value("spec.externalID", "may not be updated"))
        return causes

    def validate_name(self, name: str) -> list[str]:
        """A DNS subdomain."""
        return dns_subdomain(name)


def _pair_pod_cidrs(obj: JSON) -> None:
    """`podCIDR` and `podCIDRs` are one field in the server: the list wins, its first entry is shown
    as the single one.
    """
    spec = obj["spec"]
    single, several = spec.get("podCIDR", ""), spec.get("podCIDRs") or []
    if not single and not several:
        return
    # An old client knows the single field alone, and what it says counts.
    if not several or (single and single != several[0]):
        several = [single]
    if spec.get("podCIDR") != several[0] or spec.get("podCIDRs") != several:
        obj["spec"] = {**spec, "podCIDR": several[0], "podCIDRs": several}


def _taints(taints: Sequence[JSON]) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[tuple[str, str]] = set()
    for at, taint in enumerate(taints):
        path = f"metadata.taints[{at}]"  # the real server names it so
        key, value, effect = taint["key"], taint.get("value", ""), taint["effect"]
        causes += [invalid_value(f"{path}.key", key, why) for why in qualified_name(key)]
        wrong = label_value(value)
        if wrong:
            causes.append(invalid_value(f"{path}.value", value, ";".join(wrong)))
        if not effect:
            causes.append(required(f"{path}.effect"))
        elif effect not in _EFFECTS:
            causes.append(not_supported(f"{path}.effect", effect, _EFFECTS))
        if (key, effect) in seen:
            shown = f'{{"Key":"{key}","Value":"{value}","Effect":"{effect}","TimeAdded":null}}'
            message = f"Duplicate value: {shown}: taints must be unique by key and effect pair"
            causes.append(Cause("FieldValueDuplicate", message, path))
        seen.add((key, effect))
    return causes


def _duplicate_addresses(addresses: Sequence[JSON]) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[tuple[Any, Any]] = set()
    for at, address in enumerate(addresses):
        pair = (address["type"], address["address"])
        if pair in seen:
            shown = f'{{"Type":"{pair[0]}","Address":"{pair[1]}"}}'
            causes.append(Cause("FieldValueDuplicate", f"Duplicate value: {shown}", f"status.addresses[{at}]"))
        seen.add(pair)
    return causes
