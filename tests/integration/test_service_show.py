"""A day in the life of load balancers, as processes: cluster and cloud agree after everything."""

from __future__ import annotations

import signal

from cloudprovider.testing.fake import FakeCloud, hangs
from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import EMBEDDED, Cluster, Share
from tests.support.api import EVENTS, NODES
from tests.support.marker import MARKER, pass_by
from tests.support.nodes import small_node
from tests.support.process import Process, Start
from tests.support.services import FINALIZER, SERVICES, addresses, lb_service

CHANGING = ("ensure_load_balancer", "update_load_balancer", "ensure_load_balancer_deleted")


class Stage:
    """The cluster, the cloud, and the process between them."""

    def __init__(self, api: Cluster, start: Start, cloud: FakeCloud) -> None:
        self.api = api
        self.cloud = cloud
        self._start = start
        self.process: Process = self.begin()
        eventually(lambda: "service-lb-controller is running" in self.process.log, 30, message=lambda: self.process.log)

    def begin(self) -> Process:
        flags = ("--controllers=service", "--cluster-name=show", "--load-balancer-node-window=0.2s")
        self.process = self._start.manager(self.api.kubeconfig, *flags)
        return self.process

    def node(self, name: str) -> None:
        self.api.create(NODES, small_node(name, provider_id=f"fake://{name}"))

    def agrees(self) -> None:
        """Every Service that wants one has exactly its own load balancer, and there is no other."""
        wanted = {
            service["metadata"]["uid"]: service
            for service in self.api.items(SERVICES)
            if service["spec"]["type"] == "LoadBalancer"
        }
        balancers = self.cloud.console.load_balancers()
        assert sorted(balancer.service_uid for balancer in balancers) == sorted(wanted)
        nodes = sorted(node["spec"]["providerID"] for node in self.api.items(NODES))
        for balancer in balancers:
            service = wanted[balancer.service_uid]
            assert addresses(service) == list(balancer.ingress) != []
            assert [port.port for port in balancer.ports] == [port["port"] for port in service["spec"]["ports"]]
            assert sorted(balancer.backends) == nodes
            assert service["metadata"]["finalizers"] == [FINALIZER]
        for service in self.api.items(SERVICES):
            if service["spec"]["type"] != "LoadBalancer":
                assert "finalizers" not in service["metadata"]
                assert "loadBalancer" not in service["status"] or not service["status"]["loadBalancer"]

    def settled(self) -> None:
        def look() -> bool:
            self.agrees()
            return True

        eventually(look, 40, message=lambda: self.process.log)

    def written(self) -> list[tuple[str, str]]:
        """All objects and their versions, but those about the marker."""
        objects = [obj for path in (SERVICES, NODES, EVENTS) for obj in self.api.items(path)]
        name = MARKER.rpartition("/")[2]
        objects = [obj for obj in objects if obj.get("involvedObject", {}).get("name") != name]
        return sorted((obj["metadata"]["uid"], obj["metadata"]["resourceVersion"]) for obj in objects)


@EMBEDDED
def test_cluster_and_cloud_agree_after_a_day_of_everything(api: Cluster, start: Start, share: Share) -> None:
    cloud = share({"log": "all", "on_demand": {"types": ["m-2"]}, "latency": {"*": 0.02}})
    stage = Stage(api, start, cloud)
    for name in ("node-1", "node-2"):
        stage.node(name)
    for name in ("a", "b", "c"):
        api.create(SERVICES, lb_service(name))
    stage.settled()

    # An update; a node that joins and one that leaves.
    api.patch(f"{SERVICES}/a", {"spec": {"ports": [{"port": 8080, "protocol": "TCP"}]}})
    stage.node("node-3")
    api.delete(f"{NODES}/node-1")
    stage.settled()

    # Nodes join and leave while a Service is being deleted, where the Go program leaves an orphan.
    slow = cloud.faults.on("ensure_load_balancer_deleted", hangs(soft=True))
    api.delete(f"{SERVICES}/b")
    eventually(cloud.calls.running)
    stage.node("node-4")
    api.delete(f"{NODES}/node-2")
    eventually(
        lambda: all(len(one.backends) == 2 for one in cloud.console.load_balancers() if one.service != "default/b")
    )
    slow.remove()
    stage.settled()

    # Another type and back, and a Service made anew under its name.
    api.patch(f"{SERVICES}/c", {"spec": {"type": "ClusterIP"}})
    stage.settled()
    api.patch(f"{SERVICES}/c", {"spec": {"type": "LoadBalancer"}})
    api.delete(f"{SERVICES}/a")
    eventually(lambda: api.find(f"{SERVICES}/a") is None)
    api.create(SERVICES, lb_service("a", 81))
    stage.settled()

    # Killed between the cloud's creation and the status: the successor adopts what it finds.
    cloud.faults.on("ensure_load_balancer", hangs(after=True), key="default/late")
    late = api.create(SERVICES, lb_service("late"))["metadata"]["uid"]
    [half] = eventually(lambda: [one for one in cloud.console.load_balancers() if one.service_uid == late])
    assert addresses(api.get(f"{SERVICES}/late")) == []
    stage.process.signal(signal.SIGKILL)
    assert stage.process.ended() == -signal.SIGKILL
    cloud.faults.clear()
    api.delete(f"{SERVICES}/c")
    stage.begin()
    stage.settled()
    assert addresses(api.get(f"{SERVICES}/late")) == list(half.ingress)

    # A clean restart changes nothing, and then nothing happens any more.
    stage.process.signal(signal.SIGTERM)
    assert stage.process.ended() == 0
    before, calls = stage.written(), len(cloud.calls.log(*CHANGING))
    stage.begin()
    eventually(
        lambda: (
            len(cloud.calls.log("get_load_balancer")) >= 2 and "service-lb-controller is running" in stage.process.log
        ),
        30,
        lambda: stage.process.log,
    )
    pass_by(api, cloud)
    assert stage.written() == before
    assert [call for call in cloud.calls.log(*CHANGING)[calls:] if MARKER not in call.keys] == []
    stage.agrees()

    assert not cloud.calls.overlaps(unfinished=False)
    created = [
        call.keys[0]
        for call in cloud.calls.log("ensure_load_balancer")
        if call.effect == "created" and MARKER not in call.keys
    ]
    assert len(created) == len(set(created)) + 1, "only c was built twice, once for each of its lives"
    stage.process.signal(signal.SIGTERM)
    assert stage.process.ended() == 0
