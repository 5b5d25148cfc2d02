"""The manager's pods of a running cluster: who leads, and what its process is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

from tests.lab.cluster.cluster import MANAGER, Cluster
from tests.support.api import LEASE

PODS = "/api/v1/namespaces/kube-system/pods"


@frozen
class Replica:
    """A pod of the manager whose container runs."""

    pod: str
    uid: str
    node: str
    container: str
    restarts: int
    ready: bool


def replicas(cluster: Cluster) -> list[Replica]:
    """Those that run, by name."""
    found = [_replica(pod) for pod in cluster.api.items(PODS) if pod["metadata"]["name"].startswith(f"{MANAGER}-")]
    return sorted(filter(None, found), key=lambda one: one.pod)


def _replica(pod: dict[str, Any]) -> Replica | None:
    for status in pod["status"].get("containerStatuses", ()):
        if "running" in status["state"] and "deletionTimestamp" not in pod["metadata"]:
            container = status["containerID"].removeprefix("containerd://")
            meta, node = pod["metadata"], pod["spec"]["nodeName"]
            return Replica(meta["name"], meta["uid"], node, container, status["restartCount"], status["ready"])
    return None


def holder(cluster: Cluster) -> str:
    """Who holds the Lease; "" when it is free. The process is HOST_UUID."""
    lease = cluster.api.find(LEASE) or {}
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def leader(cluster: Cluster) -> Replica | None:
    """The replica on the node of which the Lease's holder is; None while it does not run."""
    node = holder(cluster).partition("_")[0]
    return next((one for one in replicas(cluster) if one.node == node), None)


def await_leader(cluster: Cluster) -> Replica:
    """The leader, once there is one. Raises ClusterError."""
    cluster.wait("a leader", lambda: "" if leader(cluster) is not None else "nobody leads")
    found = leader(cluster)
    assert found is not None
    return found


def await_another(cluster: Cluster, before: str) -> None:
    """Wait until another one than `before` holds the Lease. Raises ClusterError."""
    cluster.wait(
        "another leader", lambda: "" if holder(cluster) not in ("", before) else "the Lease is the former one's"
    )


def kill(cluster: Cluster, replica: Replica) -> None:
    """SIGKILL for its container's process. Raises ClusterError."""
    cluster.run(replica.node, "ctr", "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL", replica.container)


def restart_kubelet(cluster: Cluster, machine: str) -> None:
    """End a machine's kubelet; its script starts it again. Raises ClusterError."""
    for pid in cluster.run(machine, "pidof", "kubelet").split():
        cluster.run(machine, "kill", pid)


def processes(cluster: Cluster) -> Iterator[int]:
    """The processes of the manager on this host, in whichever machine. None but this cluster's
    manager has its name among its arguments."""
    name = f"--cluster-name={cluster.options.name}".encode()
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = file.read_bytes().split(b"\0")
        except OSError:
            continue  # it ended
        if name in arguments:
            yield int(file.parent.name)
