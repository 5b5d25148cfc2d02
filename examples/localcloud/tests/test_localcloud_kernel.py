"""The kernel's side of the local cloud over real packets: machines, routes, load balancers."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path

import pytest
from attrs import evolve
from localcloud.commands import find
from localcloud.health import HealthMonitor, Probe
from localcloud.kernel import KernelError, RouteRule
from localcloud.linux import LinuxKernel
from localcloud.model import HealthCheck, Port
from realcloud import Cloud, ask, ask_udp, connect, eventually, slot, udp_client, why_not

BUSYBOX = next((path for path in ("/bin/busybox", "/usr/bin/busybox") if Path(path).exists()), "")

pytestmark = [
    pytest.mark.localcloud,
    pytest.mark.skipif(bool(why_not()), reason=f"no real local cloud here: {why_not()}"),
]


@pytest.fixture(scope="module")
def shared() -> Iterator[Cloud]:
    with slot() as layout:
        cloud = Cloud(layout)
        cloud.start()
        yield cloud
        cloud.kernel.close()


@pytest.fixture
def cloud(shared: Cloud) -> Iterator[Cloud]:
    yield shared
    shared.apply()
    shared.kernel.apply_routes([])


# Machines


def test_a_machine_is_a_world_of_its_own(cloud: Cloud) -> None:
    assert cloud.run(1, "hostname").strip() == "node-1"
    assert cloud.run(1, "cat /etc/hostname /proc/sys/net/ipv4/ip_forward").split() == ["node-1", "1"]
    assert cloud.run(1, "cat /etc/machine-id") != cloud.run(2, "cat /etc/machine-id")
    assert "init.py" in cloud.run(1, "cat /proc/1/cmdline")
    assert sorted(cloud.run(1, "ls /sys/class/net").split())[:2] == ["eth0", "lo"]
    assert {line.rpartition(":")[2] for line in cloud.run(1, "cat /proc/1/cgroup").split()} <= {"/", "/init"}


def test_what_a_machine_writes_stays_on_its_disk(cloud: Cloud) -> None:
    places = ("/etc/cni/x", "/var/lib/x", "/var/log/x", "/run/x", "/tmp/x")
    cloud.run(1, "".join(f"mkdir -p $(dirname {place}); echo from-node-1 > {place}\n" for place in places))
    for place in places:
        assert not Path(place).exists()
        assert (Path(f"{cloud.layout.machine_disk('m1')}/root{place}")).read_text() == "from-node-1\n"
    with pytest.raises(KernelError, match="Read-only"):
        cloud.run(1, "touch /usr/x")
    before = Path("/proc/sys/kernel/panic").read_text()
    cloud.run(1, "echo 7 > /proc/sys/kernel/panic")
    assert Path("/proc/sys/kernel/panic").read_text() == before


def test_processes_without_a_parent_leave_no_zombies(cloud: Cloud) -> None:
    cloud.run(1, "for i in 1 2 3 4 5; do (sleep 0.1 &) ; done")
    count = "cat /proc/[0-9]*/stat 2>/dev/null | awk '$2 == \"(sleep)\"' | wc -l"
    eventually(lambda: cloud.run(1, count).strip() == "0", "all five are collected")


def test_machines_reach_each_other_and_the_host_and_keep_their_addresses(cloud: Cloud) -> None:
    address = cloud.machine(2).address
    reach = f"import socket; print(socket.create_connection(('{address}', 8080), 5).recv(100).decode())"
    assert cloud.run(1, f'{sys.executable} -c "{reach}"').split() == ["node-2", cloud.machine(1).address]
    assert ask(address, 8080) == ("node-2", str(cloud.layout.host_address))


def test_power_off_ends_everything_and_power_on_finds_the_disk(cloud: Cloud) -> None:
    cloud.run(2, "echo kept > /var/lib/kept; setsid sleep 4321 > /dev/null 2>&1 &")
    began = time.monotonic()
    cloud.kernel.stop_machine("m2")
    assert time.monotonic() - began < 5
    assert not cloud.kernel.is_running("m2")
    assert not _processes("sleep\x004321\x00")
    assert not Path(f"/run/netns/{cloud.layout.machine_namespace('m2')}").exists()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/localcloud-{cloud.layout.name}/m2"))
    with pytest.raises(OSError, match=r"No route to host|timed out"):
        ask(cloud.machine(2).address, 8080, timeout=0.3)
    with pytest.raises(KernelError, match="m2 does not run"):
        cloud.kernel.enter_command("m2", ["true"])
    new = f"{cloud.layout.base}.0.77"
    cloud.boot(2, address=new)
    assert ask(new, 8080) == ("node-2", str(cloud.layout.host_address))
    assert cloud.run(2, "cat /var/lib/kept") == "kept\n"
    assert cloud.log(2).count("--- boot at") == 2
    cloud.kernel.stop_machine("m2")
    cloud.boot(2)


def test_a_machine_that_ends_by_itself_is_noticed_and_can_start_again(cloud: Cloud) -> None:
    pid = int(cloud.kernel.enter_command("m2", ["true"])[1].partition("=")[2])
    subprocess.run(["kill", "-9", str(pid)], check=True)
    eventually(lambda: not cloud.kernel.is_running("m2"), "its end is noticed")
    assert cloud.kernel.running_machines() == {"m1"}
    cloud.boot(2)
    assert cloud.kernel.running_machines() == {"m1", "m2"}


def test_userdata_that_fails_is_told_in_the_console_and_the_machine_runs_on(cloud: Cloud) -> None:
    cloud.kernel.start_machine(evolve(cloud.machine(3), user_data="#!/bin/sh\necho begun $MACHINE_ID\nexit 3\n"))
    eventually(lambda: "the userData ended with 3" in cloud.log(3), "its end is told")
    assert "begun m3" in cloud.log(3)
    assert cloud.kernel.is_running("m3")
    with pytest.raises(KernelError, match="m3 runs: stop it"):
        cloud.kernel.delete_disk("m3")
    cloud.kernel.stop_machine("m3")
    cloud.kernel.delete_disk("m3")
    assert not cloud.layout.machine_disk("m3").exists()


def test_a_machine_that_cannot_boot_says_why(cloud: Cloud) -> None:
    disk = cloud.layout.machine_disk("m4")
    (disk / "root" / "var").mkdir(parents=True)
    (disk / "root" / "var" / "log").write_text("a file where a folder must be")
    with pytest.raises(KernelError, match=r"m4 \(node-4\) does not boot: FileExistsError"):
        cloud.kernel.start_machine(cloud.machine(4))
    assert not cloud.kernel.is_running("m4")
    cloud.kernel.delete_disk("m4")
    assert not Path(f"/run/netns/{cloud.layout.machine_namespace('m4')}").exists()


@pytest.mark.skipif(not BUSYBOX or find("runc") is None, reason="runc or a static busybox is not installed")
def test_a_container_runs_in_a_machine_and_ends_with_it(cloud: Cloud) -> None:
    bundle = cloud.layout.machine_disk("m3") / "root/var/lib/bundle"
    (bundle / "rootfs/bin").mkdir(parents=True)
    shutil.copy(BUSYBOX, bundle / "rootfs/bin/sh")
    cloud.kernel.start_machine(evolve(cloud.machine(3), user_data=""))
    cloud.run(3, "cd /var/lib/bundle && runc spec")
    spec = json.loads((bundle / "config.json").read_text())
    spec["process"] |= {"terminal": False, "args": ["/bin/sh", "-c", "echo in; while :; do sleep 1; done"]}
    (bundle / "config.json").write_text(json.dumps(spec))
    cloud.run(3, "cd /var/lib/bundle && runc run --detach box > /var/log/box 2>&1 < /dev/null")
    log = cloud.layout.machine_disk("m3") / "root/var/log/box"
    eventually(lambda: log.read_text() == "in\n", "the container runs")
    own = f"/sys/fs/cgroup/*/localcloud-{cloud.layout.name}/m3"
    assert glob(f"{own}/**/box", recursive=True)
    cloud.kernel.stop_machine("m3")
    assert not glob(own)
    cloud.kernel.delete_disk("m3")


# Routes


def test_a_route_leads_to_the_pods_of_a_machine_until_it_is_gone(cloud: Cloud) -> None:
    pod, gateway = cloud.pod(1), cloud.machine(1).address
    with pytest.raises(OSError, match="No route to host"):
        ask(pod, 8080)
    cloud.kernel.apply_routes([RouteRule(destination=cloud.pods(1), gateway=gateway)])
    assert ask(pod, 8080) == ("node-1", str(cloud.layout.host_address))
    cloud.kernel.apply_routes([RouteRule(destination=cloud.pods(1), gateway=None)])
    with pytest.raises(OSError, match="timed out"):
        ask(pod, 8080, timeout=0.3)
    cloud.kernel.apply_routes([RouteRule(destination=cloud.pods(1), gateway=gateway)])
    assert ask(pod, 8080)[0] == "node-1"
    cloud.kernel.apply_routes([])
    with pytest.raises(OSError, match="No route to host"):
        ask(pod, 8080)


def test_pods_of_two_machines_reach_each_other_with_their_own_addresses(cloud: Cloud) -> None:
    cloud.kernel.apply_routes(
        [RouteRule(destination=cloud.pods(n), gateway=cloud.machine(n).address) for n in (1, 2)]
    )  # fmt: skip
    here, there = cloud.pod(1), cloud.pod(2)
    reach = f"socket.create_connection(('{there}', 8080), 5, ('{here}', 0)).recv(100).decode()"
    assert cloud.run(1, f'{sys.executable} -c "import socket; print({reach})"').split() == ["node-2", here]


# Load balancers


def test_new_connections_are_spread_evenly_and_the_clients_address_is_kept(cloud: Cloud) -> None:
    cloud.apply(cloud.rule(1, 2))
    answers = [ask(cloud.address, source=cloud.clients[0]) for _ in range(10)]
    assert Counter(answers) == {("node-1", cloud.clients[0]): 5, ("node-2", cloud.clients[0]): 5}


def test_weights_share_the_connections(cloud: Cloud) -> None:
    rule = cloud.rule(1, 2)
    first, second = rule.targets
    cloud.apply(evolve(rule, targets=(evolve(first, weight=3), second)))
    assert Counter(ask(cloud.address)[0] for _ in range(8)) == {"node-1": 6, "node-2": 2}


def test_udp_keeps_the_clients_address_and_leaves_a_target_that_is_removed(cloud: Cloud) -> None:
    cloud.apply(cloud.rule(1))
    with udp_client(cloud.clients[1]) as client:
        assert ask_udp(client, cloud.address) == ("node-1", cloud.clients[1])
        cloud.apply(cloud.rule(1, 2))
        assert ask_udp(client, cloud.address)[0] == "node-1", "a flow stays with its target"
        cloud.apply(cloud.rule(2))
        assert ask_udp(client, cloud.address) == ("node-2", cloud.clients[1])


def test_udp_that_found_no_target_reaches_one_that_comes(cloud: Cloud) -> None:
    cloud.apply(cloud.rule())
    with udp_client(cloud.clients[1]) as client:
        with pytest.raises(TimeoutError):
            ask_udp(client, cloud.address)
        cloud.apply(cloud.rule(1))
        assert ask_udp(client, cloud.address) == ("node-1", cloud.clients[1])


def test_direct_packets_reach_targets_as_they_are(cloud: Cloud) -> None:
    """The machines know the balancer's address themselves, as kube-proxy does on every node."""
    for number in (1, 2):
        cloud.run(number, f"ip address add {cloud.address}/32 dev lo")
    ports = (Port(protocol="TCP", port=8080, target_port=8080), Port(protocol="UDP", port=5353, target_port=5353))
    rule = cloud.rule(1, 2, mode="direct", ports=ports)
    try:
        cloud.apply(rule)
        answers = [ask(cloud.address, 8080, source=cloud.clients[0]) for _ in range(10)]
        assert Counter(answers) == {("node-1", cloud.clients[0]): 5, ("node-2", cloud.clients[0]): 5}
        with connect(cloud.address, 8080) as held, udp_client(cloud.clients[1]) as client:
            machine = held.recv(100).decode().split()[0]
            there = ask_udp(client, cloud.address, 5353)
            stays = cloud.rule(2 if machine == "node-1" else 1, mode="direct", ports=ports)
            cloud.apply(rule)
            assert ask_udp(client, cloud.address, 5353) == there, "a flow stays with its target"
            cloud.apply(stays)
            held.sendall(b"still here\n")
            assert held.recv(100) == b"still here\n", "an open connection goes on"
            left = stays.targets[0].machine.replace("m", "node-")
            assert ask_udp(client, cloud.address, 5353)[0] == left
            assert {ask(cloud.address, 8080)[0] for _ in range(4)} == {left}
        cloud.apply(evolve(rule, affinity_seconds=600))
        assert len({ask(cloud.address, 8080, source=cloud.clients[2])[0] for _ in range(6)}) == 1
        cloud.apply(evolve(rule, source_ranges=(f"{cloud.clients[0]}/32",)))
        assert ask(cloud.address, 8080, source=cloud.clients[0])[1] == cloud.clients[0]
        with pytest.raises(TimeoutError):
            ask(cloud.address, 8080, source=cloud.clients[1], timeout=0.3)
        cloud.apply(cloud.rule(mode="direct", ports=ports))
        with pytest.raises(OSError, match="No route to host"):
            ask(cloud.address, 8080)
    finally:
        for number in (1, 2):
            cloud.run(number, f"ip address delete {cloud.address}/32 dev lo")


