"""Random lives of nodes: machines end, come back and are replaced, while the manager runs, is
restarted or is away. In the end each node has its one route, and nothing else lies inside."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

import pytest
from attrs import define, evolve, field
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cloudprovider import CloudProviderError, InstanceNotFound, Route
from controllers.route.planning import LIST, LISTING
from controllers.route.reconcile import RouteConflict, RouteRefused
from tests.unit.route.objects import Bench, Cloud, route

RANGES = {
    24: [f"10.244.{number}.0/24" for number in range(4)],
    26: [f"10.244.0.{64 * number}/26" for number in range(4)],
    64: [f"fd00:10:244:{number}::/64" for number in range(1, 5)],
}
NAMES = ["a", "b", "c", "d", "e"]
THEIRS = (
    route("10.244.0.0/17", "vpn", name="supernet"),
    route("10.244.250.250/32", "appliance", name="firewall"),
    route("10.244.250.251/32", name="dropped", blackhole=True),
    route("10.244.251.0/24", "VPN gateway", name="gateway"),
)
PERIODS = 14  # what becomes a blackhole again is left for up to an hour
EXPECTED = (CloudProviderError, RouteConflict, RouteRefused)


@define
class Provider(Cloud):
    """A cloud whose routes are known by their destinations, or that has any number for one."""

    several: bool = False
    ending: str = "blackhole"
    """What becomes of the routes to a machine that ends: a blackhole, "gone", or they "stay"."""
    owned: bool | None = None
    listed: str = "names"
    """What routes are listed with: "names", "machines", or machines beside "other names"."""
    machines: set[str] = field(factory=set)
    ids: dict[str, str] = field(factory=dict)
    """The provider ID of each node's present machine, or last one."""
    numbers: count[int] = field(factory=count)

    def leads_to(self, route: Route) -> str:
        """The node whose machine it leads to; "former" for a machine that was another's before."""
        machine = route.target_provider_id
        if not machine:
            return route.target_node
        return next((name for name, own in self.ids.items() if own == machine), "former")

    def born(self, name: str) -> None:
        """Another machine of this name."""
        self.machines.add(name)
        self.ids[name] = f"acme://m-{next(self.numbers)}"

    def create(self, cluster_name: str, name_hint: str, route: Route, *, priority: int = 0) -> None:
        self.enter("create", route.destination_cidr)
        if route.target_node not in self.machines:
            raise InstanceNotFound(f"no machine {route.target_node}")
        assert route.target_provider_id == self.ids[route.target_node]
        there = [one for one in self.routes if one.destination_cidr == route.destination_cidr]
        if any(self.leads_to(one) == route.target_node for one in there):
            return
        if there and not self.several:
            raise CloudProviderError("RouteAlreadyExists")
        name = f"route-{next(self.numbers)}"
        named = {"names": route.target_node, "machines": "", "other names": f"{route.target_node}-x"}[self.listed]
        machine = "" if self.listed == "names" else route.target_provider_id
        self.routes.append(Route(name, named, route.destination_cidr, owned=self.owned, target_provider_id=machine))

    def delete(self, cluster_name: str, route: Route, *, priority: int = 0) -> None:
        self.enter("delete", route.destination_cidr)
        self.routes = [
            one
            for one in self.routes
            if (one.name != route.name if self.several else one.destination_cidr != route.destination_cidr)
        ]

    def end(self, name: str) -> None:
        """A machine ends."""
        self.machines.discard(name)
        its = [one for one in self.routes if self.leads_to(one) == name and one not in THEIRS]
        if self.ending != "stay":
            self.routes = [one for one in self.routes if one not in its]
        if self.ending == "blackhole":
            self.routes += [evolve(one, target_node="", target_provider_id="", blackhole=True) for one in its]


