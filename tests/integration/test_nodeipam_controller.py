"""The node IPAM controller over both API servers: each node gets its ranges once, and no two nodes
get the same."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client.models.v1_node import V1Node

from cloudprovider import Interface
from cloudprovider.helpers import pod_cidrs_of, uid_of
from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.apiserver.rest.api import Request, Response
from cloudprovider.testing.apiserver.rest.watchstream import WatchStream
from cloudprovider.testing.fake import FakeCloud, FakeConfig
from cloudprovider.testing.waiting import eventually
from controllers.app import CATALOG, PlanRun, parse
from controllers.nodeipam import guards
from controllers.nodeipam.controller import NodeIPAMController
from controllers.nodeipam.guards import SEAL
from controllers.nodeipam.registration import NodeIPAMOptions
from controllers.options.podnetwork import CIDRS
from controllers.runtime.api import ClientBuilder, ClientSettings
from controllers.runtime.cache import NODES as N
from controllers.runtime.cache import InformerFactory
from controllers.runtime.metrics import Metrics
from controllers.testing import ManagerRun
from tests.integration.conftest import EMBEDDED, REAL, Cluster
from tests.support.api import MERGE, NODES
from tests.support.nodes import UNINITIALIZED, small_node
from tests.support.process import MODULE, Start
from tests.support.rights import created
from tests.support.running import at_work

BOTH = "10.244.0.0/22,fd00:10:244::/60"
NODE_COUNT = int(os.environ.get("NODEIPAM_TAKEOVER", "60"))
"""`NODEIPAM_TAKEOVER=200` for the long form."""


@pytest.fixture(autouse=True)
def short_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range of a deleted Node rests for 10 s, which the unit tests prove; here nobody waits for
    that."""
    monkeypatch.setattr("controllers.nodeipam.controller.REST", 0.5)


@contextmanager
def allocating(
    api: Cluster, cidrs: str = BOTH, cloud: Interface | None = None, *, well: bool = True, **settings: Any
) -> Iterator[tuple[Metrics, NodeIPAMController]]:
    options = NodeIPAMOptions(
        allocate_node_cidrs=True, cluster_cidrs=CIDRS.parse(cidrs), **{"drain_timeout": 5.0, **settings}
    )
    with at_work(NodeIPAMController, api.kubeconfig, cloud or FakeCloud(), options) as running:
        yield running.metrics, running.controller
        assert well == all(ok for _, ok, _ in running.controller.notes()), running.controller.notes()


def add(api: Cluster, name: str, *cidrs: str) -> dict[str, Any]:
    return api.create(NODES, labelled(name, *cidrs))


def labelled(name: str, *cidrs: str) -> dict[str, Any]:
    # As a kubelet labels them: an object that never had a field of its maker has no managedFields
    # later.
    return small_node(name, taints=[], cidrs=cidrs, labels={"kubernetes.io/hostname": name})


def ranges(api: Cluster) -> dict[str, list[str]]:
    return {node["metadata"]["name"]: node["spec"].get("podCIDRs", []) for node in api.items(NODES)}


def network(api: Cluster, name: str) -> tuple[str, str]:
    conditions = api.get(f"{NODES}/{name}")["status"].get("conditions", [])
    found: dict[str, str] = next((one for one in conditions if one["type"] == "NetworkUnavailable"), {})
    return found.get("status", ""), found.get("reason", "")


def tainted(api: Cluster, name: str) -> bool:
    return UNINITIALIZED in api.get(f"{NODES}/{name}")["spec"].get("taints", [])


def joined(api: Cluster, name: str) -> None:
    """Wait until pods on it have a network."""
    eventually(lambda: network(api, name) == ("False", "RouteCreated"), 60)


def judge(api: Cluster) -> None:
    """No two nodes overlap."""
    taken = sorted(
        (ip_network(text) for texts in ranges(api).values() for text in texts), key=lambda net: (net.version, net)
    )
    for one, other in pairwise(taken):  # of two that overlap, one contains the other, and stands before it
        assert one.version != other.version or not one.overlaps(other), (one, other)


