"""The kubelets of an embedded API server's Nodes, as far as a cloud-controller-manager sees them.

They work on the server's store, without HTTP. What kube-controller-manager does for new Nodes is
done here too: it gives each a range for its pods, and takes the taint not-ready away.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from cloudprovider.internal.patching import STRATEGIC_PATCH
from cloudprovider.testing import objects
from cloudprovider.testing.apiserver import EmbeddedAPIServer, StatusError
from cloudprovider.wellknown import TAINT_NODE_NOT_READY

__all__ = ["LEASE_NAMESPACE", "MOST_NODES", "Kubelets"]

LEASE_NAMESPACE: Final = "kube-node-lease"
MOST_NODES: Final = 250
"""Ranges for pods that 10.244.0.0/16 has, one a node."""
_LEASE_SECONDS: Final = 40  # a kubelet's default, as is the period of its reports
_REPORT_SECONDS: Final = 300.0
_NOT_FOUND, _CONFLICT = 404, 409


def _now() -> datetime:
    return datetime.now(UTC)


class Kubelets:
    """The kubelets of some Nodes. For one thread.

    `join` registers a Node. `beat`, to be called every 10 s, renews each kubelet's Lease, and every
    five minutes the time of the condition Ready.

    A Node whose Ready somebody set to another status stays as it was set: that is how a kubelet
    falls silent. A Node that was deleted stays deleted, as a running kubelet registers once. One
    that was created again by that name is made ready.
    """

    def __init__(self, server: EmbeddedAPIServer, now: Callable[[], datetime] = _now) -> None:
        self._server = server
        self._now = now
        self._reported: dict[str, datetime] = {}

    def join(self, name: str, provider_id: str = "") -> None:
        """Register a Node that waits for its cloud provider, as a kubelet with
        --cloud-provider=external does.

        `provider_id`: what the kubelet has in --provider-id, mostly nothing. Raises StatusError,
        for a name that is taken or no node name, and ValueError beyond `MOST_NODES`.
        """
        if len(self._reported) == MOST_NODES:
            raise ValueError(f"there is no range of pod addresses left for node {name}: {MOST_NODES} nodes have one")
        cidr = f"10.244.{len(self._reported) + 1}.0/24"
        self._server.create(objects.node(name, provider_id=provider_id, pod_cidrs=[cidr]))
        self._reported[name] = self._now()
        self._beat(name)

    def beat(self) -> None:
        """Renew what a kubelet renews, for every Node that is there. Where a client of the server
        changes or deletes the same object in that moment, the next beat looks again."""
        for name in self._reported:
            self._beat(name)

    def _beat(self, name: str) -> None:
        try:
            node = self._server.get("nodes", name)
        except KeyError:
            return  # its Lease stays, as a kubelet's that still runs
        try:
            self._settle(name, node)
        except StatusError as error:
            if error.code not in (_NOT_FOUND, _CONFLICT):
                raise

    def _settle(self, name: str, node: dict[str, Any]) -> None:
        conditions = {one["type"]: one["status"] for one in node["status"].get("conditions") or ()}
        ready = conditions.get("Ready")
        if ready is None:
            self._report(name, objects.ready_condition(True))
        elif ready == "True" and (self._now() - self._reported[name]).total_seconds() >= _REPORT_SECONDS:
            # only the time: a status that somebody sets meanwhile is theirs
            self._report(name, {"type": "Ready", "lastHeartbeatTime": self._now().strftime("%Y-%m-%dT%H:%M:%SZ")})
        if ready in ("True", None):
            self._renew(name)
            self._tolerated(node)

    def _report(self, name: str, condition: dict[str, Any]) -> None:
        body = {"status": {"conditions": [condition]}}
        self._server.patch("nodes", name, body, subresource="status", content_type=STRATEGIC_PATCH)
        self._reported[name] = self._now()

    def _renew(self, name: str) -> None:
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        try:
            self._server.patch("leases", name, {"spec": spec}, LEASE_NAMESPACE)
        except StatusError as error:
            if error.reason != "NotFound":
                raise
            meta = {"name": name, "namespace": LEASE_NAMESPACE}
            self._server.create(
                {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
            )

    def _tolerated(self, node: dict[str, Any]) -> None:
        """Without the taint not-ready. Taints are one list, which the manager writes too. Raises
        StatusError after a conflict."""
        taints = node["spec"].get("taints") or []
        left = [taint for taint in taints if taint["key"] != TAINT_NODE_NOT_READY]
        if left == taints:
            return
        meta = node["metadata"]
        body = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "spec": {"taints": left}}
        self._server.patch("nodes", meta["name"], body)
