"""The demo's cluster, and the fake clouds: the story's, and one for a cluster of yours.

The cluster is an embedded API server, and what kubelets and people do in it: kubelets register nodes and report;
kube-controller-manager gives each node a range for its pods, and notices when a kubelet is silent; people create and
delete Services. The clouds are files for --cloud-config. The story's cloud lives in an SQLite file, so that what one
manager built is there for the next one. The managers know nothing of this module: they see a cluster and a cloud.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cloudprovider.testing import objects
from cloudprovider.testing.apiserver import EmbeddedAPIServer

CLUSTER_CIDR = "10.244.0.0/16"
ZONES = ("north-1a", "north-1b", "north-1c")
LATENCY = (0.25, 0.75)
"""Seconds that the fake cloud takes for a call: the least and the most."""
_SLOW = ("instance*_metadata", "ensure_load_balancer*", "update_load_balancer", "create_route")
"""The calls that take so long."""
_STRATEGIC = "application/strategic-merge-patch+json"


class Cluster:
    """A context manager: the API server runs inside it."""

    def __init__(self, directory: Path) -> None:
        self.server = EmbeddedAPIServer()
        self._directory = directory
        self._ranges = 0

    def __enter__(self) -> Cluster:
        self.server.start()
        self.kubeconfig = self.server.write_kubeconfig(self._directory / "kubeconfig")
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()

    def join(self, name: str) -> None:
        """A kubelet with --cloud-provider=external registers its node."""
        self._ranges += 1
        self.server.create(objects.node(name, pod_cidrs=[f"10.244.{self._ranges}.0/24"]))

    def silence(self, name: str) -> None:
        """The kubelet is heard of no more, and kube-controller-manager says so on the node."""
        body = {"status": {"conditions": [objects.ready_condition(False)]}}
        self.server.patch("nodes", name, body, subresource="status", content_type=_STRATEGIC)

    def create_service(self, name: str) -> None:
        """Somebody asks for a load balancer."""
        self.server.create(objects.service(name))

    def delete_service(self, name: str) -> None:
        """Somebody needs it no longer."""
        self.server.delete("services", name)


def story_cloud(machines: Sequence[str], stumble: str) -> dict[str, Any]:
    """A cloud with these machines; the first call about `stumble` fails."""
    return {
        "state": "cloud.sqlite",
        "instances": [{"name": name, **machine(name, number)} for number, name in enumerate(machines)],
        "latency": _latency(),
        "faults": [
            {
                "action": "raise",
                "method": "instance*_metadata",
                "key": stumble,
                "times": 1,
                "message": "the cloud's database is busy, try later",
            }
        ],
    }


def machine(name: str, number: int) -> dict[str, Any]:
    """What the story's cloud says about one of its machines; each has another number."""
    return {
        "type": "standard-4" if name.startswith("cp-") else "standard-8",
        "zone": ZONES[number % len(ZONES)],
        "region": "north-1",
        "addresses": {"InternalIP": f"10.0.16.{number + 2}"},
    }


def any_node_cloud() -> dict[str, Any]:
    """A cloud in which a machine appears for whatever node is asked about."""
    return {
        "on_demand": {"types": ["standard-4", "standard-8"], "zones": list(ZONES), "region": "north-1"},
        "latency": _latency(),
    }


def write_config(config: dict[str, Any], path: Path) -> Path:
    """The file for --cloud-config; JSON is YAML too."""
    path.write_text(json.dumps(config, indent=2))
    return path


def _latency() -> dict[str, list[float]]:
    return {method: list(LATENCY) for method in _SLOW}