def test_a_client_comes_to_the_same_target_until_its_time_is_over(cloud: Cloud) -> None:
    cloud.apply(cloud.rule(1, 2, affinity_seconds=600))
    homes = {client: ask(cloud.address, source=client)[0] for client in cloud.clients[:4]}
    assert Counter(homes.values()) == {"node-1": 2, "node-2": 2}
    for _ in range(3):
        cloud.apply(cloud.rule(1, 2, affinity_seconds=600))  # forgets nobody
        assert {client: ask(cloud.address, source=client)[0] for client in homes} == homes
    cloud.apply(cloud.rule(2, affinity_seconds=600))
    assert {ask(cloud.address, source=client)[0] for client in homes} == {"node-2"}
    cloud.apply(cloud.rule(1, 2, affinity_seconds=1))
    first = ask(cloud.address)[0]
    assert ask(cloud.address)[0] == first
    time.sleep(1.1)  # the kernel's clock, which no test can turn
    ask(cloud.address, source=cloud.clients[5])  # takes the turn of the other target
    assert {ask(cloud.address, source=client)[0] for client in cloud.clients[:2]} == {"node-1", "node-2"}


def test_only_the_source_ranges_may_connect(cloud: Cloud) -> None:
    cloud.apply(cloud.rule(1, source_ranges=(f"{cloud.clients[0]}/32", "10.0.0.0/30", "10.0.0.0/24", "2001:db8::/32")))
    assert ask(cloud.address, source=cloud.clients[0])[0] == "node-1"
    with pytest.raises(TimeoutError):
        ask(cloud.address, source=cloud.clients[1], timeout=0.3)
    cloud.apply(cloud.rule(1, source_ranges=("0.0.0.0/0",)))
    assert ask(cloud.address, source=cloud.clients[1])[0] == "node-1"
    cloud.apply(cloud.rule(1, source_ranges=("2001:db8::/32",)))
    with pytest.raises(TimeoutError):
        ask(cloud.address, source=cloud.clients[0], timeout=0.3)


