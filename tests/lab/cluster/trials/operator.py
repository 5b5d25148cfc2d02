"""What the manager's Events ask people for when a machine was replaced under its name."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from tests.lab.cluster.cluster import Cluster
from tests.lab.cluster.trials.manager import restart_kubelet
from tests.support.api import NODES

REGISTERS_WITHIN = 20.0
"""Seconds that a machine may run without a Node until its kubelet is started again."""

ASKING = ("InstanceRecreated", "ReadyNodeSaidToBeGone", "FailedToRefreshNode")
"""The last one where a new leader has not seen which machine the node was on before."""

JSON = Mapping[str, Any]


class Operator:
    """Does what the Events InstanceRecreated and ReadyNodeSaidToBeGone ask for.

    A new machine's kubelet has gone on with the Node of the one that is gone, and the manager
    deletes no such Node: it is deleted. Then that kubelet does not register by itself: it is
    started again.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.restarts = 0
        self.deleted = 0
        self._cluster = cluster
        self._missing: dict[str, float] = {}

    def act(self, machines: Iterable[JSON]) -> None:
        """Look once; `machines` are the cloud's."""
        present = list(machines)
        api = self._cluster.api
        nodes = api.items(NODES)
        for name in asked_to_delete(nodes, api.items("/api/v1/events"), {f"localcloud://{m['id']}" for m in present}):
            api.delete(f"{NODES}/{name}")
            self.deleted += 1
        running = {one["name"] for one in present if one["state"] == "running"}
        now = time.monotonic()
        absent = running - {node["metadata"]["name"] for node in nodes}
        self._missing = {name: self._missing.get(name, now) for name in absent}
        for name, since in self._missing.items():
            if now - since > REGISTERS_WITHIN:
                restart_kubelet(self._cluster, name)
                self._missing[name] = now
                self.restarts += 1


def asked_to_delete(nodes: Iterable[JSON], events: Iterable[JSON], provider_ids: set[str]) -> list[str]:
    """The nodes whose instance is none of these, and about which there is such an Event."""
    told = {one["involvedObject"].get("uid") for one in events if one["reason"] in ASKING}
    return [
        node["metadata"]["name"]
        for node in nodes
        if node["metadata"]["uid"] in told and node["spec"].get("providerID") not in provider_ids
    ]
