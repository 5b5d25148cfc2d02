"""The demo's cluster: nodes as kubelets register them, joining one after the other, and the fake cloud behind them.

Data comes from the table below; nodes go to the embedded API server, the cloud's configuration to a file that the
manager reads. The manager knows nothing of this module: it sees a cluster and a cloud, as anywhere.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.wellknown import TAINT_EXTERNAL_CLOUD_PROVIDER

ZONES = ("north-1a", "north-1b", "north-1c")
LATENCY = (0.25, 0.75)
"""Seconds that the fake cloud takes for a call: the least and the most."""
STUMBLE = "worker-07"
"""The first call about this node fails, to show what happens then."""


@attrs.frozen
class NodeGroup:
    """Nodes of one kind; `network` must have room for them."""

    prefix: str
    count: int
    type: str
    network: str
    first_zone: int = 0


GROUPS = (
    NodeGroup("cp-", 3, "standard-4", "10.0.0.0/24"),
    NodeGroup("worker-", 15, "standard-8", "10.0.16.0/20"),
    NodeGroup("gpu-", 4, "gpu-16", "10.0.32.0/24", 1),
    NodeGroup("edge-", 2, "small-1", "10.0.48.0/24", 2),
)
TOTAL = sum(group.count for group in GROUPS)


def node_names() -> Iterator[str]:
    """Every node's name, in the order in which they join."""
    for group in GROUPS:
        for number in range(1, group.count + 1):
            yield f"{group.prefix}{number:02d}"


def cloud_config() -> dict[str, Any]:
    """The fake cloud that has exactly these machines."""
    return {
        "generate": [
            {
                "name": group.prefix + "{:02d}",
                "first": 1,
                "count": group.count,
                "types": [group.type],
                "zones": list(ZONES[group.first_zone :] + ZONES[: group.first_zone]),
                "region": "north-1",
                "network": group.network,
            }
            for group in GROUPS
        ],
        "latency": {"instances_metadata": list(LATENCY), "instance_metadata": list(LATENCY)},
        "faults": [
            {
                "action": "raise",
                "method": "instance*_metadata",
                "key": STUMBLE,
                "times": 1,
                "message": "the cloud's database is busy, try later",
            }
        ],
    }


def any_node_config() -> dict[str, Any]:
    """A fake cloud in which an instance appears for whatever node is asked about."""
    return {
        "on_demand": {"types": ["standard-4", "standard-8"], "zones": list(ZONES), "region": "north-1"},
        "latency": {"instances_metadata": list(LATENCY), "instance_metadata": list(LATENCY)},
    }


def write_config(config: dict[str, Any], path: Path) -> Path:
    """The file for --cloud-config; JSON is YAML too."""
    path.write_text(json.dumps(config, indent=2))
    return path


def kubelet_node(name: str) -> dict[str, Any]:
    """A node as a kubelet with --cloud-provider=external registers it."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "pool": name.rpartition("-")[0],
            },
        },
        "spec": {"taints": [{"key": TAINT_EXTERNAL_CLOUD_PROVIDER, "value": "true", "effect": "NoSchedule"}]},
        "status": {
            "addresses": [{"type": "Hostname", "address": name}],
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "nodeInfo": {"kubeletVersion": "v1.36.3", "osImage": "Linux", "architecture": "amd64"},
        },
    }


class Joining:
    """Lets the nodes join the cluster over some seconds, as machines do: one by one, then in bursts."""

    def __init__(self, server: EmbeddedAPIServer, seconds: float) -> None:
        self._server = server
        self._pause = seconds / TOTAL
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="joining", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End early."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(5)

    def _run(self) -> None:
        burst = 0
        for number, name in enumerate(node_names()):
            if burst:
                burst -= 1
            else:
                burst = number % 4
                if self._stop.wait(self._pause * (burst + 1)):
                    return
            self._server.create(kubelet_node(name))