def test_nodes_get_a_range_of_each_family_beside_what_others_have(api: Cluster) -> None:
    add(api, "old", "10.244.0.0/24", "fd00:10:244::/64")
    add(api, "wide", "10.244.2.0/23")
    add(api, "outside", "10.9.0.0/24")
    add(api, "early")
    with allocating(api, service_cidrs=CIDRS.parse("fd00:10:244:1::/112")) as (metrics, _):
        eventually(lambda: len(ranges(api)["early"]) == 2, 60)
        assert ranges(api)["early"] == ["10.244.1.0/24", "fd00:10:244:2::/64"]
        add(api, "late")
        eventually(lambda: "CIDRNotAvailable" in api.reasons("late"), 60)
        assert metrics.value("node_ipam_controller_nodes_without_cidrs") == 1
        assert metrics.value("node_ipam_controller_cidrset_usage_cidrs", clusterCIDR="10.244.0.0/22") == 1.0
        api.delete(f"{NODES}/old")
        eventually(lambda: ranges(api)["late"] == ["10.244.0.0/24", "fd00:10:244:3::/64"], 60)
        assert metrics.value("node_ipam_controller_cirdset_max_cidrs", clusterCIDR="fd00:10:244::/60") == 16.0
        assert metrics.value("node_ipam_controller_cidrset_cidrs_releases_total", clusterCIDR="10.244.0.0/22") == 1.0
    node = api.get(f"{NODES}/early")
    assert node["spec"]["podCIDR"] == "10.244.1.0/24"
    assert SEAL not in node["metadata"].get("annotations", {})
    assert ranges(api)["wide"] == ["10.244.2.0/23"]
    judge(api)
    versions = api.versions(NODES)
    with allocating(api):  # the next process writes nothing
        add(api, "last")
        eventually(lambda: "CIDRNotAvailable" in api.reasons("last"), 60)
    assert versions.items() <= api.versions(NODES).items()


def test_a_small_first_range_fills_up_and_the_next_node_gets_its_part_of_the_second(api: Cluster) -> None:
    flags = (
        "--controllers=*,nodeipam",
        "--allocate-node-cidrs",
        "--cluster-cidr=10.244.0.0/25,10.250.0.0/23,fd00:10:244::/60",
        "--node-cidr-mask-size-ipv4=26",
    )
    names = [f"node-{number:04}" for number in range(3)]
    with FakeCloud(FakeConfig.model_validate({"generate": [{"count": 3}]})) as cloud:
        with ManagerRun(api.kubeconfig, cloud, flags):
            for name in names:
                api.create(NODES, small_node(name))
                joined(api, name)
        found = ranges(api)
        assert [found[name][0] for name in names] == ["10.244.0.0/26", "10.244.0.64/26", "10.250.0.0/26"]
        table = {route.destination_cidr: route.target_node for route in cloud.console.routes()}
        assert table == {cidr: name for name in names for cidr in found[name]}
    judge(api)


def test_it_stops_beside_kube_controller_managers_allocator(api: Cluster) -> None:
    """The real server tells who wrote (managedFields): the second node is proof. On the embedded
    one the third is."""
    others = ClientBuilder.from_options(
        kubeconfig=str(api.kubeconfig), settings=ClientSettings(program="kube-controller-manager")
    )
    rest = others.rest("node-controller")
    count = 2 if api.is_real else 3
    with allocating(api, "10.244.0.0/24", well=False) as (metrics, controller):
        add(api, "ours")
        eventually(lambda: ranges(api)["ours"], 60)
        for number in range(count):
            name = f"theirs-{number}"
            add(api, name)
            eventually(lambda name=name: "CIDRNotAvailable" in api.reasons(name), 60)  # type: ignore[misc]
            assert all(ok for _, ok, _ in controller.notes())
            theirs = [f"10.9.{number}.0/24"]
            body = {"spec": {"podCIDR": theirs[0], "podCIDRs": theirs}}
            rest.request("PATCH", f"{NODES}/{name}", body=body, content_type=MERGE)
        eventually(lambda: metrics.value("node_ipam_controller_stopped") == 1, 60)
        [detail] = [detail for name, ok, detail in controller.notes() if name == "other-allocator" and not ok]
        assert "--allocate-node-cidrs=false" in detail
        who = "kube-controller-manager" if api.is_real else "an unknown program"
        assert f"another allocator is at work: {who} gave node theirs-{count - 1}" in detail
        eventually(lambda: "CIDRAllocationStopped" in api.reasons(f"theirs-{count - 1}"), 60)
        api.delete(f"{NODES}/ours")
        add(api, "late")
        eventually(
            lambda: metrics.value("node_ipam_controller_cidrset_usage_cidrs", clusterCIDR="10.244.0.0/24") == 0, 60
        )
        assert ranges(api)["late"] == []
    others.close()


@pytest.mark.row("M10")
def test_one_kubelet_can_neither_stop_the_allocation_nor_take_all_ranges(api: Cluster) -> None:
    """It registers its Node with all addresses of the cluster, and says that it is
    kube-controller-manager."""
    with allocating(api, "10.244.0.0/22") as (metrics, controller):
        add(api, "honest-1")
        eventually(lambda: ranges(api)["honest-1"], 60)
        body = labelled("node-0000", "10.244.0.0/22")
        kubelet = api.kubelet("node-0000")
        assert kubelet.request("POST", f"{NODES}?fieldManager=kube-controller-manager", body)[0] == 201
        eventually(lambda: "PodCIDRTooWide" in api.reasons("node-0000"), 60)
        for number in range(2, 5):
            add(api, f"honest-{number}")
        eventually(lambda: all(ranges(api).values()), 60)
        assert metrics.value("node_ipam_controller_conflicts_total", kind="other_writer") == 0
        assert all(ok for _, ok, _ in controller.notes())
    honest = {name: texts for name, texts in ranges(api).items() if name != "node-0000"}
    assert sorted(honest.values()) == [[f"10.244.{number}.0/24"] for number in range(4)]


