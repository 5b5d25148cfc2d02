"""A cluster of one node with a real kubelet and containerd, over the real kube-apiserver: the last
tier.

Where it cannot run (no root, no containerd, ...) its tests are skipped with what is missing; they
fail where ``REQUIRE_REAL_KUBELET`` is set, as CI does. No kube-controller-manager runs:
`RealNode.stop` does the part of it that a stopped kubelet needs. No pods run, because no images can
be pulled.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cloudprovider.testing.fake import FakeCloud, FakeConfig
from cloudprovider.testing.waiting import eventually
from cloudprovider.wellknown import TAINT_EXTERNAL_CLOUD_PROVIDER
from tests.integration.conftest import Cluster
from tests.lab.envtest.build import assets
from tests.lab.envtest.machine import Machine, check_machine
from tests.lab.envtest.server import KUBELET_NODES, MANAGER_USER, RealAPIServer
from tests.support.api import NODES, STRATEGIC
from tests.support.nodes import small_node
from tests.support.process import MODULE, Process, Start
from tests.support.tiers import REQUIRE_KUBELET, need

JSON = dict[str, Any]

NAME, NEIGHBOUR = KUBELET_NODES
"""The node with a kubelet, and one of the same zone that is but a Node object."""
KUBELET_USER = f"system:node:{NAME}"
ADDRESSES = [("InternalIP", "10.0.0.7"), ("ExternalIP", "203.0.113.7")]
"""The instance's, in the cloud; none is one of the machine that runs the tests."""
_LEFT_BY_KUBELETS = (
    f"/apis/storage.k8s.io/v1/csinodes/{NAME}",
    f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NAME}",
)
REAL_KUBELET = [pytest.mark.real, pytest.mark.kubelet, pytest.mark.xdist_group("kubelet")]
"""The marks of every test here. Each worker process that runs some has a machine and an API server
of its own."""
PATIENCE = 60.0
"""Seconds that a kubelet or the manager may take for a step, on a machine that is busy with other
tests."""


def _machine() -> Machine:
    check_machine()
    assets()
    return Machine()


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    """The machine of this worker process, with its containerd."""
    made = need("the real kubelet", _machine, required=REQUIRE_KUBELET)
    try:
        made.start()
        yield made
    finally:
        made.stop()