def test_a_target_that_fails_its_check_gets_no_new_connections(cloud: Cloud) -> None:
    check = HealthCheck(port=10256)
    monitor = HealthMonitor(
        lambda: cloud.apply(cloud.rule(*(int(machine[1:]) for machine in sorted(monitor.healthy("web"))))),
        cloud.kernel.is_running,
    )
    monitor.watch(
        [Probe(balancer="web", machine=f"m{n}", address=cloud.machine(n).address, check=check) for n in (1, 2)]
    )  # fmt: skip
    monitor.round()
    assert {ask(cloud.address)[0] for _ in range(4)} == {"node-1", "node-2"}
    broken = [cloud.layout.machine_disk(machine) / "broken" for machine in ("m1", "m2")]
    broken[0].touch()
    assert [monitor.round() for _ in range(2)] == [False, True]
    assert {ask(cloud.address)[0] for _ in range(4)} == {"node-2"}
    broken[1].touch()
    assert [monitor.round() for _ in range(2)] == [False, True]
    with pytest.raises(ConnectionRefusedError):
        ask(cloud.address)
    with udp_client(cloud.clients[0]) as client:
        client.connect((cloud.address, 53))
        client.send(b"?")
        with pytest.raises(ConnectionRefusedError):
            client.recv(10)
    broken[0].unlink()
    assert monitor.round()
    assert {ask(cloud.address)[0] for _ in range(4)} == {"node-1"}
    broken[1].unlink()


