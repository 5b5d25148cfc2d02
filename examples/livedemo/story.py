"""The story that `make run` tells: five acts, each with its deeds and with what must come of them.

Written in the words of `script.py`. The deeds are what kubelets, people and accidents do; everything that the checks
ask for is the managers' work.
"""

from __future__ import annotations

from collections.abc import Iterator

from livedemo import script
from livedemo.cluster import machine
from livedemo.manager import ManagerProcess
from livedemo.scene import Role, Scene
from livedemo.script import Act, Check, Do, Failed, Pause, Settle, expect
from livedemo.stage import LEASE_SECONDS, MONITOR_SECONDS, StoryStage

MACHINES = ["cp-01", "worker-01", "worker-02", "worker-03", "worker-04", "worker-05"]
LATE = "worker-06"
"""The machine that joins after the leader was killed."""
STUMBLE = "worker-03"
"""The first call about this node fails, to show what happens then."""
DOOMED = "worker-02"
"""The machine that is deleted."""


class Story:
    """The acts, for one stage."""

    def __init__(self, stage: StoryStage) -> None:
        self._stage = stage
        self.acts = (
            Act(
                "Nodes join",
                "A new Node has a taint that keeps pods away. Watch the cloud-node controller ask the cloud about each "
                "machine, write its addresses, zone and provider ID, and remove the taint. Then the route "
                "controller makes a route to the node's pods.",
                self._nodes_join,
            ),
            Act(
                "A Service gets its load balancer",
                "Watch the service controller build a load balancer in the cloud, with every node as a "
                "target, and write its address into the Service.",
                self._a_service_gets_its_address,
            ),
            Act(
                "A machine is deleted",
                f"Its kubelet is silent, but that alone deletes no Node: the cloud must say twice, {MONITOR_SECONDS} s "
                "apart, that the machine is gone. Watch the Node, its route and its place in the load balancer go.",
                self._a_machine_is_deleted,
            ),
            Act(
                "The leader is killed",
                f"It cannot say goodbye, so its Lease lasts {LEASE_SECONDS} s more, and nobody works. Then the other "
                "manager takes the Lease. Watch it do what has come up meanwhile, and leave alone what is in order.",
                self._the_leader_is_killed,
            ),
            Act(
                "The leader is stopped in order",
                "It finishes its work and gives the Lease back, so that the next manager need not wait. "
                "Watch that one delete a load balancer that another manager built.",
                self._the_leader_is_stopped,
            ),
        )
        self.takeovers: dict[str, Check] = {}
        """By the signal that the leader got: the check that another manager leads."""

    def _nodes_join(self) -> Iterator[script.Step]:
        everyone = set(MACHINES)
        yield expect(
            Check(f"the taint is gone from all {len(MACHINES)} nodes", lambda scene: _initialised(scene, everyone)),
            Check(
                f"{STUMBLE}: the cloud failed at first; an Event tells it, and the retry went well",
                lambda scene: (
                    scene.told(f"Node/{STUMBLE}", "FailedToInitializeNode") and _initialised(scene, {STUMBLE})
                ),
            ),
            Check(
                "each has a route in the cloud, and the condition RouteCreated", lambda scene: _routed(scene, everyone)
            ),
        )
        yield Do(f"the kubelets of {len(MACHINES)} machines register their nodes", lambda: None)
        for name in MACHINES:
            self._stage.cluster.join(name)
            yield Pause(0.35)

    def _a_service_gets_its_address(self) -> Iterator[script.Step]:
        yield Do(
            "kubectl create service loadbalancer web --tcp=80:8080", lambda: self._stage.cluster.create_service("web")
        )
        yield expect(
            Check("Service web has an address", lambda scene: _address(scene, "web") != ""),
            Check(
                f"its load balancer has {len(MACHINES)} targets",
                lambda scene: _targets(scene, "web") == len(MACHINES),
            ),
        )

    def _a_machine_is_deleted(self) -> Iterator[script.Step]:
        def delete() -> None:
            self._stage.cloud.console.remove_instance(DOOMED)
            self._stage.cluster.silence(DOOMED)

        yield Do(f"somebody deletes the machine {DOOMED} in the cloud", delete)
        yield expect(
            Check("the Node object is deleted", lambda scene: scene.node(DOOMED) is None),
            Check("an Event tells why (DeletingNode)", lambda scene: scene.told(f"Node/{DOOMED}", "DeletingNode")),
            Check("its route is deleted", lambda scene: not _has_route(scene, DOOMED)),
            Check(
                f"the load balancer of web has {len(MACHINES) - 1} targets",
                lambda scene: _targets(scene, "web") == len(MACHINES) - 1,
            ),
        )

    def _the_leader_is_killed(self) -> Iterator[script.Step]:
        stage, (leader, other) = self._stage, self._leader_and_standby()
        kept = _address(stage.look(), "web")
        self.takeovers["kill -9"] = _leads(other.name)

        def meanwhile() -> None:
            stage.cloud.console.add_instance(LATE, **machine(LATE, len(MACHINES)))
            stage.cluster.join(LATE)
            stage.cluster.create_service("shop")

        yield Do(f"kill -9 {leader.pid}   ({leader.name}, the leader)", leader.kill)
        yield Do(f"while nobody leads: {LATE} joins, and Service shop is created", meanwhile)
        yield expect(
            self.takeovers["kill -9"],
            Check(
                f"{LATE} is initialised and has its route",
                lambda scene: _initialised(scene, {LATE}) and _routed(scene, {LATE}),
            ),
            Check("Service shop has an address", lambda scene: _address(scene, "shop") != ""),
            Check(
                f"web keeps its address, and {LATE} becomes its target",
                lambda scene: _address(scene, "web") == kept and _targets(scene, "web") == len(MACHINES),
            ),
        )

    def _the_leader_is_stopped(self) -> Iterator[script.Step]:
        stage, leader = self._stage, self._leader_and_standby(alone=True)[0]
        third = stage.add_manager("manager C")
        self.takeovers["SIGTERM"] = _leads(third.name)
        yield Do("manager C starts in place of the one that was killed, as in a Deployment", third.start)
        yield expect(Check("manager C stands by", lambda scene: _plays(scene, "manager C", Role.STANDBY)))
        yield Settle()
        yield Do(f"kill {leader.pid}   ({leader.name}, the leader)", leader.terminate)
        yield expect(
            self.takeovers["SIGTERM"],
            Check(f"{leader.name} has ended with exit code 0", lambda _: leader.exit_code == 0),
        )
        yield Settle()
        yield Do("kubectl delete service shop", lambda: stage.cluster.delete_service("shop"))
        yield expect(
            Check(
                "its load balancer is deleted in the cloud, then the Service",
                lambda scene: scene.service("shop") is None and _targets(scene, "shop") is None,
            ),
            Check(
                "no two managers changed the cloud at the same time",
                lambda scene: len(scene.writers) == len(set(scene.writers)) == len(stage.managers),
            ),
        )

    def _leader_and_standby(self, alone: bool = False) -> tuple[ManagerProcess, ManagerProcess]:
        leader, other = self._stage.leader(), self._stage.standby()
        if leader is None or (other is None and not alone):
            raise Failed(f"there is no leader with another manager on standby{self._stage.excuse()}")
        return leader, other or leader


def _leads(name: str) -> Check:
    return Check(f"{name} is the leader", lambda scene: _plays(scene, name, Role.LEADER))


def _plays(scene: Scene, name: str, role: Role) -> bool:
    return any((row.name, row.role) == (name, role) for row in scene.managers)


def _initialised(scene: Scene, names: set[str]) -> bool:
    return names <= {row.name for row in scene.nodes if row.ready is not None}


def _routed(scene: Scene, names: set[str]) -> bool:
    return names <= {row.name for row in scene.nodes if row.routed and scene.routes.get(row.pod_cidr) == row.name}


def _has_route(scene: Scene, name: str) -> bool:
    return any(row.name == name and row.pod_cidr in scene.routes for row in scene.nodes)


def _address(scene: Scene, name: str) -> str:
    service = scene.service(name)
    return service.address if service else ""


def _targets(scene: Scene, name: str) -> int | None:
    return next((row.targets for row in scene.services if row.name == name), None)