@pytest.mark.row("M10")
def test_one_kubelet_that_writes_its_own_range_later_is_not_taken_for_an_allocator(api: Cluster) -> None:
    """The Node authorizer and NodeRestriction let it, by any name: of its own Node, while it has
    none."""
    with allocating(api, "10.244.0.0/24") as (metrics, controller):
        add(api, "honest-1")
        eventually(lambda: ranges(api)["honest-1"], 60)
        add(api, "node-0000")
        eventually(lambda: "CIDRNotAvailable" in api.reasons("node-0000"), 60)
        body = {"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}}
        own = f"{NODES}/node-0000?fieldManager=kube-controller-manager"
        assert api.kubelet("node-0000").request("PATCH", own, body, MERGE)[0] == 200
        eventually(lambda: metrics.value("node_ipam_controller_conflicts_total", kind="other_writer") == 1, 60)
        api.delete(f"{NODES}/honest-1")
        add(api, "honest-2")
        eventually(lambda: ranges(api)["honest-2"] == ["10.244.0.0/24"], 60)
        assert all(ok for _, ok, _ in controller.notes())


@pytest.mark.row("M10")
@pytest.mark.parametrize("api", [REAL], indirect=True)  # the embedded server has no admission policies
def test_the_policy_of_the_guide_keeps_kubelets_from_writing_pod_cidrs(api: Cluster) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "pod-cidrs.md").read_text()
    [block] = re.findall(r"```yaml\n(.*?)```", guide, re.S)
    policy, binding = yaml.safe_load_all(block)
    kubelet = api.kubelet("node-0000")
    body, ranged = labelled("node-0000"), labelled("node-0000", "10.9.0.0/24")

    def refused() -> str:
        status, answer = kubelet.request("POST", NODES, ranged)
        if status == 201:  # the policy is not in force yet
            api.delete(f"{NODES}/node-0000")
            return ""
        return str(answer["message"])

    with created(api, [policy, binding]):
        assert "pod CIDRs" in eventually(refused, 60)
        assert kubelet.request("POST", NODES, body)[0] == 201
        own = f"{NODES}/node-0000"
        cidrs = {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}
        assert kubelet.request("PATCH", own, {"spec": cidrs}, MERGE)[0] >= 400
        with allocating(api, "10.244.0.0/24"):
            eventually(lambda: ranges(api)["node-0000"] == ["10.244.0.0/24"], 60)
        note = {"metadata": {"annotations": {"example.com/note": "mine"}}}
        assert kubelet.request("PATCH", own, note, MERGE)[0] == 200, "it may change what it always may"


@pytest.mark.row("M11")
def test_a_node_that_cannot_be_changed_does_not_keep_the_others_without_ranges(
    api: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "_OLDEST", 5.0)
    add(api, "frozen")
    add(api, "n0")
    with frozen(api), allocating(api, "10.244.0.0/16") as (_, controller):
        add(api, "late")
        eventually(lambda: any(name == "takeover" for name, _, _ in controller.notes()), 60)
        assert not any(ranges(api).values()), "a former leader's write may be under way"
        eventually(lambda: ranges(api)["late"] and ranges(api)["n0"], 60)
        eventually(lambda: "CIDRAssignmentFailed" in api.reasons("frozen"), 60)
        assert ranges(api)["frozen"] == []
    judge(api)


@contextmanager
def frozen(api: Cluster) -> Iterator[None]:
    """The Node of this name cannot be changed: an admission policy protects it, as far as the
    server has such."""
    if isinstance(api.server, EmbeddedAPIServer):
        rule = api.server.access.deny(verb="patch", resource="nodes", name="frozen")
        yield
        api.server.access.allow_again(rule)
        return
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}]
    validations = [{"expression": "object.metadata.name != 'frozen'", "message": "this Node is protected"}]
    spec = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": rules}, "validations": validations}
    kind, metadata = "ValidatingAdmissionPolicy", {"name": "frozen"}
    policy = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}
    bound = {"policyName": "frozen", "validationActions": ["Deny"]}
    binding = {**policy, "kind": f"{kind}Binding", "spec": bound}
    with created(api, [policy, binding]):
        note = {"metadata": {"annotations": {"example.com/note": "again"}}}
        eventually(lambda: api.request("PATCH", f"{NODES}/frozen", note, MERGE)[0] >= 400, 60)
        yield