def test_an_open_connection_survives_the_removal_of_its_target_and_not_that_of_the_balancer(cloud: Cloud) -> None:
    cloud.apply(cloud.rule(1))
    with connect(cloud.address) as connection, connection.makefile("rw") as lines:
        assert lines.readline().startswith("node-1 ")
        cloud.apply(cloud.rule(2))
        assert {ask(cloud.address)[0] for _ in range(4)} == {"node-2"}
        assert _echoes(lines, "still here")
        cloud.apply(cloud.rule())
        with pytest.raises(ConnectionRefusedError):
            ask(cloud.address)
        assert _echoes(lines, "and here")
        cloud.apply()
        connection.settimeout(0.3)
        with pytest.raises(OSError, match=r"timed out|No route to host"):
            _echoes(lines, "no more")
    with pytest.raises(OSError, match=r"No route to host|timed out"):  # where nothing has the address any more
        ask(cloud.address)


def test_two_balancers_do_not_touch_each_other(cloud: Cloud) -> None:
    mine, other = cloud.rule(1), cloud.rule(2, name="other", address=cloud.other_address)
    cloud.apply(mine, other)
    assert (ask(cloud.address)[0], ask(cloud.other_address)[0]) == ("node-1", "node-2")
    with connect(cloud.address) as connection, connection.makefile("rw") as lines:
        lines.readline()
        cloud.apply(mine)
        assert _echoes(lines, "kept")
    with pytest.raises(ConnectionRefusedError):
        connect(cloud.address, 81)