class World:
    """Nodes with ranges of one size, their machines, and a manager that runs or does not."""

    def __init__(self, size: int, cloud: Provider, allocator: str) -> None:
        self.size, self.cloud, self.allocator = size, cloud, allocator
        self.nodes: dict[str, tuple[str, str, int]] = {}
        """Range, UID and how often its machine came back, by name."""
        self.uids = count()
        self.bench: Bench | None = None
        self.start()

    def start(self) -> None:
        self.bench = Bench(cloud=self.cloud, allocator=self.allocator)
        self.seen: set[str] = set()
        """The ranges that nodes had since."""
        for name in self.nodes:
            self.show(name)

    def show(self, name: str) -> None:
        """The cache hears of a node."""
        if self.bench is None:
            return
        if name in self.nodes:
            cidr, uid, since = self.nodes[name]
            machine = self.cloud.ids[name]
            self.bench.add(name, cidr, uid=uid, ready_since=f"2026-01-02T03:04:{since:02}Z", provider_id=machine)
            self.seen.add(cidr)
        else:
            self.bench.remove(name)
        self.bench.queue.add(name)

    def do(self, action: str, name: str) -> None:
        """One thing happens. What makes no sense now does not."""
        if action == "away":
            self.bench = None
        elif action == "restart":
            self.start()
        elif action == "join":
            free = [cidr for cidr in RANGES[self.size] if cidr not in {one[0] for one in self.nodes.values()}]
            if name not in self.nodes and free:
                self.born(name, free[0])
        elif name in self.nodes:
            cidr, uid, since = self.nodes[name]
            if action in ("leave", "rebuilt", "replaced", "ends"):
                self.cloud.end(name)
            if action == "leave":
                del self.nodes[name]
                self.show(name)
            elif action == "rebuilt":
                self.born(name, cidr)
            elif action == "replaced":
                del self.nodes[name]
                self.show(name)
                self.born(next(other for other in NAMES if other != name and other not in self.nodes), cidr)
            elif action == "back" and name not in self.cloud.machines:
                self.cloud.machines.add(name)
                self.nodes[name] = cidr, uid, since + 1
                self.show(name)

    def born(self, name: str, cidr: str) -> None:
        self.cloud.born(name)
        self.nodes[name] = cidr, f"uid-{next(self.uids)}", 0
        self.show(name)

    def settle(self) -> list[str]:
        """What is wrong when the manager had time enough."""
        assert self.bench is not None
        wrong: list[str] = []
        for _ in range(PERIODS):
            self.bench.queue.add(LIST, LISTING)
            self.work()
            wrong = self.wrong()
            if not wrong:
                break
            self.bench.clock.advance(300)
        return wrong

    def work(self) -> None:
        while self.bench is not None:
            with suppress(*EXPECTED):
                self.bench.work()
                return

    def wrong(self) -> list[str]:
        assert self.bench is not None
        found = [f"lost: {one}" for one in THEIRS if one not in self.cloud.routes]
        routes = [one for one in self.cloud.routes if one not in THEIRS]
        claimed = {cidr: name for name, (cidr, _, _) in self.nodes.items()}
        told = 0
        for cidr in RANGES[self.size]:
            there = [one for one in routes if one.destination_cidr == cidr]
            name = claimed.get(cidr)
            if name in self.cloud.machines:
                if [self.cloud.leads_to(one) for one in there] != [name]:
                    found.append(f"{cidr} of {name}: {there}")
            elif name is not None:
                found += [f"{cidr} of {name}: {one}" for one in there if self.cloud.leads_to(one) not in ("", name)]
            elif there and self.vouched(cidr):
                found.append(f"{cidr} of nobody: {there}")
            elif there:
                told += len(there)
        left_alone = self.bench.metrics.value("route_controller_routes_left_alone")
        if left_alone != told + 4:  # and the four of others
            found.append(f"{told + 4} are left alone, {left_alone} are told")
        return found

    def vouched(self, cidr: str) -> bool:
        """Whether the range's size, the provider or what happened shows whose it is."""
        usual = self.size != 26 and self.allocator == "RangeAllocator"
        return usual or self.cloud.owned is True or cidr in self.seen


ACTIONS = ["join", "join", "leave", "rebuilt", "replaced", "replaced", "ends", "back", "restart", "away", "away"]
HEIR = [("join", "a"), ("away", ""), ("replaced", "a"), ("restart", "")]
REVIVED = [("join", "a"), ("restart", ""), ("ends", "a"), ("back", "a")]


@pytest.mark.row("R15", "R16")
@pytest.mark.parametrize("allocator", ["RangeAllocator", "CloudAllocator"])
@pytest.mark.parametrize("owned", [None, True])
@pytest.mark.parametrize("size", [24, 26, 64])
@settings(max_examples=30)
@example(several=False, ending="blackhole", listed="names", life=HEIR)
@example(several=False, ending="stay", listed="names", life=HEIR)
@example(several=True, ending="stay", listed="names", life=HEIR)
@example(several=False, ending="stay", listed="machines", life=HEIR)
@example(several=False, ending="blackhole", listed="names", life=REVIVED)
@given(
    listed=st.sampled_from(["names", "machines", "other names"]),
    several=st.booleans(),
    ending=st.sampled_from(["blackhole", "blackhole", "gone", "stay"]),
    life=st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from(NAMES[:3])), min_size=4, max_size=12),
)
def test_each_node_has_its_one_route_and_nothing_else_lies_inside(
    size: int, owned: bool | None, allocator: str, several: bool, ending: str, listed: str, life: list[tuple[str, str]]
) -> None:
    cloud = Provider(routes=[*THEIRS], several=several, ending=ending, owned=owned, listed=listed)
    world = World(size, cloud, allocator)
    for action, name in life:
        world.do(action, name)
        if world.bench is not None:
            assert world.settle() == [], (action, name)
    world.start()
    assert world.settle() == []
