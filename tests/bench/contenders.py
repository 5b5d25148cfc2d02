"""Who is measured: the API server's own limit, our manager, and the Go cloud-controller-manager.

Each is a command that initialises every node of a cluster and stores an Event for each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from attrs import frozen
from kubernetes.client.models.v1_node import V1Node

from controllers.node.changes import initialization
from tests.bench.ccm import metadata_of
from tests.bench.cluster import BenchCluster

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
UNCAPPED = ("--kube-api-qps=100000", "--kube-api-burst=100000", "--concurrent-node-syncs=32")


def build(name: str) -> Path:
    """Build one of the Go programs beside this file into the user's cache; seconds, once the modules are there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubernetes-cloud-provider" / "bench"
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / name
    subprocess.run(
        ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", str(target), "."],
        cwd=HERE / name,
        env={**os.environ, "CGO_ENABLED": "0"},
        check=True,
    )
    return target


@frozen
class Contender:
    """A name for the table, and the command that does the work in a cluster."""

    name: str
    kind: str
    """ "limit", "ours" or "go"."""
    latency_ms: int = 0
    batch: bool = True
    flags: tuple[str, ...] = ()

    def command(self, cluster: BenchCluster, folder: Path) -> list[str]:
        """The command line; files that it needs are written to `folder`."""
        if self.kind == "limit":
            plan = folder / "plan.json"
            plan.write_text(json.dumps(_plan(cluster)))
            server = cluster.server
            return [
                str(build("limit")), "-server", server.url, "-token", server.token, "-ca", str(server.ca_file),
                "-plan", str(plan),
            ]  # fmt: skip
        settings = folder / "cloud.json"
        settings.write_text(json.dumps({"latencyMs": self.latency_ms, **({"batch": self.batch} if self._ours else {})}))
        common = [
            "--cloud-provider=bench",
            f"--cloud-config={settings}",
            f"--kubeconfig={cluster.kubeconfig(folder)}",
            "--leader-elect=false",
            "--controllers=cloud-node-controller" if self._ours else "--controllers=cloud-node",
            *self.flags,
        ]
        if self._ours:
            return [sys.executable, "-m", "tests.bench.ccm", *common]
        port = ["--secure-port=0", "--allocate-node-cidrs=false", "--configure-cloud-routes=false"]
        return [str(build("goccm")), *common, *port]

    @property
    def _ours(self) -> bool:
        return self.kind == "ours"


def _plan(cluster: BenchCluster) -> list[dict[str, object]]:
    """Our own writes for every node, for the program that only sends them."""
    plan = []
    for raw in cluster.api.items("/api/v1/nodes"):
        node = V1Node.from_dict(raw)
        assert node is not None
        name, meta = raw["metadata"]["name"], raw["metadata"]
        patches = {patch.subresource: patch.body for patch in initialization(node, metadata_of(name)).patches}
        status = {"metadata": {"resourceVersion": meta["resourceVersion"]}, **patches["status"]}
        plan.append({"name": name, "status": status, "object": patches[""], "event": _event(name, meta["uid"])})
    return plan


def _event(name: str, uid: str) -> dict[str, object]:
    now = "2026-01-02T03:04:05Z"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.0123456789abcdef", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": name, "uid": uid, "apiVersion": "v1"},
        "reason": "Synced",
        "message": "Node synced successfully",
        "type": "Normal",
        "source": {"component": "cloud-node-controller"},
        "reportingComponent": "cloud-node-controller",
        "reportingInstance": "",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
