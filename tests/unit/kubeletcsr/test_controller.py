"""Triggers, queue and reconciler without threads, on a moved clock: what is approved, what a
hostile kubelet gets, what is asked and told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest
from attrs import evolve
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import CloudProviderError, InstanceMetadata, InstanceNotFound, InstancesV2, Interface
from cloudprovider.helpers import host_address
from controllers.cloudcalls import CloudCalls
from controllers.kubeletcsr.controller import KubeletCSRController
from controllers.kubeletcsr.reconcile import TRIES
from controllers.runtime.api import Response, from_status
from controllers.runtime.cache import KUBELET_SERVING_REQUESTS, NODES
from controllers.runtime.metrics import Metrics
from tests.support import kubeletcsr as make
from tests.support.clock import FakeClock
from tests.support.controllers import Recorder
from tests.support.nodes import UNINITIALIZED, small_node

WEB, DB = "web-1", "db-1"
IPS = {WEB: "10.0.0.1", DB: "10.0.0.2"}


class Cloud(Interface, InstancesV2):
    """Machines by the last part of their provider IDs, with the addresses that they have."""

    def __init__(self) -> None:
        self.machines = {name: [("InternalIP", ip), ("Hostname", name)] for name, ip in IPS.items()}
        self.error: Exception | None = None
        self.asked: list[str] = []
        self.echoes = False
        """Its Hostname is the name of the Node that is asked about, as the contract wants it."""

    def provider_name(self) -> str:
        return "acme"

    def instances_v2(self) -> InstancesV2:
        return self

    def instance_exists(self, node: V1Node) -> bool:
        raise NotImplementedError

    def instance_shutdown(self, node: V1Node) -> bool:
        raise NotImplementedError

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        assert node.metadata is not None
        provider_id = (node.spec.provider_id if node.spec is not None else None) or f"acme://{node.metadata.name}"
        self.asked.append(provider_id)
        if self.error is not None:
            raise self.error
        found = self.machines.get(provider_id.rpartition("/")[2].lower())
        if found is None:
            raise InstanceNotFound(f"no {provider_id}")
        addresses = [V1NodeAddress(type=kind, address=address) for kind, address in found]
        if self.echoes:
            addresses = [one for one in addresses if one.type != "Hostname"]
            addresses.append(V1NodeAddress(type="Hostname", address=node.metadata.name or ""))
        return InstanceMetadata(provider_id=provider_id, node_addresses=addresses)


class Lister:
    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        return self.objects.get(key)

    def list(self) -> list[Any]:
        return list(self.objects.values())


class World:
    """The controller without its threads: `work` works the queue off."""

    def __init__(self) -> None:
        self.clock, self.metrics, self.cloud = FakeClock(), Metrics(), Cloud()
        self.recorder, self.patches, self.version = Recorder(), list[dict[str, Any]](), 1
        self.csrs, self.nodes = Lister(), Lister()
        self.listers = {KUBELET_SERVING_REQUESTS.plural: self.csrs, NODES.plural: self.nodes}
        self.conflict: dict[str, Any] | None = None
        me = cast(Any, self)
        self.controller = KubeletCSRController(me, me, CloudCalls(self.cloud), metrics=self.metrics, clock=self.clock)
        self.controller._recorder.event = self.recorder.event  # type: ignore[method-assign]  # the one seam
        self.worker: Any = self.controller._workers[0]
        self.queue: Any = self.worker._queue
        handlers = [cell.cell_contents for cell in self.controller._handlers[0].__closure__ or ()]
        self.triggers = next(one.__self__ for one in handlers if getattr(one, "__name__", "") == "on_add")

    # In place of the client builder, of the informers and of the client.

    def rest(self, _name: str) -> Any:
        return self

    def informer(self, resource: Any) -> Any:
        self.lister = self.listers[resource.plural]
        return type("Informer", (), {"lister": self.lister})()

    def request(self, method: str, path: str, *, body: Any, content_type: str, **_: Any) -> Response:
        assert (method, content_type) == ("PATCH", "application/merge-patch+json")
        if self.conflict is not None:
            self.conflict, fresh = None, self.conflict
            self.fresh = fresh
            raise from_status(409, {}, {"reason": "Conflict"}, method=method, path=path)
        self.patches.append({"path": path, **body})
        return Response(200, {}, json.dumps({"metadata": {"resourceVersion": "9"}}).encode())

    def get(self, _path: str, **_: Any) -> Any:
        return self.fresh

    # What happens.

    def node(
        self,
        name: str,
        provider_id: str | None = None,
        addresses: Sequence[tuple[str, str]] | None = None,
        **more: Any,
    ) -> None:
        raw = small_node(name, provider_id=f"acme://{name}" if provider_id is None else provider_id, uid=name, **more)
        chosen = [("InternalIP", IPS.get(name, "10.0.0.9")), ("Hostname", name)] if addresses is None else addresses
        raw["status"]["addresses"] = [{"type": kind, "address": address} for kind, address in chosen]
        raw["metadata"]["resourceVersion"] = "1"
        self.nodes.objects[name] = NODES.parse(raw)

    def csr(self, node: str, request: bytes | None = None, *, at: int = 0, name: str = "", **spec: Any) -> Any:
        self.version += 1
        raw = make.csr(name or f"csr-{self.version}", node, request, **spec)
        raw["metadata"] |= {
            "uid": f"u{self.version}",
            "resourceVersion": str(self.version),
            "creationTimestamp": f"2026-01-02T03:{at:02}:05Z",
        }
        csr = KUBELET_SERVING_REQUESTS.parse(raw)
        self.csrs.objects[raw["metadata"]["name"]] = csr
        self.triggers.on_add(csr, False)
        return csr

    def work(self, passes: int = 1) -> None:
        for _ in range(passes):
            self.clock.advance(70)
            while len(self.queue):
                key = self.queue.get(0)
                if key is None:
                    return
                self.worker._requeuer.run(key, self.worker._reconcile, key)

    def ask(self, node: str, ips: Sequence[str] = (), names: Sequence[str] = ()) -> list[str]:
        """What is told of such a request after some tries; nothing if it is approved."""
        self.csr(node, make.pem(node, ips, names))
        self.work(4)
        if self.patches:
            assert not self.recorder.events
            return []
        assert {event.reason for event in self.recorder.events} <= {"KubeletCertificateNotApproved"}
        return [event.message for event in self.recorder.events]


def test_a_request_for_what_the_machine_has_is_approved() -> None:
    world = World()
    world.node(WEB)
    csr = world.csr(WEB, make.pem(WEB, ["10.0.0.1"], [WEB]))
    assert world.metrics.value("kubelet_serving_csr_pending_nodes") == 1
    world.work()
    (patch,) = world.patches
    assert patch["path"] == f"{make.CSRS}/{csr.metadata.name}/approval"
    assert patch["metadata"] == {"uid": csr.metadata.uid, "resourceVersion": csr.metadata.resource_version}
    (condition,) = patch["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Approved", "True")
    assert "10.0.0.1, web-1 of acme://web-1" in condition["message"]
    assert world.metrics.value("kubelet_serving_csr_decisions_total", decision="approved") == 1
    assert not world.recorder.events


def test_conditions_of_others_stay_and_a_decision_meanwhile_counts() -> None:
    world = World()
    world.node(WEB)
    csr = world.csr(WEB)
    raw = make.csr(csr.metadata.name, WEB)
    seen = {"type": "acme.example/Seen", "status": "True", "reason": "x"}
    raw["metadata"] |= {"uid": csr.metadata.uid, "resourceVersion": "77"}
    world.conflict = {**raw, "status": {"conditions": [seen]}}
    world.work()
    (patch,) = world.patches
    assert patch["metadata"]["resourceVersion"] == "77"
    assert [one["type"] for one in patch["status"]["conditions"]] == ["acme.example/Seen", "Approved"]
    assert len(world.cloud.asked) == 1, "the cloud is not asked again for a conflict"
    world.csr(WEB)
    world.conflict = {**raw, "status": {"conditions": [{"type": "Denied", "status": "True"}]}}
    world.conflict["metadata"]["uid"] = f"u{world.version}"
    world.work()
    assert len(world.patches) == 1, "an operator denied it"


def test_a_node_that_is_not_there_yet_is_waited_for_in_silence() -> None:
    world = World()
    world.csr(WEB)
    world.work()
    world.node(WEB, taints=[UNINITIALIZED])
    world.work()
    assert not world.cloud.asked
    world.node(WEB)
    world.work()
    assert len(world.patches) == 1
    assert not world.recorder.events


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ({"provider_id": ""}, "not initialised"),
        ({"provider_id": "", "taints": []}, "has no spec.providerID"),
        ({"taints": [UNINITIALIZED]}, "not initialised"),
        ({"addresses": [("Hostname", WEB)]}, "10.0.0.1 is not in the Node's status.addresses"),
    ],
)
def test_the_cloud_is_asked_only_where_the_node_is_in_order(node: dict[str, Any], why: str) -> None:
    world = World()
    world.node(WEB, **node)
    (text,) = set(world.ask(WEB, ["10.0.0.1"]))
    assert why in text
    assert not world.cloud.asked


def test_another_nodes_address_on_its_own_status_brings_a_kubelet_nothing() -> None:
    world = World()
    world.node(DB)
    world.node(WEB, addresses=[("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.2"), ("Hostname", DB)])
    text = world.ask(WEB, ["10.0.0.1", "10.0.0.2"], [DB])[0]
    assert "10.0.0.2 is not the machine's; db-1 is not the machine's name; the cloud says: InternalIP 10.0.0.1" in text


@pytest.mark.parametrize("echoes", [True, False])
@pytest.mark.parametrize("spelling", ["acme://db-1", "acme://DB-1", "acme:///db-1", "acme://zone-x/db-1"])
@pytest.mark.parametrize("is_node", [True, False])
def test_another_machines_provider_id_brings_a_kubelet_nothing(spelling: str, echoes: bool, is_node: bool) -> None:
    world = World()
    world.cloud.echoes = echoes
    world.cloud.machines[DB] = [("InternalIP", "10.0.0.2")]  # a cloud that says no names of its own
    world.node(WEB, spelling, [("InternalIP", "10.0.0.2"), ("Hostname", WEB)])
    if is_node:
        world.node(DB)
    text = world.ask(WEB, ["10.0.0.2"])[0]
    assert f"the machine of this name is acme://web-1, and the Node has the provider ID {spelling}" in text


def test_a_node_that_lies_keeps_no_other_from_its_certificate() -> None:
    world = World()
    world.node(DB)
    world.node(WEB, "acme://db-1", [("InternalIP", "10.0.0.2"), ("Hostname", WEB)])
    assert world.ask(DB, ["10.0.0.2"], [DB]) == []


def test_a_kubelet_whose_name_no_machine_has_gets_nothing() -> None:
    world = World()
    world.cloud.echoes = True
    world.node("evil", "acme://db-1", [("InternalIP", "10.0.0.2")])
    assert "knows no machine by the name of node evil" in world.ask("evil", ["10.0.0.2"])[0]


def test_another_spelling_of_its_own_provider_id_is_its_own() -> None:
    world = World()
    world.node(WEB, "acme:///WEB-1")
    assert world.ask(WEB, ["10.0.0.1"], [WEB]) == []


def test_an_address_in_the_machines_own_network_is_its_kubelets_choice() -> None:
    """Hetzner answers a network: `host_address` takes the address that the kubelet uses in it."""
    world = World()
    answer = world.cloud.instance_metadata

    def owner(node: V1Node) -> InstanceMetadata:
        address = V1NodeAddress(type="ExternalIP", address=host_address("2001:db8:1::/64", node))
        return evolve(answer(node), node_addresses=[address])

    world.cloud.instance_metadata = owner  # type: ignore[method-assign]  # another cloud
    wished = {"alpha.kubernetes.io/provided-node-ip": "2001:db8:1::7"}
    world.node(WEB, addresses=[("ExternalIP", "2001:db8:1::7")], annotations=wished)
    assert world.ask(WEB, ["2001:db8:1::7"], [WEB]) == []
    assert world.cloud.asked == ["acme://web-1"] * 2


def test_a_cloud_without_provider_ids_is_asked_by_name_as_every_other() -> None:
    world = World()
    world.cloud.provider_id_prefixes = lambda: ()  # type: ignore[method-assign]  # another cloud
    answer = world.cloud.instance_metadata
    world.cloud.instance_metadata = lambda node: evolve(answer(node), provider_id="")  # type: ignore[method-assign]
    world.node(WEB, "", taints=[])
    assert world.ask(WEB, ["10.0.0.1"], [WEB]) == []
    assert "10.0.0.1, web-1 of the machine, node web-1" in world.patches[0]["status"]["conditions"][0]["message"]


def test_the_question_by_name_shows_nothing_that_a_kubelet_wrote() -> None:
    world = World()
    world.node(WEB, labels={"acme.example/instance": "db-1"})
    seen: list[V1Node] = []
    answer = world.cloud.instance_metadata

    def note(node: V1Node) -> InstanceMetadata:
        seen.append(node)
        return answer(node)

    world.cloud.instance_metadata = note  # type: ignore[method-assign]  # to see what it is asked
    assert world.ask(WEB, ["10.0.0.1"]) == []
    (bare,) = seen  # it has confirmed all
    assert bare.metadata is not None
    assert bare.status is not None
    assert (bare.metadata.name, bare.metadata.labels, bare.status.addresses) == (WEB, {}, None)


def test_an_address_that_has_moved_is_not_remembered() -> None:
    world = World()
    world.node(WEB)
    world.csr(WEB)
    world.work()
    assert len(world.patches) == 1
    world.cloud.machines[WEB] = [("InternalIP", "10.0.0.3"), ("Hostname", WEB)]
    world.csr(WEB)
    world.work(4)
    assert len(world.patches) == 1
    assert "10.0.0.1 is not the machine's" in world.recorder.events[-1].message


def test_the_id_of_a_machine_that_is_no_node_brings_a_kubelet_nothing_where_the_cloud_says_names() -> None:
    world = World()
    world.node(WEB, "acme://db-1", [("InternalIP", "10.0.0.2"), ("Hostname", WEB)])
    text = world.ask(WEB, ["10.0.0.2"], [WEB])[0]
    assert "the machine of this name is acme://web-1, and the Node has the provider ID acme://db-1" in text


NAMES: list[tuple[str, list[tuple[str, str]], list[str], str]] = [
    # node, what the cloud says beside the IP, what is asked for, what speaks against it
    (WEB, [("Hostname", WEB)], [WEB], ""),
    (WEB, [("Hostname", "WEB-1")], [WEB], ""),
    (WEB, [], [WEB], ""),
    (WEB, [("InternalDNS", "web-1.acme.internal")], [WEB, "web-1.acme.internal"], ""),
    (WEB, [("ExternalDNS", "web-1.acme.example"), ("Hostname", WEB)], ["web-1.acme.example"], ""),
    ("web-1.acme.example", [("Hostname", "web-1.acme.example")], ["web-1.acme.example"], ""),
    (WEB, [], ["db-1"], "db-1 is not the machine's name"),
    (WEB, [("Hostname", WEB)], ["web-1.acme.internal"], "web-1.acme.internal is not the machine's name"),
    (WEB, [("Hostname", "db-1")], [WEB], "calls the machine of this name db-1"),
    ("db-1.evil", [("Hostname", "db-1")], [], "calls the machine of this name db-1"),
    ("acme", [("InternalDNS", "web-1.acme.internal")], [], "calls the machine of this name web-1.acme.internal"),
    ("api.acme.example", [], ["api.acme.example"], "has a dot, and the cloud says no name"),
    (WEB, [("Hostname", "10.0.0.2")], [WEB], ""),  # no name, and no address either
]


@pytest.mark.parametrize(("node", "said", "asked", "why"), NAMES)
def test_names_are_those_that_the_cloud_says(
    node: str, said: list[tuple[str, str]], asked: list[str], why: str
) -> None:
    world = World()
    world.cloud.machines[node] = [("InternalIP", "10.0.0.1"), *said]
    world.node(node, addresses=[("InternalIP", "10.0.0.1"), ("Hostname", node), *said])
    told = world.ask(node, ["10.0.0.1"], asked)
    assert (why in told[0]) if why else not told


def test_a_hostname_that_is_an_address_is_none() -> None:
    world = World()
    world.cloud.machines["10.0.0.2"] = [("InternalIP", "10.0.0.1"), ("Hostname", "10.0.0.2")]
    world.node("10.0.0.2", addresses=[("InternalIP", "10.0.0.1"), ("Hostname", "10.0.0.2")])
    assert "10.0.0.2 is not in the Node's status.addresses" in world.ask("10.0.0.2", ["10.0.0.2"])[0]


def test_another_clouds_node_is_left_to_its_manager() -> None:
    world = World()
    world.node(WEB, "other://web-1")
    assert world.ask(WEB, ["10.0.0.1"]) == []
    assert not world.cloud.asked
    assert not world.patches


def test_what_can_never_be_right_is_told_once_and_not_tried_again() -> None:
    world = World()
    world.node(WEB)
    csr = world.csr(WEB, make.pem(DB, ["10.0.0.2"]))
    world.work(5)
    (event,) = world.recorder.events
    assert (event.name, event.type, event.reason) == (WEB, "Warning", "KubeletCertificateNotApproved")
    assert "its subject is" in event.message
    assert event.message.endswith(f"kubectl certificate approve {csr.metadata.name}")
    assert world.metrics.value("kubelet_serving_csr_decisions_total", decision="refused") == 1
    assert not world.cloud.asked


@pytest.mark.parametrize("error", [CloudProviderError("busy"), InstanceNotFound("gone"), RuntimeError("bug")])
def test_a_cloud_that_fails_is_asked_again(error: Exception) -> None:
    world = World()
    world.node(WEB)
    world.cloud.error = error
    world.csr(WEB)
    world.work(4)  # that there is no such machine is told at the third try: it may have just joined
    assert str(error) in world.recorder.events[-1].message
    world.cloud.error = None
    world.work()
    assert len(world.patches) == 1


def test_a_request_that_the_kubelet_has_forgotten_is_not_tried_for_ever() -> None:
    world = World()
    world.node(WEB)
    world.cloud.error = CloudProviderError("down")
    world.csr(WEB)
    world.work(TRIES + 10)
    assert len(world.cloud.asked) == TRIES
    world.cloud.error = None
    world.work()
    assert not world.patches
    world.csr(WEB)  # after a quarter of an hour, with another key
    world.work()
    assert len(world.patches) == 1


def test_another_request_is_tried_as_often_as_the_first() -> None:
    world = World()
    world.node(WEB)
    world.cloud.error = CloudProviderError("down")
    for _ in range(2):
        world.csr(WEB)
        world.work(TRIES - 5)
    world.cloud.error = None
    world.work()
    assert len(world.patches) == 1


def test_of_many_requests_the_newest_alone_costs_a_question() -> None:
    world = World()
    world.node(WEB)
    for minute in (10, 40, 20, 30):  # a list has no order
        world.csr(WEB, at=minute, name=f"csr-at-{minute}")
    world.work(3)
    assert len(world.cloud.asked) == 1
    assert [patch["path"].rpartition("/")[0].rpartition("/")[2] for patch in world.patches] == ["csr-at-40"]


def test_a_kubelet_cannot_have_the_cloud_asked_as_often_as_it_likes() -> None:
    world = World()
    world.node(WEB, addresses=[("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.2")])
    for _ in range(100):
        world.csr(WEB, make.pem(WEB, ["10.0.0.2"]))
        world.clock.advance(0.1)
        while len(world.queue):
            key = world.queue.get(0)
            if key is None:
                break
            world.worker._requeuer.run(key, world.worker._reconcile, key)
    assert len(world.cloud.asked) <= 2 * 4, "once in five seconds"


def test_a_deleted_request_is_forgotten() -> None:
    world = World()
    world.node(WEB)
    csr = world.csr(WEB)
    del world.csrs.objects[csr.metadata.name]
    world.triggers.on_delete(csr)
    world.work()
    assert not world.cloud.asked
    assert world.metrics.value("kubelet_serving_csr_pending_nodes") == 0


def test_an_approved_one_is_left_alone() -> None:
    world = World()
    world.node(WEB)
    csr = world.csr(WEB)
    raw = make.csr(csr.metadata.name, WEB)
    raw["metadata"] |= {"uid": csr.metadata.uid, "resourceVersion": "5"}
    raw["status"] = {"conditions": [{"type": "Approved", "status": "True"}]}
    world.csrs.objects[csr.metadata.name] = KUBELET_SERVING_REQUESTS.parse(raw)
    world.work()
    assert not world.cloud.asked


def test_a_provider_without_instances_is_refused_at_construction() -> None:
    class Nothing(Interface):
        def provider_name(self) -> str:
            return "acme"

    with pytest.raises(ValueError, match="cannot be asked about nodes"):
        KubeletCSRController(cast(Any, None), cast(Any, None), CloudCalls(Nothing()))