class RealNode:
    """One machine, its instance in the fake cloud, the manager, and the API server that they meet
    at."""

    def __init__(self, cluster: Cluster, server: RealAPIServer, machine: Machine, start: Start, folder: Path) -> None:
        self.cluster = cluster
        self._server = server
        self._machine = machine
        self._start = start
        self._kubeconfig = server.write_kubeconfig(folder / "kubelet.kubeconfig", token=server.kubelet_tokens[NAME])
        instances = [{"name": NAME, "type": "m-2", "addresses": ADDRESSES}, {"name": NEIGHBOUR}]
        self.cloud = FakeCloud(FakeConfig.model_validate({"instances": instances, "machine": NAME}))
        self._config = self.cloud.share(folder / "cloud.json")
        self._manager: Process | None = None
        self._began = server.audit_log.stat().st_size

    @property
    def path(self) -> str:
        return f"{NODES}/{NAME}"

    def start_manager(self, **flags: str) -> None:
        """Start the manager, with the rights of the shipped manifest; it refreshes the node each
        second."""
        settings = {
            "cloud-provider": "fake",
            "cloud-config": str(self._config),
            "kubeconfig": str(self.cluster.kubeconfig),
            "controllers": "cloud-node,cloud-node-lifecycle",
            "leader-elect": "false",
            "node-monitor-period": "1s",
            "node-deletion-young-grace": "0s",
            "node-status-update-frequency": "1s",
            **{name.replace("_", "-"): value for name, value in flags.items()},
        }
        self._manager = self._start(*(f"--{name}={value}" for name, value in settings.items()), command=MODULE)

    def add_neighbour(self) -> None:
        """A Ready node in the same zone: what the cloud says of it shows that the cloud can be
        believed."""
        zone = {"topology.kubernetes.io/zone": "zone-a"}
        node = small_node(NEIGHBOUR, provider_id=f"fake://i-{NEIGHBOUR}", ready="True", labels=zone)
        self.cluster.create(NODES, node)

    def start_kubelet(self, *, node_ip: str | None = None, flags: Sequence[str] = ()) -> None:
        """Start the kubelet, which registers its Node with its own credentials; returns at once."""
        self._machine.start_kubelet(NAME, self._kubeconfig, node_ip=node_ip, flags=flags)

    def node_info(self) -> list[str]:
        """The kubelet's flags, as `node-info` prints them on this machine."""
        command = [sys.executable, "-m", "cloudprovider", "node-info", "--cloud-provider=fake", "--timeout=60"]
        done = subprocess.run([*command, f"--cloud-config={self._config}"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return shlex.split(done.stdout)

    def stop(self) -> None:
        """Stop the kubelet. Then say Unknown for it, as kube-controller-manager does when it hears
        no more of it."""
        self._machine.stop_kubelet()
        words = {"status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
        conditions = [{"type": one["type"], **words} for one in self.node()["status"]["conditions"]]
        self.cluster.patch(f"{self.path}/status", {"status": {"conditions": conditions}}, STRATEGIC)

    def close(self) -> None:
        self._machine.stop_kubelet()
        self.cloud.close()
        for path in _LEFT_BY_KUBELETS:
            self.cluster.delete(path)

    def until(self, predicate: Callable[[], object]) -> None:
        """Wait until it is true; a failure shows the node, and the logs of the kubelet and of the
        manager."""
        eventually(predicate, PATIENCE, self._logs)

    def node(self) -> JSON:
        return self.cluster.get(self.path)

    def registered(self) -> bool:
        self._machine.check_running()
        return self.cluster.find(self.path) is not None

    def initialised(self) -> bool:
        return self.registered() and TAINT_EXTERNAL_CLOUD_PROVIDER not in self.taints()

    def ready(self) -> bool:
        self._machine.check_running()
        conditions = self.node()["status"]["conditions"]
        return [one["status"] for one in conditions if one["type"] == "Ready"] == ["True"]

    def taints(self) -> set[str]:
        return {taint["key"] for taint in self.node()["spec"].get("taints", ())}

    def addresses(self) -> list[tuple[str, str]]:
        return [(one["type"], one["address"]) for one in self.node()["status"].get("addresses", ())]

    def events(self) -> dict[str, JSON]:
        """The Events about the node, by reason."""
        return {event["reason"]: event for event in self.cluster.events_of(NAME)}

    def updates(self) -> list[Mapping[str, Any]]:
        """The kubelet's own status updates since the test began: their bodies."""
        return self._changes(KUBELET_USER)

    def writes(self) -> list[Mapping[str, Any]]:
        """The manager's changes of the node since the test began: the patches, and the whole
        objects of its PUTs."""
        return self._changes(MANAGER_USER)

    def pass_updates(self, count: int) -> None:
        """Wait for so many more status updates of the kubelet."""
        enough = len(self.updates()) + count
        self.until(lambda: len(self.updates()) >= enough)

    def registrations(self) -> list[JSON]:
        """The Nodes that the kubelet sent when it registered, since the test began."""
        return [event["requestObject"] for event in self._requests("create")]

    def taint_seconds(self) -> float:
        """How long the Node that registered last carried the uninitialized taint, from the API
        server's audit log."""
        began = max(str(event["stageTimestamp"]) for event in self._requests("create"))
        ended = [
            str(event["stageTimestamp"])
            for event in self._requests("patch", "update")
            if event["user"]["username"] == MANAGER_USER
            and (event["verb"] == "update" or "taints" in event["requestObject"].get("spec", {}))
        ]
        return (datetime.fromisoformat(max(ended)) - datetime.fromisoformat(began)).total_seconds()

    def deleted_by(self) -> list[str]:
        """The users that deleted the Node, once for each time, since the test began."""
        return [str(event["user"]["username"]) for event in self._requests("delete")]

    def _changes(self, user: str) -> list[Mapping[str, Any]]:
        found = self._requests("patch", "update")
        return [event["requestObject"] for event in found if event["user"]["username"] == user]

    def _requests(self, *verbs: str) -> Iterator[JSON]:
        """The requests of these kinds about this Node that the API server carried out, from its
        audit log."""
        for event in self._server.audit_events(self._began):
            about, code = event.get("objectRef") or {}, event["responseStatus"]["code"]
            ours = (about.get("resource"), about.get("name")) == ("nodes", NAME)
            if ours and event["verb"] in verbs and code < 300:
                yield event

    def _logs(self) -> str:
        manager = self._manager.log if self._manager is not None else ""
        found = self.cluster.find(self.path)
        node = json.dumps(found and {"spec": found["spec"], "addresses": found["status"].get("addresses")})
        return f"{self._machine.log_tail()}\n--- manager\n{manager}\n--- node\n{node}\n"


@pytest.fixture
def real_node(machine: Machine, real_api_server: RealAPIServer, start: Start, tmp_path: Path) -> Iterator[RealNode]:
    """An empty cluster, a machine whose kubelet does not run yet, and a manager that does not run
    yet."""
    kubeconfig = real_api_server.write_kubeconfig(tmp_path / "kubeconfig", token=real_api_server.manager_token)
    cluster = Cluster(real_api_server, kubeconfig, real_api_server.ca_file)
    cluster.clear()
    node = RealNode(cluster, real_api_server, machine, start, tmp_path)
    yield node
    node.close()
    cluster.close()
    cluster.clear()
