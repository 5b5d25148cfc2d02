"""`make run` without a kubeconfig: an embedded API server as the cluster, a fake cloud, and the
manager's replicas as processes of their own, in five acts.

The deeds are what kubelets, people and accidents do; everything that is waited for is the managers'
work. Nothing here tells a manager anything: it sees its flags, the cluster and the cloud.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from cloudprovider import CloudProviderError
from cloudprovider.testing import objects
from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.fake import FakeCloud, FakeConfig, raises
from cloudprovider.testing.kubelets import Kubelets
from cloudprovider.wellknown import TAINT_EXTERNAL_CLOUD_PROVIDER
from livedemo.manager import ManagerProcess
from livedemo.screen import Failed, Screen

MACHINES = ["cp-01", "worker-01", "worker-02", "worker-03", "worker-04", "worker-05"]
LATE = "worker-06"
"""The machine that joins after the leader was killed."""
STUMBLE = "worker-03"
"""The first call about this node fails, to show what happens then."""
DOOMED = "worker-02"
"""The machine that is deleted."""
LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 5, 3, 1
"""Shorter than in production (15, 10, 2), so that nobody has to wait long for a new leader."""
MONITOR_SECONDS = 1
"""--node-monitor-period: the time between the two answers that must say that a machine is gone."""
SLOW = ("instance*_metadata", "ensure_load_balancer*", "update_load_balancer", "create_route")
NEXT = """
Where to go next
  examples/main.py                   the ten lines of a vendor's own manager
  examples/samplecloud/              a provider to copy, in a package of its own
  docs/explanation/way-of-an-object.md  how a watch event becomes a patch, file by file
  make docs                          builds the documentation site
  make test                          all tests, also over a real kube-apiserver
  make run KUBECONFIG=PATH           initialises the nodes of your own cluster, with a fake cloud"""


def machine(name: str, number: int) -> dict[str, Any]:
    """What the cloud says about one of its machines; each has another number."""
    return {
        "type": "standard-4" if name.startswith("cp-") else "standard-8",
        "zone": f"north-1{'abc'[number % 3]}",
        "region": "north-1",
        "addresses": {"InternalIP": f"10.0.16.{number + 2}"},
    }


class Story:
    """A context manager: cluster and cloud live inside it, and no manager outlives it."""

    def __init__(self, directory: Path) -> None:
        instances = [{"name": name, **machine(name, number)} for number, name in enumerate(MACHINES)]
        config = FakeConfig.model_validate({"instances": instances, "latency": dict.fromkeys(SLOW, (0.1, 0.4))})
        self._directory = directory
        self._ends = ExitStack()
        self.cloud = self._ends.enter_context(FakeCloud(config))
        self.server = EmbeddedAPIServer()
        self.managers: list[ManagerProcess] = []
        self.screen = Screen(self._look, self._excuse)
        self._kubelets = Kubelets(self.server)
        self._seen: dict[str, float] = {}
        self._spent: dict[str, float] = {}
        self._targets: dict[str, int] = {}

    def __enter__(self) -> Story:
        self.server.start()
        self._ends.callback(self.server.stop)
        self._kubeconfig = self.server.write_kubeconfig(self._directory / "kubeconfig")
        return self

    def __exit__(self, *_: object) -> None:
        for manager in self.managers:
            manager.terminate()
        for manager in self.managers:
            manager.stop()
        self._ends.close()

    def run(self) -> None:
        """Tell the story. Raises Failed."""
        screen = self.screen
        first = [self._add_manager("manager A"), self._add_manager("manager B")]
        screen.write("Two replicas of the cloud-controller-manager, an embedded API server, a fake cloud:")
        screen.write("  " + " \\\n      ".join(first[0].command) + "\n", "dim")
        for manager in first:
            manager.start()
        screen.until({
            "one of them leads": lambda: self._leader() is not None and all(one.ready() for one in self.managers)
        })  # fmt: skip
        acts = (
            self.nodes_join, self.a_service_gets_its_load_balancer, self.a_machine_is_deleted,
            self.the_leader_is_killed, self.the_leader_is_stopped_in_order,
        )  # fmt: skip
        for number, act in enumerate(acts, 1):
            title = act.__name__.replace("_", " ").capitalize()
            screen.act(f"{number}/{len(acts)}", title, " ".join((act.__doc__ or "").split()))
            act()
        self._sum_up(len(acts))

    # ---- the acts; the viewer reads their docstrings

    def nodes_join(self) -> None:
        """A new Node has a taint that keeps pods away. Watch the cloud-node controller ask the
        cloud about each machine, write its addresses, zone and provider ID, and remove the taint.
        Then the route controller makes a route to the node's pods."""
        busy = CloudProviderError("the cloud's database is busy, try later")
        self.cloud.faults.on("instance*_metadata", raises(busy), key=STUMBLE, times=1)
        self.screen.deed(f"the kubelets of {len(MACHINES)} machines register their nodes")
        for name in MACHINES:
            self._join(name)
            self.screen.pause(0.2)
        self.screen.until({
            f"the taint is gone from all {len(MACHINES)} nodes": lambda: set(MACHINES) <= self._spent.keys(),
            f"{STUMBLE}: the cloud failed at first; an Event tells it, and the retry went well": lambda: (
                self._event("FailedToInitializeNode", STUMBLE) and STUMBLE in self._spent
            ),
            "each has a route in the cloud, and the condition RouteCreated": lambda: all(map(self._routed, MACHINES)),
        })  # fmt: skip

    def a_service_gets_its_load_balancer(self) -> None:
        """Watch the service controller build a load balancer in the cloud, with every node as a
        target, and write its address into the Service."""
        self.screen.deed("kubectl create service loadbalancer web --tcp=80:8080")
        self.server.create(objects.service("web"))
        self.screen.until({
            "Service web has an address": lambda: self._address("web"),
            f"its load balancer has {len(MACHINES)} targets": lambda: self._targets.get("web") == len(MACHINES),
        })  # fmt: skip

    def a_machine_is_deleted(self) -> None:
        """Its kubelet is silent, but that alone deletes no Node: the cloud must say twice that the
        machine is gone. Watch the Node, its route and its place in the load balancer go."""
        self.screen.deed(f"somebody deletes the machine {DOOMED} in the cloud")
        self.cloud.console.remove_instance(DOOMED)
        body = {"status": {"conditions": [objects.ready_condition(False)]}}
        strategic = "application/strategic-merge-patch+json"
        self.server.patch("nodes", DOOMED, body, subresource="status", content_type=strategic)
        ranges = len(MACHINES) - 1
        self.screen.until({
            "the Node object is deleted": lambda: DOOMED not in self._nodes(),
            "an Event tells why (DeletingNode)": lambda: self._event("DeletingNode", DOOMED),
            "its route is deleted": lambda: len(self.cloud.console.routes()) == ranges,
            f"the load balancer of web has {ranges} targets": lambda: self._targets.get("web") == ranges,
        })  # fmt: skip

    def the_leader_is_killed(self) -> None:
        """It cannot say goodbye, so its Lease lasts a few seconds more, and nobody works. Then the
        other manager takes the Lease. Watch it do what has come up meanwhile, and leave alone what
        is in order."""
        leader = self._leader()
        other = next((one for one in self.managers if one is not leader), None)
        if leader is None or other is None:
            raise Failed(f"there is no leader with another manager on standby{self._excuse()}")
        kept = self._address("web")
        self.screen.deed(f"kill -9 {leader.pid}   ({leader.name}, the leader)")
        leader.kill()
        self.screen.deed(f"while nobody leads: {LATE} joins, and Service shop is created")
        self.cloud.console.add_instance(LATE, **machine(LATE, len(MACHINES)))
        self._join(LATE)
        self.server.create(objects.service("shop"))
        self.screen.until({
            f"{other.name} is the leader": lambda: self._leader() is other,
            f"{LATE} is initialised and has its route": lambda: LATE in self._spent and self._routed(LATE),
            "Service shop has an address": lambda: self._address("shop"),
            f"web keeps its address, and {LATE} becomes its target": lambda: (
                self._address("web") == kept and self._targets.get("web") == len(MACHINES)
            ),
        })  # fmt: skip

    def the_leader_is_stopped_in_order(self) -> None:
        """It finishes its work and gives the Lease back, so that the next manager need not wait.
        Watch that one delete a load balancer that another manager built."""
        screen, leader, third = self.screen, self._leader(), self._add_manager("manager C")
        if leader is None:
            raise Failed(f"there is no leader{self._excuse()}")
        screen.deed("manager C starts in place of the one that was killed, as in a Deployment")
        third.start()
        screen.until({"manager C stands by": third.ready})
        screen.deed(f"kill {leader.pid}   ({leader.name}, the leader)")
        leader.terminate()
        screen.until({
            "manager C is the leader": lambda: self._leader() is third,
            f"{leader.name} has ended with exit code 0": lambda: leader.exit_code == 0,
        })  # fmt: skip
        screen.deed("kubectl delete service shop")
        self.server.delete("services", "shop")
        screen.until({
            "its load balancer is deleted in the cloud, then the Service": lambda: (
                "shop" not in self._targets and not any(one["metadata"]["name"] == "shop" for one in self._services())
            ),
            "no two managers changed the cloud at the same time": lambda: (
                len(self._writers()) == len(set(self._writers())) == len(self.managers)
            ),
        })  # fmt: skip

    # ---- what is done

    def _add_manager(self, name: str) -> ManagerProcess:
        config = self.cloud.share(self._directory / f"{name.replace(' ', '-')}.json", caller=name)
        manager = ManagerProcess(
            name,
            [
                "--cloud-provider=fake",
                f"--cloud-config={config}",
                f"--kubeconfig={self._kubeconfig}",
                "--cluster-name=demo",
                "--leader-elect=true",
                f"--leader-elect-lease-duration={LEASE_SECONDS}s",
                f"--leader-elect-renew-deadline={RENEW_SECONDS}s",
                f"--leader-elect-retry-period={RETRY_SECONDS}s",
                "--secure-port=0",
                "--allocate-node-cidrs",
                "--cluster-cidr=10.244.0.0/16",
                f"--node-monitor-period={MONITOR_SECONDS}s",
                "--node-deletion-young-grace=0s",  # its machines are older than they look
                "--health-bind-address=127.0.0.1:0",
                "--logging-format=json",
            ],
        )
        self.managers.append(manager)
        return manager

    def _join(self, name: str) -> None:
        """A kubelet with --cloud-provider=external registers its node, and kube-controller-manager
        gives it a range for its pods."""
        self._seen[name] = self.screen.elapsed
        self._kubelets.join(name)

    def _sum_up(self, acts: int) -> None:
        longest = 0.0
        for manager in [one for one in self.managers if one.exit_code is None]:
            code, took = manager.stop()
            longest = max(longest, took)
            if code != 0:
                raise Failed(f"{manager.name} ended with exit code {code} after SIGTERM{manager.last_words()}")
        screen, changes = self.screen, len(self._changes())
        late = self._spent.pop(LATE)
        screen.write("\nIn figures", "bold")
        screen.write(f"  {screen.checks} checks in {acts} acts came true, in {screen.elapsed:.0f} s")
        screen.write(
            f"  nodes initialised: median {median(self._spent.values()):.1f} s; {LATE}, while nobody led, {late:.1f} s"
        )
        screen.write(f"  the cloud was changed {changes} times: by {', then '.join(self._writers())}")
        screen.write(f"  the last manager ended with exit code 0, {longest:.1f} s after SIGTERM")
        screen.write(NEXT)

    # ---- what is seen

    def _look(self) -> None:
        """Tell what is new. Raises Failed if a manager ended that should run."""
        screen = self.screen
        for manager in self.managers:
            if manager.exit_code is not None and not manager.told_to_end:
                raise Failed(f"{manager.name} ended with exit code {manager.exit_code}{manager.last_words()}")
            if manager.pid:
                screen.tell((manager.name, text := self._role(manager)), f"{manager.name} {text}", "magenta")
        nodes = self._nodes()
        for name, node in nodes.items():
            for line in self._news(name, node):
                screen.tell(line, f"node {name}: {line}")
        for name in self._seen.keys() - nodes.keys():
            screen.tell((name, "deleted"), f"node {name}: deleted")
        targets = {one.service.rpartition("/")[2]: len(one.backends) for one in self.cloud.console.load_balancers()}
        for name in targets.keys() | self._targets.keys():
            now = targets.get(name)
            if now != self._targets.get(name):
                text = "deleted in the cloud" if now is None else f"{now} targets"
                screen.tell((name, screen.elapsed), f"load balancer of {name}: {text}")
        self._targets = targets
        for service in self._services():
            name = service["metadata"]["name"]
            if address := self._address(name):
                screen.tell((name, address), f"Service {name}: has the address {address}")
        for event in self.server.list("events"):
            if event["reason"] != "Synced":  # what a line of a node says already
                about = "{kind}/{name}".format(**event["involvedObject"])
                text = f"Event {event['type']} {event['reason']} {about}: {event['message']}"
                screen.tell(text, text, "yellow" if event["type"] == "Warning" else "dim")

    def _news(self, name: str, node: dict[str, Any]) -> Iterator[str]:
        yield "joined, with the uninitialized taint"
        spec, labels = node["spec"], node["metadata"].get("labels", {})
        if not any(taint["key"] == TAINT_EXTERNAL_CLOUD_PROVIDER for taint in spec.get("taints", ())):
            spent = self._spent.setdefault(name, self.screen.elapsed - self._seen[name])
            addresses = ",".join(one["address"] for one in node["status"]["addresses"] if one["type"] != "Hostname")
            facts = [
                spec.get("providerID", ""), addresses, labels.get("node.kubernetes.io/instance-type", ""),
                labels.get("topology.kubernetes.io/zone", ""),
            ]  # fmt: skip
            yield f"initialised in {spent:.2f} s: {'  '.join(facts)}"
        if self._routed(name):
            yield f"has a route for its pods, {spec['podCIDR']}"

    def _role(self, manager: ManagerProcess) -> str:
        if manager.was_killed:
            return "was killed"
        if manager.exit_code is not None:
            return "has ended"
        if manager.told_to_end:
            return "finishes its work"
        if self._leader() is manager:
            return "is the leader"
        return "is on standby" if manager.ready() else f"starts, process {manager.pid}"

    def _leader(self) -> ManagerProcess | None:
        """The manager that holds the Lease and still runs."""
        try:
            holder = self.server.get("leases", "cloud-controller-manager", "kube-system")["spec"].get("holderIdentity")
        except KeyError:
            return None
        running = (one for one in self.managers if one.exit_code is None)
        return next((one for one in running if one.identity and one.identity == holder), None)

    def _nodes(self) -> dict[str, dict[str, Any]]:
        return {one["metadata"]["name"]: one for one in self.server.list("nodes")}

    def _services(self) -> list[dict[str, Any]]:
        return [one for one in self.server.list("services", "default") if one["spec"].get("type") == "LoadBalancer"]

    def _address(self, name: str) -> str:
        found = [one for one in self._services() if one["metadata"]["name"] == name]
        points = [p for one in found for p in (one.get("status", {}).get("loadBalancer") or {}).get("ingress") or ()]
        return ", ".join(point.get("ip", "") for point in points)

    def _routed(self, name: str) -> bool:
        """Whether the cloud has a route to the node, and the node says so."""
        conditions = self._nodes()[name]["status"].get("conditions", ())
        told = any(one["type"] == "NetworkUnavailable" and one["reason"] == "RouteCreated" for one in conditions)
        return told and any(one.target_node == name for one in self.cloud.console.routes())

    def _event(self, reason: str, name: str) -> bool:
        events = self.server.list("events")
        return any((one["reason"], one["involvedObject"]["name"]) == (reason, name) for one in events)

    def _changes(self) -> list[Any]:
        return [one for one in self.cloud.calls.log(changes_only=True) if one.caller.name]

    def _writers(self) -> list[str]:
        """The managers in the order in which they changed the cloud; one that appears twice was
        interrupted by another."""
        moments = [(at, one.caller.name) for one in self._changes() for at in (one.sequence, one.finished or 0)]
        return [name for name, _ in groupby(name for _, name in sorted(moments))]

    def _excuse(self) -> str:
        """The managers' last warnings."""
        return "".join(f"\n  {one.name}, last lines:{one.last_words()}" for one in self.managers if one.pid)
