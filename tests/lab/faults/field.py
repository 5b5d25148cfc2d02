"""What a fault acts on: the stage with its managers, the proxy before the API server, the cloud,
and the objects of a small cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, TypeVar

from attrs import define, field, frozen

from cloudprovider.testing.fake import Action, FakeCloud, Strike
from cloudprovider.testing.waiting import eventually
from tests.lab.faults.judge import Problem
from tests.lab.faults.networks import Bad
from tests.support.api import API, NODES, Refused
from tests.support.failover.churn import node
from tests.support.failover.stage import Kind, Stage
from tests.support.failover.supervisor import Candidate
from tests.support.proxy import Asked, ChaosProxy, Network
from tests.support.services import SERVICES, lb_service

STANDING: Final = tuple(f"std-{number}" for number in range(6))
"""Services that are there from the beginning, and that only faults change."""
_LATE: Final = 40_000
"""Numbers of the nodes that faults make; those of the churn begin with the count of nodes."""

JSON = dict[str, Any]
N = TypeVar("N", bound=Bad)


@define
class Field:
    """For one run. `notes` and `problems` are what a fault wants to have told."""

    stage: Stage
    proxy: ChaosProxy
    kind: Kind
    seconds: float
    """How long the fault is to stand."""
    size: int
    """How many nodes or Services a fault makes that makes many."""
    notes: list[str] = field(factory=list)
    problems: list[Problem] = field(factory=list)
    gave_up: dict[str, float] = field(factory=dict)
    """See `judge.GaveUp`."""
    targets: list[tuple[str, int]] = field(factory=list)
    """Of each call that set a load balancer's nodes: the Service, and how many nodes."""
    _next: int = _LATE

    @property
    def api(self) -> API:
        """Past the proxy, with all rights."""
        return self.stage.api

    @property
    def cloud(self) -> FakeCloud:
        return self.stage.cloud.cloud

    def check(self, held: bool, problem: str) -> None:
        """Note a problem unless `held`."""
        if not held:
            self.problems.append(Problem("", problem))

    # ---- the network and the cloud

    @contextmanager
    def network(self, network: N, what: str) -> Iterator[N]:
        """The network is this one for the body of a with statement; it notes how many `what` met
        the fault."""
        self.proxy.network = network
        try:
            yield network
        finally:
            self.proxy.network = Network()
            self.notes.append(f"{network.met} {what}")
            self.check(network.met > 0, f"the fault met nothing: no {what}")

    def of(self, candidate: Candidate) -> Callable[[Asked], bool]:
        """Requests of this candidate."""
        tokens = self.stage.ground.tokens(candidate.name)
        return lambda asked: asked.token in tokens

    @contextmanager
    def cloud_fault(
        self, methods: str | tuple[str, ...], do: Action, *, key: str = "*", needed: bool = True
    ) -> Iterator[None]:
        """These calls end so for the body of a with statement; it notes how many did."""
        fault = self.cloud.faults.on(methods, do, key=key)
        try:
            yield
        finally:
            fault.remove()
            self.notes.append(f"{fault.struck} calls struck")
            self.check(fault.struck > 0 or not needed, "the fault struck no call")

    def spy(self) -> None:
        """Note the nodes that load balancers are given."""

        def look(strike: Strike) -> Any:
            _, service, nodes = strike.arguments
            self.targets.append((f"{service.metadata.namespace}/{service.metadata.name}", len(nodes)))
            return strike.proceed()

        self.cloud.faults.on(("ensure_load_balancer", "update_load_balancer"), look)

    def await_call(self, method: str, key: str) -> None:
        """Until such a call is under way."""

        def running() -> bool:
            return any(one.method == method and key in one.keys for one in self.cloud.calls.running())

        eventually(running, 60.0, self.stage.logs)

    # ---- objects

    def serve(self, name: str) -> None:
        """Make a Service that wants a load balancer, again and again while its forerunner is
        there."""

        def created() -> bool:
            try:
                self.api.create(SERVICES, lb_service(name))
            except Refused as refused:
                if refused.status != 409:
                    raise
                return False
            return True

        eventually(created, 120, self.stage.logs)

    def give_up(self, name: str) -> None:
        """Note that its user wants no load balancer from now on."""
        self.gave_up[f"default/{name}"] = time.time()

    def join(self, count: int = 1, *, ready: str = "True") -> None:
        """Make machines, and their Nodes."""
        for _ in range(count):
            number, self._next = self._next, self._next + 1
            name = f"made-{number}"
            self.add_machine(name, number)
            self.api.create(NODES, node(name, number - _LATE + 1000, ready))

    def add_machine(self, name: str, number: int) -> None:
        """Only the machine."""
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        self.cloud.console.add_instance(name, addresses={"InternalIP": address})

    # ---- managers

    def await_other(self, leader: Candidate) -> Candidate:
        """Until another one leads."""
        return self.stage.await_leader(but=leader, timeout=120.0)

    def leader_and_standby(self) -> Candidate:
        """The leader, once the other one stands by."""
        leader = self.stage.await_leader()
        eventually(lambda: self.stage.standby(leader), 90, self.stage.logs)
        return leader


Stand = Callable[[Field], AbstractContextManager[object]]
"""What is done: the fault stands in the body of the with statement, and its end clears it."""


@frozen
class Fault:
    """One row of the catalogue."""

    id: str
    name: str
    what: str
    """What is done, and where it clears: a sentence or two for the page."""
    stand: Stand
    seconds: float = 8.0
    """How long it stands, while nodes and Services come and go. In the fast form less."""
    managers: int = 1
    without_go: str = ""
    """Why the Go manager is not run under it; empty: it is."""
    within: float = 60.0
    """Seconds within which cluster and cloud must be equal, from the fault's end on."""
    churn: float = 5.0
    """Changes of nodes and Services a second, meanwhile."""
    flags: tuple[str, ...] = ()
    direct: bool = False
    """Past the proxy, which would be what is measured."""
    shift: float = 0.0
    """Seconds by which clocks of ours can be wrong; see `launch.py`."""
    forbidden: bool = False
    """Whether 401 and 403 are the fault, and no news."""
    late: int = 8
    """How many writes may come late: one of each thread that was about to send when its process
    stood still, which is no wonder on a busy machine."""
    many: int = 0
    """How many nodes or Services the fault makes, in the long form."""
    tests: tuple[str, ...] = ()
    """Other tests of the same fault."""
