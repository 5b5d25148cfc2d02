"""What a kubelet that was taken over can make us do to other nodes: nothing. Row N28, over both API
servers.

The kubelet has the token and the rights that it has in a cluster: on the real server the Node
authorizer and NodeRestriction decide (`test_node_trust.py` shows that they do). Each attack runs
beside the node controller and the node lifecycle controller. After it a machine of the same zone
ends: its Node is deleted, and nothing else of the other nodes and of the cloud has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from attrs import frozen

from cloudprovider.testing.fake import FakeCloud, FakeConfig
from cloudprovider.testing.objects import ready_condition
from cloudprovider.testing.waiting import eventually
from controllers.nodelifecycle import reconcile
from controllers.nodelifecycle.controller import NodeLifecycleController
from controllers.nodelifecycle.registration import NodeLifecycleOptions
from tests.integration.conftest import REAL, Cluster
from tests.support.api import API, JSON, MERGE, NODES, STRATEGIC
from tests.support.nodes import UNINITIALIZED, small_node
from tests.support.running import Running, at_work, node_controller

MINE = "node-0000"
PATH = f"{NODES}/{MINE}"
OTHERS = [f"n{number}" for number in range(1, 13)]
"""Enough to call ten of them existing: among so many one kubelet vetoes nothing."""
ZONE = "topology.kubernetes.io/zone"
SWEEPS = "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_count"
FORGED = {
    "kubernetes-cloud-provider/out-of-service": "true",
    "kubernetes-cloud-provider/applied-labels": '{"example.com/owner": "me"}',
    "kubernetes-cloud-provider/pod-cidr-pending": "10.0.0.0/8",
    "kubernetes-cloud-provider/release": "true",
    "kubernetes-cloud-provider/initialized": "true",
    "alpha.kubernetes.io/provided-node-ip": "10.0.0.1",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
}


@frozen
class Kubelet:
    """The attacker: its own Node, as it may write it."""

    api: API
    admin: Cluster
    cloud: FakeCloud

    def register(
        self,
        provider_id: str = "fake://no-such-instance",
        *,
        zone: str = "zone-a",
        taints: list[JSON] | None = None,
        addresses: list[JSON] | None = None,
        **metadata: Any,
    ) -> None:
        """Register a Node of one's own that says Ready."""
        labels = {"kubernetes.io/hostname": MINE, ZONE: zone, **metadata.pop("labels", {})}
        body = small_node(MINE, taints=taints, provider_id=provider_id, ready="True", labels=labels, **metadata)
        if addresses is not None:
            body["status"]["addresses"] = addresses
        self.api.create(NODES, body)

    def say(self, ready: bool) -> None:
        """Write the Ready condition. The Node may have been deleted."""
        self.api.request("PATCH", f"{PATH}/status", {"status": {"conditions": [ready_condition(ready)]}}, STRATEGIC)

    def id_of(self, name: str) -> str:
        """The provider ID of somebody else's machine."""
        (found,) = [one.id for one in self.cloud.console.instances() if one.name == name]
        return f"fake://{found}"


def moves_from_zone_to_zone(kubelet: Kubelet) -> None:
    kubelet.register(zone="zone-b")
    for zone in ("zone-a", "zone-b", "", "zone-a"):
        kubelet.api.patch(PATH, {"metadata": {"labels": {ZONE: zone}}})


def turns_ready_and_not_ready(kubelet: Kubelet) -> None:
    kubelet.register()
    for number in range(6):
        kubelet.say(number % 2 == 1)


def annotations_that_we_write(kubelet: Kubelet) -> None:
    kubelet.register()
    kubelet.api.patch(PATH, {"metadata": {"annotations": FORGED}})