def test_machines_use_balancers_too_also_when_they_are_the_target_themselves(cloud: Cloud) -> None:
    cloud.apply(cloud.rule(2))
    reach = f"import socket; print(socket.create_connection(('{cloud.address}', 80), 5).recv(100).decode())"
    command = f'{sys.executable} -c "{reach}"'
    assert cloud.run(1, command).split() == ["node-2", cloud.machine(1).address]
    assert cloud.run(2, command).split() == ["node-2", str(cloud.layout.router_address)]


@pytest.mark.skipif(find("haproxy") is None, reason="haproxy is not installed")
def test_a_proxy_makes_connections_of_its_own(cloud: Cloud) -> None:
    cloud.apply(cloud.rule(1, 2, mode="proxy"))
    eventually(lambda: _answers(cloud.address), "the proxy answers")
    answers = Counter(ask(cloud.address, source=cloud.clients[0]) for _ in range(4))
    assert answers == {("node-1", str(cloud.layout.router_address)): 2, ("node-2", str(cloud.layout.router_address)): 2}
    with connect(cloud.address) as connection, connection.makefile("rw") as lines:
        lines.readline()
        cloud.apply(cloud.rule(1, mode="proxy", source_ranges=(f"{cloud.clients[0]}/32",)))
        eventually(lambda: not _answers(cloud.address, cloud.clients[1]), "the new rules count")
        assert {ask(cloud.address, source=cloud.clients[0])[0] for _ in range(3)} == {"node-1"}
        assert _echoes(lines, "of the old worker")
    with pytest.raises(KernelError, match="load balancer dns: mode proxy has TCP only"):
        cloud.apply(cloud.rule(1), evolve(cloud.rule(1), name="dns", address=cloud.other_address, mode="proxy"))
    assert ask(cloud.address)[0] == "node-1", "the others are carried out"
    cloud.apply()
    with pytest.raises(OSError, match="No route to host"):
        ask(cloud.address)