def slow_writes(server: EmbeddedAPIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of the first writes wait in the server, and are applied all the same."""
    answered, tickets = server.api.handle, iter(range(NODE_COUNT // 10))

    def late(request: Request) -> Response | WatchStream:
        slow = request.method == "PATCH" and re.search(r"nodes/n-.[37]\d", request.target)
        if slow and next(tickets, None) is not None:
            threading.Event().wait(1.5)
        return answered(request)

    monkeypatch.setattr(server.api, "handle", late)


def test_a_leader_is_killed_in_the_middle_and_no_range_is_given_twice(
    api: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some writes of the first leader are under way when it dies, and the server takes them up
    after the takeover."""
    flags = (
        "--cloud-provider=fake",
        f"--kubeconfig={api.kubeconfig}",
        "--controllers=nodeipam",
        "--allocate-node-cidrs",
        "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48",
        "--leader-elect=false",
    )
    names = [f"n-{number:03d}" for number in range(NODE_COUNT)]
    for name in names[::2]:
        add(api, name)
    watching = api.clients()
    informers = InformerFactory(watching.rest("judge"), metrics=Metrics())
    seen: dict[str, set[tuple[str, ...]]] = defaultdict(set)

    def note(node: V1Node) -> None:
        if pod_cidrs_of(node):
            seen[uid_of(node)].add(pod_cidrs_of(node))

    informers.informer(N).add_handler(lambda node, _: note(node), lambda _, node: note(node))
    informers.start()
    try:
        first = start(*flags, command=MODULE)
        eventually(lambda: seen, 60, lambda: first.log)
        if isinstance(api.server, EmbeddedAPIServer):
            slow_writes(api.server, monkeypatch)
        for name in names[1::2]:
            add(api, name)
            if name > names[NODE_COUNT * 3 // 4]:
                first.signal(signal.SIGKILL)
        first.ended()
        second = start(*flags, command=MODULE)
        eventually(lambda: len(seen) == NODE_COUNT, 60, lambda: second.log)
    finally:
        informers.stop()
    assert all(len(every) == 1 for every in seen.values())
    judge(api)
    assert "other-allocator" not in second.log
    assert not any(SEAL in (node["metadata"].get("annotations") or {}) for node in api.items(NODES))


@pytest.mark.parametrize(
    ("api", "cidrs"),
    [("embedded", "10.244.0.0/16"), pytest.param("real", "10.244.0.0/16,fd00:10:244::/48", marks=REAL.marks)],
    indirect=["api"],
)
def test_with_routes_a_cluster_without_overlay_works(api: Cluster, cidrs: str) -> None:
    """Nodes join: initialised, ranges, routes, NetworkUnavailable=False."""
    names = ["node-0000", "node-0001"]
    with FakeCloud(FakeConfig.model_validate({"generate": [{"count": 2}]})) as cloud:
        flags = ("--controllers=*,nodeipam", "--allocate-node-cidrs", f"--cluster-cidr={cidrs}")
        with ManagerRun(api.kubeconfig, cloud, flags):
            for name in names:
                api.create(NODES, small_node(name))
            for name in names:
                joined(api, name)
            eventually(lambda: not any(tainted(api, name) for name in names), 60)
        found = ranges(api)
        assert [len(found[name]) for name in names] == [cidrs.count(",") + 1] * 2
        table = {route.destination_cidr: route.target_node for route in cloud.console.routes()}
        assert table == {cidr: name for name in names for cidr in found[name]}
    judge(api)


@EMBEDDED
def test_a_provider_that_chooses_none_is_refused(api: Cluster) -> None:
    with (
        FakeCloud(FakeConfig(capabilities=("instances_v2",))) as cloud,
        pytest.raises(ValueError, match=r"pod_cidrs\(\) returns None"),
        allocating(api, cloud=cloud, cidr_allocator_type="CloudAllocator"),
    ):
        pass


@EMBEDDED
def test_the_plan_says_which_node_would_get_which_range(api: Cluster) -> None:
    add(api, "has", "10.244.0.0/24")
    add(api, "waits")
    flags = ["--cloud-provider=fake", f"--kubeconfig={api.kubeconfig}", "--controllers=nodeipam", "--dry-run"]
    parsed = parse([*flags, "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--secure-port=0"], CATALOG)
    assert parsed.options is not None
    with FakeCloud() as cloud, ClientBuilder.from_options(str(api.kubeconfig)) as clients:
        outcome = PlanRun(parsed.options, cloud, clients).run(threading.Event())
    assert outcome is not None
    rows = [(str(row.subject), row.action, [change.after for change in row.changes]) for row in outcome.rows]
    assert rows == [("node/waits", "set pod CIDR", [("10.244.1.0/24",)])]
    assert ranges(api)["waits"] == []
