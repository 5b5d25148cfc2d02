"""Nodes: what the real server defaults, admits and refuses for them.

Follows pkg/apis/core/validation/validation.go and plugin/pkg/admission/nodetaint of k8s.io/kubernetes.
"""

from __future__ import annotations

from typing import Final

from cloudprovider.testing.apiserver.errors import JSON
from cloudprovider.testing.apiserver.kinds import Strategy

NOT_READY: Final = "node.kubernetes.io/not-ready"


class NodeStrategy(Strategy):
    """Rules of nodes."""

    def default(self, obj: JSON) -> None:
        """Allocatable defaults to capacity."""
        status = obj["status"]
        if "capacity" in status and "allocatable" not in status:
            obj["status"] = {**status, "allocatable": dict(status["capacity"])}

    def admit(self, obj: JSON) -> None:
        """Every new node starts with the not-ready taint."""
        taints = obj["spec"].get("taints") or []
        wanted = {"key": NOT_READY, "effect": "NoSchedule"}
        if not any(taint["key"] == NOT_READY and taint["effect"] == "NoSchedule" for taint in taints):
            obj["spec"] = {**obj["spec"], "taints": [*taints, wanted]}
