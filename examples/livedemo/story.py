"""The story that `make run` tells: five acts, each with its deeds and with what must come of them.

Written in the words of `script.py`. The deeds are what kubelets, people and accidents do; everything that the checks
ask for is the managers' work.
"""

from __future__ import annotations

from collections.abc import Iterator

from livedemo import script
from livedemo.scene import Scene
from livedemo.script import Act, Check, Do, Pause, expect
from livedemo.stage import MONITOR_SECONDS, StoryStage

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
        )

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
    service = scene.service(name)
    return service.targets if service else None
