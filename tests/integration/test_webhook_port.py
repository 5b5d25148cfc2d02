"""Whoever reaches the webhook port is nobody: what a stranger can do there, and what not. Over both
API servers."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume

from cloudprovider import InstanceMetadata, InstancesV2, Interface, PVLabeler
from cloudprovider.testing.waiting import eventually
from controllers.testing.managerrun import ManagerRun
from tests.integration.conftest import Cluster
from tests.support.api import NODES
from tests.support.https import context, free_port
from tests.support.nodes import small_node

STRANGERS = 8


class ByName(Interface, InstancesV2, PVLabeler):
    """A cloud that knows its machines by the name alone, and takes its time over volumes."""

    machines = ("n0", "n1")

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []

    def provider_name(self) -> str:
        return "acme"

    def instances_v2(self) -> InstancesV2:
        return self

    def pv_labeler(self) -> PVLabeler:
        return self

    def _note(self, method: str, given: V1Node | V1PersistentVolume) -> str:
        name = given.metadata.name if given.metadata else None
        self.seen.append((method, type(given).__name__, str(name)))
        return str(name)

    def instance_exists(self, node: V1Node) -> bool:
        return self._note("instance_exists", node) in self.machines

    def instance_shutdown(self, node: V1Node) -> bool:
        self._note("instance_shutdown", node)
        return False

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        return InstanceMetadata(provider_id=f"acme://{self._note('instance_metadata', node)}", node_addresses=[])

    def get_labels_for_volume(self, pv: V1PersistentVolume) -> Mapping[str, str]:
        self._note("get_labels_for_volume", pv)
        if pv.metadata and (pv.metadata.uid or pv.metadata.resource_version):
            self.seen.append(("an identity of the client's making", "", ""))
        time.sleep(0.3)
        return {"topology.kubernetes.io/zone": "z"}


class Stranger:
    """A client without credentials on one connection; for one thread."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context())

    def ask(self, created: dict[str, Any]) -> int:
        """The status of the answer to a review of this volume's creation."""
        request = {
            "uid": "u",
            "operation": "CREATE",
            "name": created["metadata"]["name"],
            "resource": {"group": "", "version": "v1", "resource": "persistentvolumes"},
            "object": created,
        }
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", "/label-persistentvolumes?timeout=10s", body, headers)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status

    def close(self) -> None:
        self._connection.close()


@contextmanager
def strangers(port: int, make: Callable[[], dict[str, Any] | None]) -> Iterator[list[int]]:
    """Several clients that send what `make` gives until it gives None; the statuses of the
    answers."""
    stop, statuses = threading.Event(), list[int]()

    def work() -> None:
        client = Stranger(port)
        while not stop.is_set() and (created := make()) is not None:
            statuses.append(client.ask(created))
        client.close()

    with ThreadPoolExecutor(STRANGERS) as pool:
        made = [pool.submit(work) for _ in range(STRANGERS)]
        try:
            yield statuses
        finally:
            stop.set()
    for one in made:
        one.result()


@pytest.mark.row("X9")
def test_forged_reviews_while_a_node_is_judged_and_the_node_stays(api: Cluster) -> None:
    cloud, port = ByName(), free_port()
    for name in cloud.machines:
        api.create(NODES, small_node(name, provider_id=f"acme://{name}", ready="True"))

    def forged() -> dict[str, Any] | None:
        found = api.find(f"{NODES}/n0")
        if found is None:
            return None
        same = {key: found["metadata"][key] for key in ("uid", "resourceVersion")}
        return {"metadata": {"name": "no-machine", **same}, "spec": {"nfs": {"server": "s", "path": "/p"}}}

    flags = ["--controllers=cloud-node-lifecycle-controller", "--webhooks=*", "--node-monitor-period=1s"]
    flags += ["--webhook-bind-address=127.0.0.1", f"--webhook-secure-port={port}"]
    with ManagerRun(api.kubeconfig, cloud, flags) as manager, strangers(port, forged) as statuses:
        eventually(lambda: statuses.count(200) >= STRANGERS, 60, lambda: manager.log)

        def asked() -> int:
            return sum(method == "instance_exists" for method, _, _ in cloud.seen)

        for beat in range(6):  # each is a new version, whose copy a forged volume could be the first to have
            body = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": f"Beat{beat}"}]}}
            api.patch(f"{NODES}/n0/status", body, "application/strategic-merge-patch+json")
            before = asked()
            eventually(partial(_more, asked, before), 60, lambda: f"{cloud.seen[-5:]}\n{manager.log}")
    assert {name for method, _, name in cloud.seen if method == "instance_exists"} <= {"n0", "n1"}
    assert {kind for method, kind, _ in cloud.seen if method.startswith("instance")} == {"V1Node"}
    assert {kind for method, kind, _ in cloud.seen if method.startswith("get_labels")} == {"V1PersistentVolume"}
    assert "an identity of the client's making" not in {method for method, _, _ in cloud.seen}
    assert {node["metadata"]["name"] for node in api.items(NODES)} == {"n0", "n1"}


def _more(count: Callable[[], int], before: int) -> bool:
    return count() > before