def taints_of_its_own(kubelet: Kubelet) -> None:
    kubelet.register(
        taints=[
            {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"},
            {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/out-of-service", "value": "cloud-instance-shut-down", "effect": "NoExecute"},
        ]
    )


def names_and_addresses_of_somebody_else(kubelet: Kubelet) -> None:
    (address,) = [
        one["address"] for one in kubelet.admin.get(f"{NODES}/n2")["status"]["addresses"] if one["type"] == "InternalIP"
    ]
    kubelet.register(
        labels={"kubernetes.io/hostname": "n2"},
        addresses=[{"type": "Hostname", "address": "n2"}, {"type": "InternalIP", "address": address}],
        annotations={"alpha.kubernetes.io/provided-node-ip": address},
    )


def registers_again_and_again(kubelet: Kubelet) -> None:
    for provider_id in ("fake://no-such-instance", kubelet.id_of("n2"), kubelet.id_of("n1")):
        kubelet.register(provider_id)
        kubelet.admin.delete(PATH)  # a kubelet may not; whoever cleans up does
    kubelet.register(kubelet.id_of("n1"))


ATTACKS: dict[str, Callable[[Kubelet], None]] = {
    "a made-up ID": lambda kubelet: kubelet.register(),
    "the ID of a machine that runs": lambda kubelet: kubelet.register(kubelet.id_of("n2")),
    "the ID of the machine that ends": lambda kubelet: kubelet.register(kubelet.id_of("n1")),
    "an ID of another cloud": lambda kubelet: kubelet.register("other://i-1"),
    "nothing after the prefix": lambda kubelet: kubelet.register("fake://"),
    "a path in the ID": lambda kubelet: kubelet.register(f"fake:///../{kubelet.id_of('n2').removeprefix('fake://')}"),
    "from zone to zone": moves_from_zone_to_zone,
    "Ready and not Ready": turns_ready_and_not_ready,
    "annotations that we write": annotations_that_we_write,
    "taints of its own": taints_of_its_own,
    "waits for its initialisation as somebody else": lambda kubelet: kubelet.register(
        kubelet.id_of("n3"), taints=[UNINITIALIZED]
    ),
    "names and addresses of somebody else": names_and_addresses_of_somebody_else,
    "registers again and again": registers_again_and_again,
}


@contextmanager
def _controllers(
    api: Cluster, cloud: FakeCloud, options: NodeLifecycleOptions
) -> Iterator[Running[NodeLifecycleController]]:
    with (
        node_controller(api.kubeconfig, cloud),
        at_work(NodeLifecycleController, api.kubeconfig, cloud, options) as running,
    ):
        yield running


@contextmanager
def _cloud() -> Iterator[FakeCloud]:
    machines = [
        {"name": name, "zone": "zone-a", "addresses": [["InternalIP", f"10.0.0.{number}"], ["Hostname", name]]}
        for number, name in enumerate(OTHERS, 1)
    ]
    with FakeCloud(FakeConfig.model_validate({"instances": machines})) as cloud:
        yield cloud


def _join(api: Cluster) -> None:
    """The other nodes join, and are initialised."""
    for name in OTHERS:
        api.create(NODES, small_node(name, ready="True", labels={"kubernetes.io/hostname": name}))
    eventually(lambda: all(ZONE in api.get(f"{NODES}/{name}")["metadata"]["labels"] for name in OTHERS))
    for name in OTHERS:
        eventually(lambda path=f"{NODES}/{name}": UNINITIALIZED not in api.get(path)["spec"].get("taints", ()))  # type: ignore[misc]


def _sweeps(running: Running[NodeLifecycleController], number: int) -> None:
    began = running.count(SWEEPS)
    eventually(lambda: running.count(SWEEPS) >= began + number, timeout=60)


def _die(api: Cluster, cloud: FakeCloud, name: str) -> None:
    cloud.console.remove_instance(name)
    api.patch(f"{NODES}/{name}/status", {"status": {"conditions": [ready_condition(False)]}}, STRATEGIC)


def _others(api: Cluster, but: str = "") -> dict[str, JSON]:
    """All of the other nodes, but for what says who wrote it when."""
    found = {node["metadata"]["name"]: node for node in api.items(NODES)}
    for node in found.values():
        node["metadata"].pop("managedFields", None)
        node["metadata"].pop("resourceVersion")
    return {name: node for name, node in found.items() if name not in (MINE, but)}


def _cloud_objects(cloud: FakeCloud, but: str = "") -> list[object]:
    console = cloud.console
    machines = [one for one in console.instances() if one.name != but]
    return [machines, console.routes(), console.load_balancers()]


@pytest.mark.row("N28")
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
@pytest.mark.parametrize(
    ("api", "when"),
    [("embedded", "before the start"), pytest.param("real", "at work", marks=REAL.marks)],
    indirect=["api"],
)
def test_nothing_of_other_nodes_changes_and_deletions_go_on(
    api: Cluster, attack: Callable[[Kubelet], None], when: str
) -> None:
    options = NodeLifecycleOptions(node_monitor_period=0.3, young_grace=0)
    with _cloud() as cloud:
        kubelet = Kubelet(api.kubelet(MINE), api, cloud)
        with _controllers(api, cloud, options) as running:
            _join(api)
            before, objects = _others(api, but="n1"), _cloud_objects(cloud, but="n1")
            _sweeps(running, 2)
            if when == "at work":
                attack(kubelet)
                _sweeps(running, 3)
                _die(api, cloud, "n1")
                eventually(lambda: api.find(f"{NODES}/n1") is None, timeout=60)
        if when == "before the start":
            attack(kubelet)
            _die(api, cloud, "n1")
        with _controllers(api, cloud, options) as running:  # a new process
            eventually(lambda: api.find(f"{NODES}/n1") is None, timeout=60)
            _sweeps(running, 3)
        assert _others(api) == before
        assert _cloud_objects(cloud) == objects


@pytest.mark.row("N21", "N28")
def test_forged_marks_release_nothing_that_is_held_back(api: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "ALARM_AFTER", 1.0)
    options = NodeLifecycleOptions(node_monitor_period=0.3, young_grace=0)
    with _cloud() as cloud, _controllers(api, cloud, options) as running:
        _join(api)
        _sweeps(running, 3)
        for name in ("n2", "n3", "n4"):
            cloud.console.remove_instance(name)  # a lie: they are Ready
        _die(api, cloud, "n1")
        eventually(lambda: running.count("node_lifecycle_held_nodes") == 1, timeout=60)
        kubelet = Kubelet(api.kubelet(MINE), api, cloud)
        kubelet.register(kubelet.id_of("n5"), annotations=FORGED)
        kubelet.api.patch(PATH, {"metadata": {"labels": {"kubernetes-cloud-provider/release": "true"}}})
        _sweeps(running, 10)
        assert api.find(f"{NODES}/n1") is not None
        assert running.controller.release_breaker() == 1
        eventually(lambda: api.find(f"{NODES}/n1") is None, timeout=60)
        assert all(api.find(f"{NODES}/{name}") for name in OTHERS[1:])


def test_what_the_real_server_refuses_a_kubelet(api: Cluster) -> None:
    """The rest of the attacks: those that need no answer of ours, because NodeRestriction refuses
    them."""
    if not api.is_real:
        pytest.skip("the embedded server knows no admission")
    for name in (MINE, "n2"):
        api.create(NODES, small_node(name, taints=[], labels={"kubernetes.io/hostname": name}))
    kubelet = api.kubelet(MINE)
    taint = {"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}}
    refused = [
        kubelet.request("PATCH", f"{NODES}/n2", {"metadata": {"annotations": FORGED}}, MERGE),
        kubelet.request("PATCH", f"{NODES}/n2/status", {"status": {"conditions": [ready_condition(False)]}}, STRATEGIC),
        kubelet.request("DELETE", f"{NODES}/n2"),
        kubelet.request("DELETE", PATH),
        kubelet.request("PATCH", PATH, taint, MERGE),
        kubelet.request("POST", NODES, small_node("n9", taints=[])),
    ]
    assert [status for status, _ in refused] == [403] * len(refused)
