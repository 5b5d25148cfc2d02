"""The rules of the cloud, over the kernel in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from localcloud.cloud import Cloud, Conflict, NotFound
from localcloud.inputs import BalancerBody, Invalid, KeysBody, MachineBody, RouteBody, parse
from localcloud.kernel import BalancerRule, KernelError
from localcloud.layout import Layout
from localcloud.memory import MemoryKernel
from localcloud.model import HealthCheck, Machine

PORTS = [{"protocol": "TCP", "port": 80, "targetPort": 30080}]


class World:
    """A cloud whose health checks run when a test says so, and which can be restarted."""

    def __init__(self, folder: Path, pool: str = "198.51.100.0/24") -> None:
        self.layout = Layout(folder=folder, pool=pool)
        self.kernel = MemoryKernel()
        self.sick: set[str] = set()
        self.cloud = self.started()

    def started(self) -> Cloud:
        """A daemon that takes over what is in the kernel."""

        def check(address: str, health: HealthCheck) -> bool:
            return address not in self.sick

        cloud = Cloud(self.layout, self.kernel, check=check)
        cloud.health.start = lambda: None  # type: ignore[method-assign]  # rounds are the test's
        cloud.start()
        return cloud

    def machine(self, name: str) -> Machine:
        return self.cloud.create_machine(MachineBody(name=name)).machine

    def balancer(self, name: str = "web", owner: str = "me", **fields: object) -> str:
        body = BalancerBody.model_validate({"owner": owner, "ports": PORTS, **fields}, strict=False)
        return self.cloud.put_load_balancer(name, body).address

    def route(self, name: str, destination: str, machine: str, owner: str = "") -> None:
        self.cloud.put_route(name, RouteBody(destination=destination, machine=machine, owner=owner))

    def behind(self, name: str = "web") -> set[str]:
        """The addresses that get new connections."""
        (rule,) = [rule for rule in self.kernel.load_balancers if rule.name == name]
        return {target.address for target in rule.targets}

    def gateways(self) -> dict[str, str | None]:
        return {rule.destination: rule.gateway for rule in self.kernel.routes}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_machine_lives(world: World) -> None:
    made = world.machine("a")
    assert (made.id, made.address, made.region) == ("m1", "10.90.0.10", "local")
    assert world.kernel.machines == {"m1": made}
    assert world.cloud.machine("m1").running
    assert not world.cloud.stop_machine("m1").running
    assert world.kernel.machines == {}
    assert world.kernel.disks == {"m1"}
    assert world.cloud.start_machine("m1").running
    assert world.cloud.reboot_machine("m1").machine.address == "10.90.0.10"
    assert world.kernel.boots == ["m1"] * 3
    world.cloud.delete_machine("m1")
    assert (world.kernel.machines, world.kernel.disks, world.cloud.machines()) == ({}, set(), [])
    with pytest.raises(NotFound, match="there is no machine m1"):
        world.cloud.machine("m1")


def test_an_id_is_never_used_again(world: World) -> None:
    world.machine("a")
    world.cloud.delete_machine("m1")
    assert world.machine("a").id == "m2"
    assert world.started().create_machine(MachineBody(name="b")).machine.id == "m3"


def test_two_machines_cannot_have_one_name(world: World) -> None:
    world.machine("a")
    world.cloud.stop_machine("m1")
    with pytest.raises(Conflict, match="the name a belongs to m1"):
        world.machine("a")


def test_a_reboot_may_give_another_address(world: World) -> None:
    first, second = world.machine("a"), world.machine("b")
    world.balancer(targets=[first.id, second.id])
    world.route("r", "10.91.1.0/24", first.id)
    world.cloud.health.round()
    made = world.cloud.reboot_machine(first.id, new_address=True).machine
    assert made.address not in (first.address, second.address)
    assert world.gateways() == {"10.91.1.0/24": made.address}
    world.cloud.health.round()
    assert world.behind() == {made.address, second.address}
    assert world.cloud.machine_at(made.address).machine.id == first.id
    with pytest.raises(NotFound):
        world.cloud.machine_at(first.address)


def test_a_machine_that_ended_by_itself_is_shown_as_stopped(world: World) -> None:
    world.machine("a")
    world.kernel.crash("m1")
    assert not world.cloud.machine("m1").running
    assert [one.running for one in world.cloud.machines()] == [False]
    assert world.cloud.start_machine("m1").running


def test_a_machine_that_cannot_be_started_is_not_made(world: World) -> None:
    def fail(machine: Machine) -> None:
        raise KernelError("no namespaces here")

    world.kernel.start_machine = fail  # type: ignore[method-assign]
    with pytest.raises(KernelError, match="no namespaces"):
        world.machine("a")
    assert world.cloud.machines() == []


def test_machines_are_found_by_id_and_name(world: World) -> None:
    for name in "abc":
        world.machine(name)

    def found(**asked: list[str]) -> list[str]:
        return [one.machine.name for one in world.cloud.machines(**asked)]

    assert found() == ["a", "b", "c"]
    assert found(ids=["m3", "m1", "m9"]) == ["a", "c"]
    assert found(names=["b"]) == ["b"]
    assert found(names=["b"], ids=["m1"]) == []
    assert found(names=[]) == []


def test_when_all_addresses_are_taken(tmp_path: Path) -> None:
    world = World(tmp_path, pool="198.51.100.0/29")
    for number in range(6):
        world.balancer(f"lb-{number}")
    with pytest.raises(Conflict, match="all 6 addresses of the pool are taken"):
        world.balancer("lb-7")


def test_routes_follow_their_machines(world: World) -> None:
    made = world.machine("a")
    world.route("r", "10.91.1.0/24", "m1")
    assert world.gateways() == {"10.91.1.0/24": made.address}
    world.cloud.stop_machine("m1")
    assert world.gateways() == {"10.91.1.0/24": None}
    world.cloud.start_machine("m1")
    assert world.gateways() == {"10.91.1.0/24": made.address}
    world.cloud.delete_machine("m1")
    assert world.gateways() == {"10.91.1.0/24": None}
    world.cloud.delete_route("r")
    assert world.gateways() == {}


@pytest.mark.parametrize(
    ("name", "destination", "machine", "owner", "error"),
    [
        ("r2", "10.91.1.0/24", "m1", "me", "the route r1 has the destination 10.91.1.0/24 already"),
        ("r1", "10.91.2.0/24", "m1", "you", "the route r1 belongs to 'me', not to 'you'"),
        ("r2", "10.91.2.0/24", "m9", "me", "there is no machine m9"),
        ("r2", "10.90.0.0/15", "m1", "me", r"overlaps 10\.90\.0\.0/16, which is the cloud's own"),
        ("r2", "198.51.100.0/30", "m1", "me", "overlaps 198"),
        ("-r2", "10.91.2.0/24", "m1", "me", "the route's name must be"),
    ],
)
def test_routes_that_are_refused(
    world: World, name: str, destination: str, machine: str, owner: str, error: str
) -> None:
    world.machine("a")
    world.route("r1", "10.91.1.0/24", "m1", "me")
    before = world.cloud.routes()
    with pytest.raises((Conflict, Invalid), match=error):
        world.route(name, destination, machine, owner)
    assert world.cloud.routes() == before


def test_owners_are_kept_apart(world: World) -> None:
    world.machine("a")
    world.route("r", "10.91.1.0/24", "m1", "me")
    world.balancer()
    assert [len(world.cloud.routes(owner)) for owner in ("me", "you", None)] == [1, 0, 1]
    assert [len(world.cloud.load_balancers(owner)) for owner in ("me", "you", None)] == [1, 0, 1]
    for call in (
        lambda: world.cloud.delete_route("r", "you"),
        lambda: world.cloud.delete_load_balancer("web", "you"),
        lambda: world.balancer(owner="you"),
    ):
        with pytest.raises(Conflict, match="belongs to 'me', not to 'you'"):
            call()
    world.cloud.delete_route("r", "me")
    world.cloud.delete_load_balancer("web")
    assert (world.kernel.routes, world.kernel.load_balancers) == ((), ())


def test_a_load_balancer_keeps_its_address(world: World) -> None:
    first = world.balancer()
    assert first == "198.51.100.1"
    assert world.balancer("other") == "198.51.100.2"
    assert world.balancer(mode="proxy") == first
    assert world.balancer(requestedAddress="198.51.100.77") == "198.51.100.77"
    assert world.balancer() == "198.51.100.77"
    with pytest.raises(Conflict, match=r"198\.51\.100\.77 belongs to the load balancer web"):
        world.balancer("other", requestedAddress="198.51.100.77")
    with pytest.raises(Invalid, match="is not in the pool"):
        world.balancer(requestedAddress="192.0.2.1")


def test_only_healthy_targets_get_connections(world: World) -> None:
    one, two = world.machine("a"), world.machine("b")
    world.balancer(targets=[one.id, two.id, "m9"], health={"port": 30000})
    assert world.behind() == set(), "nobody was asked yet"
    world.sick = {two.address}
    world.cloud.health.round()
    assert world.behind() == {one.address}
    balancer = world.cloud.load_balancer("web")
    assert [(one.machine, one.healthy) for one in world.cloud.target_health(balancer)] == [
        ("m1", True), ("m2", False), ("m9", False),
    ]  # fmt: skip
    world.cloud.stop_machine("m1")
    assert world.behind() == set()


def test_a_restarted_daemon_goes_on(world: World) -> None:
    one = world.machine("a")
    world.machine("b")
    world.cloud.stop_machine("m2")
    world.balancer(targets=["m1"])
    world.route("r", "10.91.1.0/24", "m1")
    world.cloud.health.round()
    world.cloud.close()
    applied: list[int] = []
    apply = world.kernel.apply_load_balancers

    def count(rules: list[object]) -> None:
        applied.append(len(rules[0].targets))  # type: ignore[attr-defined]
        apply(rules)  # type: ignore[arg-type]

    world.kernel.apply_load_balancers = count  # type: ignore[assignment,method-assign]
    again = world.started()
    assert world.kernel.boots == ["m1", "m2"], "running machines are taken over"
    assert set(applied) == {1}, "at no moment without its target"
    assert world.behind() == {one.address}
    assert world.gateways() == {"10.91.1.0/24": one.address}
    assert [one.running for one in again.machines()] == [True, False]


def test_machines_that_the_state_does_not_know_are_ended(world: World, caplog: pytest.LogCaptureFixture) -> None:
    stray = Machine(id="m7", name="x", type="", region="", zone="", address="10.90.0.99")
    world.kernel.start_machine(stray)
    world.started()
    assert world.kernel.machines == {}
    assert "m7 runs, and the state does not know it" in caplog.text


def test_after_a_power_cut_machines_are_started_again(world: World) -> None:
    world.machine("a")
    world.kernel.destroy()
    world.started()
    assert set(world.kernel.machines) == {"m1"}


@pytest.mark.parametrize(
    "call",
    [
        lambda world: world.cloud.delete_route("r"),
        lambda world: world.cloud.delete_load_balancer("web"),
        lambda world: world.cloud.delete_machine("m1"),
        lambda world: world.route("r", "10.91.9.0/24", "m1"),
        lambda world: world.balancer(mode="proxy"),
        lambda world: world.cloud.stop_machine("m1"),
    ],
)
def test_what_the_kernel_refused_is_carried_out_by_the_same_request_again(
    world: World, call: Callable[[World], object]
) -> None:
    world.machine("a")
    world.route("r", "10.91.1.0/24", "m1")
    world.balancer(targets=["m1"])
    world.cloud.health.round()
    world.kernel.failure = KernelError("busy")
    with pytest.raises(KernelError, match="busy"):
        call(world)
    world.kernel.failure = None
    call(world)
    world.cloud.health.round()
    after = (world.kernel.routes, world.kernel.load_balancers, world.kernel.machines)
    again = world.started()
    assert (world.kernel.routes, world.kernel.load_balancers, world.kernel.machines) == after
    again.close()


def test_one_load_balancer_that_cannot_be_carried_out_fails_no_other(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    apply = world.kernel.apply_load_balancers

    def without_proxy(rules: Sequence[BalancerRule]) -> None:
        apply(rules)
        if failed := [rule.name for rule in rules if rule.mode == "proxy"]:
            raise KernelError(f"load balancer {', '.join(failed)}: there is no haproxy", failed)

    world.kernel.apply_load_balancers = without_proxy  # type: ignore[method-assign]
    with pytest.raises(KernelError, match="load balancer slow: there is no haproxy"):
        world.balancer("slow", mode="proxy")
    assert world.balancer("web") == "198.51.100.2"
    world.machine("a")
    world.cloud.delete_load_balancer("web")
    assert "load balancer slow: there is no haproxy" in caplog.text
    world.cloud.delete_load_balancer("slow")
    assert world.kernel.load_balancers == ()


def test_a_machine_that_neither_boots_nor_goes_is_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.kernel.failure = KernelError("no namespaces")
    with pytest.raises(KernelError, match="no namespaces"):
        world.machine("a")
    assert "machine m1 does not boot, and is not gone either; delete it: no namespaces" in caplog.text
    world.kernel.failure = None
    world.cloud.delete_machine("m1")
    assert world.machine("a").id == "m2"


def test_ssh_keys_are_on_every_machine(world: World) -> None:
    world.machine("a")
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5"
    world.cloud.put_ssh_keys("root", KeysBody(keys=[key, key]))
    world.cloud.put_ssh_keys("admin", KeysBody(keys=[key]))
    world.machine("b")
    for machine in ("m1", "m2"):
        path = world.layout.machine_disk(machine) / "ssh" / "authorized_keys"
        assert path.read_text() == f"{key} admin\n{key} root\n"
        assert path.stat().st_mode & 0o777 == 0o600
    assert world.started().ssh_keys("root") == (key,)
    assert world.cloud.put_ssh_keys("root", KeysBody(keys=[])) == ()
    assert world.cloud.ssh_keys("nobody") == ()


def test_the_console_is_the_end_of_a_file(world: World) -> None:
    world.machine("a")
    assert world.cloud.console("m1") == ""
    folder = world.layout.machine_disk("m1")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "console.log").write_text("one\ntwo\n")
    assert world.cloud.console("m1") == "one\ntwo\n"
    assert world.cloud.console("m1", most=4) == "two\n"
    with pytest.raises(NotFound):
        world.cloud.console("m2")


def test_many_at_once(world: World) -> None:
    errors: list[Exception] = []

    def work(number: int) -> None:
        try:
            made = world.cloud.create_machine(MachineBody(name=f"n{number}")).machine
            world.route(f"r{number}", f"10.91.{number}.0/24", made.id)
            world.balancer(f"lb-{number}", targets=[made.id])
            world.cloud.reboot_machine(made.id, new_address=True)
            if number % 2:
                world.cloud.delete_machine(made.id)
        except Exception as exc:  # noqa: BLE001 - shown below
            errors.append(exc)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    machines = {one.machine.id: one.machine.address for one in world.cloud.machines()}
    assert len(set(machines.values())) == 4
    assert world.kernel.machines.keys() == machines.keys()
    assert sorted(filter(None, world.gateways().values())) == sorted(machines.values())
    assert len({rule.address for rule in world.kernel.load_balancers}) == 8
    world.cloud.health.round()
    assert {address for rule in world.kernel.load_balancers for address in world.behind(rule.name)} == set(
        machines.values()
    )


def test_all_problems_of_a_body_are_told_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        parse(
            BalancerBody,
            b'{"owner": "", "ports": [{"port": 0, "targetPort": "80", "protocol": "SCTP"}], "targets": ["x"],'
            b' "sourceRanges": ["10.0.0.1/8", "::/0"], "affinity": "cookie", "extra": 1, "health": {"path": "x"},'
            b' "requestedAddress": "here"}',
        )
    places = [problem.split(":")[0] for problem in caught.value.problems]
    assert places == [
        "owner", "requestedAddress", "ports.0.protocol", "ports.0.port", "ports.0.targetPort", "targets.0",
        "sourceRanges.0", "sourceRanges.1", "affinity", "health.port", "health.path", "extra",
    ]  # fmt: skip


def test_ports_and_targets_must_fit_together() -> None:
    body = (
        b'{"owner": "me", "mode": "proxy", "ports": [{"port": 53, "targetPort": 1, "protocol": "UDP"},'
        b' {"port": 53, "targetPort": 2, "protocol": "UDP"}], "draining": ["m1"], "weights": {"m2": 1}}'
    )
    with pytest.raises(Invalid) as caught:
        parse(BalancerBody, body)
    assert str(caught.value) == (
        "port 53/UDP is given twice; mode proxy knows TCP alone; weights has m2, which are no targets; "
        "draining has m1, which are no targets"
    )


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "name: Field required"),
        (b"[]", "Input should be"),
        (b"{", "Invalid JSON"),
        (b'{"name": "A_b"}', "name: String should match pattern"),
        (b'{"name": "a", "zone": "x", "type": "y"}', "type: there is no type 'y'; there are small, medium, large"),
        (b'{"name": "a", "zone": "x", "type": "y"}', "zone: there is no zone 'x'; there are local-a"),
    ],
)
def test_bodies_of_machines_that_are_refused(body: bytes, problem: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse(MachineBody, body)
    assert any(one.startswith(problem) or f" {problem}" in one for one in caught.value.problems), caught.value.problems
