"""Who is measured: the API server's own limit, our manager, and the Go cloud-controller-manager, as
commands."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from attrs import field, frozen
from kubernetes.client.models.v1_node import V1Node

from controllers.node.changes import initialization
from tests.lab.bench.ccm import metadata_of
from tests.lab.bench.cluster import BenchCluster
from tests.lab.envtest.build import bench_program
from tests.lab.envtest.server import Identity

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
UNCAPPED = (
    "--kube-api-qps=100000",
    "--kube-api-burst=100000",
    "--concurrent-node-syncs=32",
    "--concurrent-service-syncs=32",
    "--concurrent-node-lifecycle-syncs=32",
)
GONE = "gone"
"""Nodes whose names begin so do not exist in the cloud."""


def compile_sources() -> None:
    """Have Python's bytecode ready, as an installed package and an image have it: a start must not
    wait for it."""
    packages = sysconfig.get_paths()["purelib"]
    folders = [packages, *(str(ROOT / name) for name in ("cloudprovider", "controllers", "tests"))]
    subprocess.run([sys.executable, "-m", "compileall", "-q", *folders], stdout=subprocess.DEVNULL, check=False)


@frozen
class Contender:
    """A name for the table, and the command that does the work in a cluster."""

    name: str
    kind: Literal["limit", "ours", "go"]
    controllers: str = "cloud-node"
    """Value of --controllers; both programs know Go's aliases."""
    latency_ms: int = 0
    """Of every call to the cloud."""
    batch: bool = True
    """Whether our cloud offers InstancesBatch, which the Go program does not know."""
    flags: tuple[str, ...] = ()
    once: bool = False
    """Slow, and measured once only."""
    timeout: float = 120.0
    """Seconds until it is given up."""
    cloud: Mapping[str, object] = field(factory=dict)
    """More settings of our cloud, see `ccm.py`."""

    def command(self, cluster: BenchCluster, folder: Path, identity: Identity | None = None) -> list[str]:
        """The command line; files that it needs are written to `folder`, and the cloud's journal
        too.

        `identity` is who it is to the API server: the administrator, if nothing is said.
        """
        if self.kind == "limit":
            plan = folder / "plan.json"
            plan.write_text(json.dumps(_plan(cluster)))
            server = cluster.server
            return [
                str(bench_program("limit")), "-server", server.url, "-token", server.token, "-ca", str(server.ca_file),
                "-plan", str(plan),
            ]  # fmt: skip
        settings = {
            "latencyMs": self.latency_ms,
            "batch": self.batch,
            "gonePrefix": f"{GONE}-",
            "journal": str(journal(folder)),
            **self.cloud,
        }
        (folder / "cloud.json").write_text(json.dumps(settings))
        common = [
            "--cloud-provider=bench",
            f"--cloud-config={folder / 'cloud.json'}",
            f"--kubeconfig={cluster.kubeconfig(folder, identity)}",
            "--leader-elect=false",
            f"--controllers={self.controllers}",
            "--secure-port=0",
        ]
        if self.kind == "ours":
            return [sys.executable, "-m", "tests.lab.bench.ccm", *common, *self.flags]
        off = ["--allocate-node-cidrs=false", "--configure-cloud-routes=false"]
        return [str(bench_program("goccm")), *common, *off, *self.flags]  # of a flag given twice the last one counts


def journal(folder: Path) -> Path:
    """Where the cloud of a contender with this folder writes its calls down."""
    return folder / "journal"


def beside_go(
    name: str,
    controllers: str,
    latency_ms: int,
    *,
    flags: tuple[str, ...] = (),
    uncapped_once: bool = False,
    timeout: float = 120.0,
) -> tuple[Contender, Contender, Contender]:
    """Ours with default flags beside the Go program, uncapped and with its default flags; the last
    is run once."""
    go = Contender("Go uncapped", "go", controllers, latency_ms, flags=(*flags, *UNCAPPED), timeout=timeout)
    default = Contender("Go default", "go", controllers, latency_ms, flags=flags, once=True, timeout=timeout)
    if uncapped_once:
        go = Contender(go.name, "go", controllers, latency_ms, flags=go.flags, once=True, timeout=timeout)
    return Contender(name, "ours", controllers, latency_ms, flags=flags, timeout=timeout), go, default


def _plan(cluster: BenchCluster) -> list[dict[str, object]]:
    """Our own writes for every node, for the program that only sends them."""
    plan = []
    for raw in cluster.api.items("/api/v1/nodes"):
        node = V1Node.from_dict(raw)
        assert node is not None
        name, meta = raw["metadata"]["name"], raw["metadata"]
        patches = {patch.subresource: patch.body for patch in initialization(node, metadata_of(name)).patches}
        status = {"metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}, **patches["status"]}
        whole = {**patches[""], "metadata": {**patches[""]["metadata"], "uid": meta["uid"]}}
        plan.append({"name": name, "status": status, "object": whole, "event": _event(name, meta["uid"])})
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
