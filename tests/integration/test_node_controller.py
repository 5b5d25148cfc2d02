"""The cloud-node controller over both API servers, against the fake cloud and what goes wrong with
it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve

from cloudprovider.helpers import parse_network
from cloudprovider.testing.fake import FakeCloud, FakeConfig, answers
from cloudprovider.testing.waiting import eventually
from cloudprovider.wellknown import ANNOTATION_PROVIDED_NODE_IP
from controllers.node.registration import CloudNodeOptions
from tests.integration.conftest import EMBEDDED, REAL, Cluster
from tests.support.api import NODES
from tests.support.nodes import UNINITIALIZED, is_tainted, small_node
from tests.support.running import node_controller

OFTEN = CloudNodeOptions(node_status_update_frequency=0.3)
NEVER = CloudNodeOptions(node_status_update_frequency=3600)
OTHER = {"key": "example.com/dedicated", "effect": "NoSchedule"}
WITHOUT_BATCH = ["instances_v2", "zones"]
LEGACY = ["instances", "zones"]


@pytest.fixture
def cloud() -> Iterator[FakeCloud]:
    """Fifty instances, node-0000 to node-0049, that can be asked about in batches."""
    with _cloud() as made:
        yield made


def _cloud(**settings: Any) -> FakeCloud:
    generate = [{"count": 50, "types": ["small", "large"], "zones": ["zone-a", "zone-b"]}]
    return FakeCloud(FakeConfig.model_validate({"generate": generate, **settings}))


def _node(api: Cluster, name: str = "node-0000") -> dict[str, Any]:
    return api.get(f"{NODES}/{name}")


@pytest.mark.parametrize(
    ("api", "capabilities"),
    [
        pytest.param("real", ["instances_batch", "instances_v2"], marks=REAL.marks),
        ("embedded", WITHOUT_BATCH),
        ("embedded", LEGACY),
    ],
    indirect=["api"],
)
def test_a_node_gets_everything_in_two_writes(api: Cluster, capabilities: list[str]) -> None:
    api.create(NODES, small_node("node-0001", taints=[UNINITIALIZED, OTHER]))
    before = _node(api, "node-0001")
    with _cloud(capabilities=capabilities) as cloud, node_controller(api.kubeconfig, cloud, options=NEVER) as running:
        eventually(lambda: "Synced" in api.reasons("node-0001"))
        writes = [_count(running, method) for method in ("PATCH", "PUT")]
    node = _node(api, "node-0001")
    assert writes == [2, 0], "no object is ever sent whole"
    assert not is_tainted(node)
    assert OTHER["key"] in {taint["key"] for taint in node["spec"]["taints"]}
    assert node["spec"]["providerID"] == "fake://" + cloud_id(node)
    assert [address["type"] for address in node["status"]["addresses"]] == ["InternalIP", "Hostname"]
    labels = node["metadata"]["labels"]
    assert labels["node.kubernetes.io/instance-type"] == labels["beta.kubernetes.io/instance-type"] == "small"
    assert labels["topology.kubernetes.io/zone"] == labels["failure-domain.beta.kubernetes.io/zone"] == "zone-b"
    assert labels["topology.kubernetes.io/region"] == "region-1"
    assert node["metadata"]["uid"] == before["metadata"]["uid"]
    assert api.event_messages("node-0001") == {"Synced": "Node synced successfully"}


def test_taints_come_once_and_annotations_are_kept(api: Cluster, cloud: FakeCloud) -> None:
    gpu = {"key": "example.com/gpu", "value": "a100", "effect": "NoSchedule"}
    console, theirs = "example.com/console", "example.com/theirs"
    cloud.console.change_instance(
        "node-0000",
        taints=[("example.com/gpu", "a100", "NoSchedule"), (OTHER["key"], "ours", OTHER["effect"])],
        annotations={console: "https://one.example/?a=b", theirs: "the cloud's"},
    )
    api.create(NODES, small_node("node-0000", taints=[UNINITIALIZED, OTHER], annotations={theirs: "an admin's"}))
    with node_controller(api.kubeconfig, cloud, options=OFTEN):
        eventually(lambda: not is_tainted(_node(api)))
        node = _node(api)
        assert _own_taints(node) == [OTHER, gpu], "of one key and effect the node's own stays"
        assert node["metadata"]["annotations"][console] == "https://one.example/?a=b"
        api.patch(f"{NODES}/node-0000", {"spec": {"taints": [OTHER]}})
        cloud.console.change_instance("node-0000", annotations={console: "https://two.example", theirs: "anew"})
        eventually(lambda: _node(api)["metadata"]["annotations"][console] == "https://two.example")
        _refreshes(cloud, 3)
        cloud.console.change_instance("node-0000", annotations={theirs: "anew"})
        eventually(lambda: console not in _node(api)["metadata"]["annotations"])
    node = _node(api)
    assert _own_taints(node) == [OTHER], "an administrator removed it"
    assert node["metadata"]["annotations"][theirs] == "an admin's"


def _own_taints(node: dict[str, Any]) -> list[dict[str, str]]:
    """Those of example.com: admission adds others."""
    return [taint for taint in node["spec"]["taints"] if taint["key"].startswith("example.com/")]


def cloud_id(node: dict[str, Any]) -> str:
    return str(node["spec"]["providerID"]).removeprefix("fake://")


def _count(running: Any, method: str) -> int:
    """The successful requests of that method."""
    lines = running.metrics.text().decode().splitlines()
    own = [line for line in lines if line.startswith("rest_client_requests_total{") and 'code="200"' in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in own if f'method="{method}"' in line)


@pytest.mark.row("N9")
@EMBEDDED
def test_a_refused_address_patch_leaves_the_node_tainted(api: Cluster, cloud: FakeCloud) -> None:
    api.create(NODES, small_node("node-0000"))
    with api.proxied() as (proxy, kubeconfig):
        proxy.refuse(r"PATCH .*/status")
        with node_controller(kubeconfig, cloud, options=NEVER):
            eventually(lambda: "FailedToInitializeNode" in api.reasons("node-0000"))
            assert is_tainted(_node(api))
            assert "providerID" not in _node(api)["spec"]
            proxy.refuse(None)
            eventually(lambda: not is_tainted(_node(api)))
    assert _node(api)["status"]["addresses"][0]["type"] == "InternalIP"


@pytest.mark.row("N12", "N20")
@pytest.mark.parametrize("offered", [(), ("10.0.0.8",)], ids=["nothing", "another"])
@EMBEDDED
def test_a_node_waits_for_the_ip_that_it_wishes_for_and_is_told(
    api: Cluster, cloud: FakeCloud, offered: tuple[str, ...]
) -> None:
    cloud.console.change_instance("node-0000", addresses=[("InternalIP", address) for address in offered])
    api.create(NODES, small_node("node-0000", annotations={ANNOTATION_PROVIDED_NODE_IP: "10.99.0.1"}))
    with node_controller(api.kubeconfig, cloud, options=NEVER):
        message = eventually(lambda: api.event_messages("node-0000").get("ProvidedNodeIPMismatch", ""))
        assert all(part in message for part in ("10.99.0.1", *(offered or ["no addresses"])))
        assert is_tainted(_node(api))
        cloud.console.change_instance("node-0000", addresses=[("InternalIP", "10.0.0.9"), ("InternalIP", "10.99.0.1")])
        eventually(lambda: not is_tainted(_node(api)), timeout=60)
    assert _node(api)["status"]["addresses"][0] == {"type": "InternalIP", "address": "10.99.0.1"}


@pytest.mark.row("N31")
def test_half_an_answer_takes_no_ip_from_a_node(api: Cluster, cloud: FakeCloud) -> None:
    inner, outer, name = ("InternalIP", "10.0.0.7"), ("ExternalIP", "192.0.2.7"), ("Hostname", "node-0000")
    cloud.console.change_instance("node-0000", addresses=[inner, outer, name])
    api.create(NODES, small_node("node-0000"))
    with node_controller(api.kubeconfig, cloud, options=OFTEN) as running:
        eventually(lambda: not is_tainted(_node(api)))
        cloud.console.change_instance("node-0000", addresses=[name])
        message = eventually(lambda: api.event_messages("node-0000").get("AddressesMissing", ""))
        assert "10.0.0.7" in message
        _refreshes(cloud, 3)
        assert _addresses(api) == [inner, outer, name]
        assert running.metrics.value("node_controller_nodes_lacking_addresses") == 1
        cloud.console.change_instance("node-0000", addresses=[outer, name])
        eventually(lambda: _addresses(api) == [outer, name])
        eventually(lambda: running.metrics.value("node_controller_nodes_lacking_addresses") == 0)


def test_the_operator_chooses_among_the_addresses(api: Cluster, cloud: FakeCloud) -> None:
    inner, inner6, storage = ("InternalIP", "10.0.0.7"), ("InternalIP", "fd00::7"), ("InternalIP", "172.17.0.1")
    name = ("Hostname", "node-0000")
    cloud.console.change_instance("node-0000", addresses=[storage, inner, inner6, name])
    api.create(NODES, small_node("node-0000"))
    with node_controller(api.kubeconfig, cloud, options=OFTEN):
        eventually(lambda: _addresses(api) == [storage, inner, inner6, name])
    families, storages = ("ipv6", "ipv4"), (parse_network("172.16.0.0/12"),)
    chosen = evolve(OFTEN, node_address_families=families, node_address_exclude=storages)
    with node_controller(api.kubeconfig, cloud, options=chosen):
        eventually(lambda: _addresses(api) == [inner6, inner, name])
        cloud.console.change_instance("node-0000", addresses=[storage, name])
        message = eventually(lambda: api.event_messages("node-0000").get("AddressesExcluded", ""))
        assert "172.16.0.0/12 leaves out every IP address that the cloud has for this node" in message
        api.create(NODES, small_node("node-0001", annotations={ANNOTATION_PROVIDED_NODE_IP: "172.17.0.9"}))
        cloud.console.change_instance("node-0001", addresses=[("InternalIP", "172.17.0.9"), inner])
        message = eventually(lambda: api.event_messages("node-0001").get("AddressesExcluded", ""))
        assert "--node-ip=172.17.0.9 asks for" in message
    assert is_tainted(_node(api, "node-0001"))
    assert _addresses(api) == [inner6, inner, name]


@pytest.mark.row("N32")
@pytest.mark.parametrize("known", [(), (("Hostname", "node-0000"),)], ids=["nothing", "hostname"])
def test_a_new_node_waits_for_an_ip_address(api: Cluster, cloud: FakeCloud, known: tuple[tuple[str, str], ...]) -> None:
    cloud.console.change_instance("node-0000", addresses=known)
    api.create(NODES, small_node("node-0000"))
    with node_controller(api.kubeconfig, cloud, options=NEVER) as running:
        eventually(lambda: "AddressesMissing" in api.reasons("node-0000"))
        assert is_tainted(_node(api))
        assert running.metrics.value("node_controller_nodes_lacking_addresses") == 1
        cloud.console.change_instance("node-0000", addresses=[("InternalIP", "10.0.0.7"), *known])
        eventually(lambda: not is_tainted(_node(api)))
        assert _addresses(api) == [("InternalIP", "10.0.0.7"), ("Hostname", "node-0000")]


@pytest.mark.row("N33")
def test_another_order_of_addresses_arrives(api: Cluster, cloud: FakeCloud) -> None:
    six, four = ("ExternalIP", "2001:db8::7"), ("ExternalIP", "192.0.2.7")
    cloud.console.change_instance("node-0000", addresses=[six, four])
    api.create(NODES, small_node("node-0000"))
    with node_controller(api.kubeconfig, cloud, options=OFTEN):
        eventually(lambda: not is_tainted(_node(api)))
        cloud.console.change_instance("node-0000", addresses=[four, six])
        eventually(lambda: _addresses(api)[:2] == [four, six])


@pytest.mark.row("N34")
def test_two_nodes_of_one_machine_are_told(api: Cluster, cloud: FakeCloud) -> None:
    api.create(NODES, small_node("node-0000"))
    with node_controller(api.kubeconfig, cloud, options=NEVER) as running:
        eventually(lambda: not is_tainted(_node(api)))
        api.create(NODES, small_node("renamed", taints=[], provider_id=_node(api)["spec"]["providerID"]))
        eventually(lambda: "renamed" in api.event_messages("node-0000").get("ProviderIDOnTwoNodes", ""))
        eventually(lambda: "node-0000" in api.event_messages("renamed").get("ProviderIDOnTwoNodes", ""))
        assert running.metrics.value("node_controller_nodes_sharing_provider_id") == 2


@pytest.mark.row("P7")
@pytest.mark.parametrize("wrong", ["fake://i-node-0000", "fake://None"])
def test_a_wrong_provider_id_is_not_written(api: Cluster, cloud: FakeCloud, wrong: str) -> None:
    """That of another node, whose kubelet is alive, and one that is made of nothing."""
    api.create(NODES, small_node("node-0000", ready="True"))
    with node_controller(api.kubeconfig, cloud, options=OFTEN):
        eventually(lambda: not is_tainted(_node(api)))
        cloud.faults.on("instances_metadata", answers(lambda one: evolve(one, provider_id=wrong)), key="node-0001")
        api.create(NODES, small_node("node-0001", ready="True"))
        reason = "InvalidInstanceMetadata" if wrong.endswith("None") else "ProviderIDOnTwoNodes"
        eventually(lambda: wrong in api.event_messages("node-0001").get(reason, ""))
        if not wrong.endswith("None"):
            eventually(lambda: "node-0001" in api.event_messages("node-0000").get(reason, ""))
        assert "providerID" not in api.get(f"{NODES}/node-0001")["spec"]
        cloud.faults.clear()
        eventually(lambda: api.get(f"{NODES}/node-0001")["spec"].get("providerID") == "fake://i-node-0001", timeout=60)


@pytest.mark.row("P5")
def test_a_machine_with_another_name_changes_no_hostname(api: Cluster, cloud: FakeCloud) -> None:
    api.create(NODES, small_node("node-0000"))
    with node_controller(api.kubeconfig, cloud, options=OFTEN):
        eventually(lambda: not is_tainted(_node(api)))
        assert ("Hostname", "node-0000") in _addresses(api)
        moved = ("InternalIP", "10.0.0.22")
        cloud.console.change_instance("node-0000", addresses=[moved, ("Hostname", "shop-web")])
        eventually(lambda: moved in _addresses(api))
        assert _addresses(api) == [moved, ("Hostname", "node-0000")]


@pytest.mark.row("N35")
def test_a_bad_zone_does_not_keep_a_new_address_away(api: Cluster, cloud: FakeCloud) -> None:
    api.create(NODES, small_node("node-0000"))
    with node_controller(api.kubeconfig, cloud, options=OFTEN):
        eventually(lambda: not is_tainted(_node(api)))
        cloud.console.change_instance("node-0000", zone="Default Group", addresses=[("InternalIP", "10.0.0.22")])
        eventually(lambda: ("InternalIP", "10.0.0.22") in _addresses(api))
        assert _node(api)["metadata"]["labels"]["topology.kubernetes.io/zone"] == "zone-a"
        eventually(lambda: "Default Group" in api.event_messages("node-0000").get("InvalidInstanceMetadata", ""))


@pytest.mark.row("N16")
@pytest.mark.parametrize("ready", ["True", "False"])
def test_a_new_process_says_what_to_do_about_a_ready_node_whose_machine_was_replaced(
    api: Cluster, cloud: FakeCloud, ready: str
) -> None:
    api.create(NODES, small_node("node-0000", taints=[], provider_id="fake://gone", ready=ready))
    with node_controller(api.kubeconfig, cloud, options=OFTEN):
        message = eventually(lambda: api.event_messages("node-0000").get("FailedToRefreshNode", ""))
    assert ("delete the Node and restart the kubelet" in message) == (ready == "True")


def _addresses(api: Cluster) -> list[tuple[str, str]]:
    return [(one["type"], one["address"]) for one in _node(api)["status"]["addresses"]]


def _refreshes(cloud: FakeCloud, times: int) -> None:
    """Wait until the cloud was asked so many times more."""
    asked = cloud.calls.count("instances_metadata")
    eventually(lambda: cloud.calls.count("instances_metadata") >= asked + times)


@pytest.mark.row("N19")
@EMBEDDED
def test_an_initialised_node_without_provider_id_is_adopted_or_told(api: Cluster, cloud: FakeCloud) -> None:
    cloud.console.change_instance("node-0000", addresses=[("InternalIP", "10.0.0.7")])
    for name, address in (("node-0000", "10.0.0.7"), ("node-0001", "10.66.0.1"), ("stranger", "10.66.0.2")):
        node = small_node(name, taints=[])
        node["status"]["addresses"].append({"type": "InternalIP", "address": address})
        api.create(NODES, node)
    with node_controller(api.kubeconfig, cloud, options=OFTEN) as running:
        eventually(lambda: "providerID" in _node(api)["spec"])
        eventually(lambda: all("NodeWithoutProviderID" in api.reasons(name) for name in ("node-0001", "stranger")))
        for name, said in (("node-0001", "10.66.0.1"), ("stranger", "no instance of this name")):
            assert said in api.event_messages(name)["NodeWithoutProviderID"]
            assert "providerID" not in _node(api, name)["spec"]
            assert "topology.kubernetes.io/zone" not in _node(api, name)["metadata"].get("labels", {})
        assert running.metrics.value("node_controller_nodes_without_provider_id") == 2
        assert _node(api)["metadata"]["labels"]["topology.kubernetes.io/zone"] == "zone-a"


@pytest.mark.row("N25")
@EMBEDDED
def test_a_foreign_node_is_left_alone_and_told_once(api: Cluster, cloud: FakeCloud) -> None:
    api.create(NODES, small_node("node-0000", taints=[UNINITIALIZED], provider_id="othercloud://x"))
    api.create(NODES, small_node("node-0001"))
    with node_controller(api.kubeconfig, cloud, options=OFTEN):
        eventually(lambda: "Synced" in api.reasons("node-0001"))
        message = eventually(lambda: api.event_messages("node-0000").get("ForeignProviderID", ""))
        for number in range(3):
            api.patch(f"{NODES}/node-0000", {"metadata": {"annotations": {ANNOTATION_PROVIDED_NODE_IP: str(number)}}})
        api.create(NODES, small_node("node-0002"))
        eventually(lambda: "Synced" in api.reasons("node-0002"))
    assert "othercloud://x" in message
    assert is_tainted(_node(api))
    [event] = api.events_of("node-0000")
    assert event.get("count", 1) == 1