# Many at once


def test_machines_start_and_stop_side_by_side_while_routes_and_balancers_change(cloud: Cloud) -> None:
    def cycle(number: int) -> str:
        for _ in range(2):
            cloud.kernel.start_machine(evolve(cloud.machine(number), user_data=""))
            cloud.kernel.stop_machine(f"m{number}")
        return f"m{number}"

    def change(number: int) -> None:
        cloud.kernel.apply_routes([RouteRule(destination=cloud.pods(3), gateway=cloud.machine(1 + number % 2).address)])
        cloud.apply(cloud.rule(1, 2) if number % 2 else cloud.rule(1))

    with ThreadPoolExecutor(6) as pool:
        changes = pool.map(change, range(8))
        assert list(pool.map(cycle, (3, 4, 5))) == ["m3", "m4", "m5"]
        assert list(changes) == [None] * 8
    assert cloud.kernel.running_machines() == {"m1", "m2"}
    cloud.apply(cloud.rule(1))
    assert ask(cloud.address)[0] == "node-1"


# Daemons come and go


def test_a_daemon_that_is_killed_leaves_all_running_and_the_next_one_takes_over() -> None:
    with slot() as layout:
        script = Path(__file__).with_name("realcloud.py")
        arguments = [layout.name, layout.base, str(layout.pool), str(layout.folder)]
        daemon = subprocess.Popen(
            [sys.executable, str(script), *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(script.parents[1]), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )
        assert daemon.stdout
        with daemon, daemon.stdout:
            assert daemon.stdout.readline() == "up\n"
            cloud = Cloud(layout)
            with connect(cloud.address) as connection, connection.makefile("rw") as lines:
                lines.readline()
                daemon.send_signal(signal.SIGKILL)
                daemon.wait()
                assert _echoes(lines, "without a daemon")
                next_kernel = LinuxKernel(layout, "")
                next_kernel.setup()
                assert next_kernel.running_machines() == {"m1", "m2"}
                next_kernel.start_machine(cloud.machine(1))  # runs already
                next_kernel.apply_load_balancers([cloud.rule(2)])
                assert _echoes(lines, "with the next one")
            assert {ask(cloud.address)[0] for _ in range(3)} == {"node-2"}
            next_kernel.stop_machine("m1")
            assert next_kernel.running_machines() == {"m2"}
            next_kernel.destroy()
            assert next_kernel.running_machines() == frozenset()
            assert layout.uplink not in [name for _, name in socket.if_nameindex()]


def test_a_cloud_says_whose_addresses_are_in_its_way(cloud: Cloud) -> None:
    taken = evolve(cloud.layout, name="other")
    with pytest.raises(KernelError, match=r"overlaps the cloud's .*: choose another base or pool"):
        LinuxKernel(taken, "").setup()


def _echoes(lines: object, text: str) -> bool:
    lines.write(f"{text}\n")  # type: ignore[attr-defined]
    lines.flush()  # type: ignore[attr-defined]
    return bool(lines.readline() == f"{text}\n")  # type: ignore[attr-defined]


def _answers(address: str, source: str | None = None) -> bool:
    try:
        ask(address, source=source, timeout=1)
    except (OSError, ValueError):  # no answer, or an end without one
        return False
    return True


def _processes(command: str) -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_text())
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
    return [text for text in found if text == command]
