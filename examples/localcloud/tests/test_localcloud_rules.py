"""What the kernel is told, as text and values: ruleset, proxy's configuration, layout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from attrs import evolve
from localcloud import commands, network, proxy
from localcloud.balancers import Present, parse_present, ruleset, stale_flows
from localcloud.kernel import BalancerRule, KernelError, RouteRule, TargetRule, balancer_rule, route_rules
from localcloud.layout import BadLayout, Layout
from localcloud.machines import Record, is_alive
from localcloud.memory import MemoryKernel
from localcloud.model import LoadBalancer, Machine, MachineState, Port, Route
from localcloud.proxy import Proxy, configuration

ONE = TargetRule(machine="m1", address="10.90.0.10")
TWO = TargetRule(machine="m2", address="10.90.0.11", weight=3)
WEB = BalancerRule(
    name="web",
    address="198.51.100.1",
    ports=(Port(protocol="TCP", port=80, target_port=30080),),
    targets=(ONE, TWO),
)
POOL = IPv4Network("198.51.100.0/24")


def machine(number: int, state: MachineState = "running") -> Machine:
    return Machine(
        id=f"m{number}", name=f"n{number}", type="small", region="here", zone="here-1",
        address=f"10.90.0.{number + 9}", state=state,
    )  # fmt: skip


# The ruleset


def test_one_balancer_as_text() -> None:
    assert ruleset("lc", [WEB]) == (
        "add table ip lc\n"
        "flush table ip lc\n"
        "add chain ip lc direct { type filter hook prerouting priority mangle; policy accept; }\n"
        "add chain ip lc prerouting { type nat hook prerouting priority dstnat; policy accept; }\n"
        "add chain ip lc postrouting { type nat hook postrouting priority srcnat; policy accept; }\n"
        "add chain ip lc lb-198.51.100.1-tcp-80\n"
        "add chain ip lc lb-198.51.100.1-tcp-80-m1\n"
        "add chain ip lc lb-198.51.100.1-tcp-80-m2\n"
        "add rule ip lc prerouting ct state established accept\n"
        "add rule ip lc lb-198.51.100.1-tcp-80 numgen inc mod 4 vmap"
        " { 0 : goto lb-198.51.100.1-tcp-80-m1, 1-3 : goto lb-198.51.100.1-tcp-80-m2 }\n"
        "add rule ip lc lb-198.51.100.1-tcp-80-m1 meta l4proto tcp dnat to 10.90.0.10:30080\n"
        "add rule ip lc lb-198.51.100.1-tcp-80-m2 meta l4proto tcp dnat to 10.90.0.11:30080\n"
        "add rule ip lc prerouting ip daddr . meta l4proto . th dport vmap"
        " { 198.51.100.1 . tcp . 80 : goto lb-198.51.100.1-tcp-80 }\n"
        "add rule ip lc postrouting ip saddr . ip daddr"
        " { 10.90.0.10 . 10.90.0.10, 10.90.0.11 . 10.90.0.11 } ct status dnat masquerade\n"
    )


def test_a_direct_balancer_marks_packets_for_the_way_to_their_machine() -> None:
    text = ruleset("lc", [evolve(WEB, mode="direct", source_ranges=("10.0.0.0/8",))])
    assert [line.removeprefix("add rule ip lc ") for line in text.splitlines() if line.startswith("add rule")] == [
        "prerouting ct state established accept",
        "lb-198.51.100.1-tcp-80 ct mark != 0 meta mark set ct mark accept",
        "lb-198.51.100.1-tcp-80 ct state != new accept",
        "lb-198.51.100.1-tcp-80 ip saddr != { 10.0.0.0/8 } drop",
        "lb-198.51.100.1-tcp-80 numgen inc mod 4 vmap"
        " { 0 : goto lb-198.51.100.1-tcp-80-m1, 1-3 : goto lb-198.51.100.1-tcp-80-m2 }",
        "lb-198.51.100.1-tcp-80-m1 ct mark set 10001 meta mark set 10001 accept",
        "lb-198.51.100.1-tcp-80-m2 ct mark set 10002 meta mark set 10002 accept",
        "direct ip daddr . meta l4proto . th dport vmap { 198.51.100.1 . tcp . 80 : goto lb-198.51.100.1-tcp-80 }",
    ]


def test_the_order_of_balancers_does_not_matter() -> None:
    other = evolve(WEB, name="dns", address="198.51.100.9")
    assert ruleset("lc", [WEB, other]) == ruleset("lc", [other, WEB])


def test_no_balancer_leaves_a_rule_that_keeps_connections_followed() -> None:
    assert [line for line in ruleset("lc", []).splitlines() if line.startswith("add rule")] == [
        "add rule ip lc prerouting ct state established accept"
    ]


def test_affinity_asks_the_sets_first_and_remembers_the_choice() -> None:
    text = ruleset("lc", [evolve(WEB, affinity_seconds=60)])
    clients = "clients-198.51.100.1-m1-60s"
    size = "{ type ipv4_addr; size 65536; flags dynamic,timeout; timeout 60s; }"
    assert f"add set ip lc {clients} {size}\n" in text
    port = "add rule ip lc lb-198.51.100.1-tcp-80"
    asked = text.index(f"{port} ip saddr @{clients} goto lb-198.51.100.1-tcp-80-m1\n")
    assert asked < text.index(f"{port} numgen")
    remembered = text.index(f"{port}-m1 update @{clients} {{ ip saddr }}\n")
    assert remembered < text.index(f"{port}-m1 meta l4proto tcp dnat")


def test_what_is_no_longer_wanted_goes_and_sets_that_are_stay() -> None:
    present = Present(
        chains=frozenset({"prerouting", "postrouting", "lb-198.51.100.1-tcp-80", "lb-198.51.100.7-tcp-1"}),
        sets=frozenset({"clients-198.51.100.1-m1-60s", "clients-198.51.100.1-m9-60s"}),
    )
    text = ruleset("lc", [evolve(WEB, affinity_seconds=60)], present)
    assert [line for line in text.splitlines() if line.startswith("delete")] == [
        "delete chain ip lc lb-198.51.100.7-tcp-1",
        "delete set ip lc clients-198.51.100.1-m9-60s",
    ]


@pytest.mark.parametrize(
    ("ranges", "rule"),
    [
        ((), None),
        (("10.0.0.0/8", "0.0.0.0/0"), None),
        (("10.1.0.0/16", "10.0.0.0/8", "192.0.2.7/32"), "ip saddr != { 10.0.0.0/8, 192.0.2.7/32 } drop"),
        (("2001:db8::/32", "192.0.2.0/24"), "ip saddr != { 192.0.2.0/24 } drop"),
        (("2001:db8::/32",), "drop"),
    ],
)
def test_source_ranges_drop_all_others_first(ranges: tuple[str, ...], rule: str | None) -> None:
    start = "add rule ip lc lb-198.51.100.1-tcp-80 "
    lines = ruleset("lc", [evolve(WEB, source_ranges=ranges)]).splitlines()
    rules = [line.removeprefix(start) for line in lines if line.startswith(start)]
    assert [line for line in rules if "drop" in line] == ([rule] if rule else [])
    assert rules[-1].startswith("numgen")


def test_a_target_of_weight_zero_gets_no_new_clients() -> None:
    text = ruleset("lc", [evolve(WEB, targets=(ONE, evolve(TWO, weight=0)))])
    assert "numgen inc mod 1 vmap { 0 : goto lb-198.51.100.1-tcp-80-m1 }" in text
    assert "numgen" not in ruleset("lc", [evolve(WEB, targets=())])


def test_balancers_with_a_proxy_are_not_in_the_ruleset() -> None:
    assert ruleset("lc", [evolve(WEB, mode="proxy")]) == ruleset("lc", [])


def test_a_listing_of_nft_is_read() -> None:
    listing = {
        "nftables": [
            {"metainfo": {"version": "1.0.6"}},
            {"table": {"family": "ip", "name": "lc"}},
            {"chain": {"name": "prerouting"}},
            {"set": {"name": "clients-198.51.100.1-m1-60s", "type": "ipv4_addr"}},
            {"rule": {"chain": "prerouting", "expr": []}},
        ]
    }
    found = parse_present(json.dumps(listing))
    assert found == Present(
        chains=frozenset({"prerouting"}), sets=frozenset({"clients-198.51.100.1-m1-60s"})
    )  # fmt: skip


# Flows

FLOWS = """\
udp      17 28 src=10.90.255.1 dst=198.51.100.1 sport=5001 dport=53 [UNREPLIED] src=10.90.0.10 dst=10.90.255.1 \
sport=5353 dport=5001 mark=0 use=1
udp      17 28 src=10.90.255.1 dst=198.51.100.1 sport=5002 dport=53 src=10.90.0.11 dst=10.90.255.1 sport=5353 \
dport=5002 [ASSURED] mark=0 use=1
tcp      6 431999 ESTABLISHED src=10.90.255.1 dst=198.51.100.1 sport=6001 dport=80 src=10.90.0.11 dst=10.90.255.1 \
sport=8080 dport=6001 [ASSURED] mark=0 use=1
tcp      6 431999 ESTABLISHED src=10.90.0.10 dst=10.90.255.1 sport=6002 dport=8090 src=10.90.255.1 dst=10.90.0.10 \
sport=8090 dport=6002 [ASSURED] mark=0 use=1
icmp     1 29 src=10.90.0.10 dst=10.90.255.1 type=8 code=0 id=1 src=10.90.255.1 dst=10.90.0.10 type=0 code=0 id=1 \
mark=0 use=1
"""


def test_udp_leaves_targets_that_left_and_tcp_stays() -> None:
    cut = ["-D", "-p", "udp", "--orig-dst", "198.51.100.1", "--reply-src", "10.90.0.11"]
    assert stale_flows(FLOWS, POOL, [evolve(WEB, targets=(ONE,))]) == [cut]
    assert stale_flows(FLOWS, POOL, [WEB]) == []


def test_connections_that_go_on_cost_no_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = FLOWS.splitlines()[2]
    monkeypatch.setattr("localcloud.balancers._FLOW", None)  # a use would fail
    assert stale_flows(connection, POOL, [evolve(WEB, targets=(ONE,))]) == []


def test_udp_that_found_no_target_is_cut_when_there_is_one() -> None:
    flow = (
        "udp      17 28 src=10.90.255.1 dst=198.51.100.1 sport=5001 dport=53 [UNREPLIED] src=198.51.100.1 "
        "dst=10.90.255.1 sport=53 dport=5001 mark=0 use=1"
    )
    cut = ["-D", "-p", "udp", "--orig-dst", "198.51.100.1", "--reply-src", "198.51.100.1"]
    assert stale_flows(flow, POOL, [WEB]) == [cut]
    assert stale_flows(flow, POOL, [evolve(WEB, targets=())]) == []


def test_direct_flows_are_known_by_the_mark_of_their_machine() -> None:
    flow = (
        "udp      17 28 src=10.90.255.1 dst=198.51.100.1 sport=5001 dport=53 src=198.51.100.1 "
        "dst=10.90.255.1 sport=53 dport=5001 [ASSURED] mark=10002 use=1"
    )
    direct = evolve(WEB, mode="direct")
    assert stale_flows(flow, POOL, [direct]) == []
    cut = ["-D", "-p", "udp", "--orig-dst", "198.51.100.1", "--mark", "10002"]
    assert stale_flows(flow, POOL, [evolve(direct, targets=(ONE,))]) == [cut]
    assert stale_flows(flow, POOL, [evolve(direct, targets=())]) == [cut]
    unmarked = flow.replace("mark=10002", "mark=0")
    assert stale_flows(unmarked, POOL, [evolve(direct, targets=())]) == []
    assert stale_flows(unmarked, POOL, [direct]) == [[*cut[:-1], "0"]]


def test_all_flows_of_a_balancer_that_is_gone_are_cut_and_no_others() -> None:
    start = ["--orig-dst", "198.51.100.1", "--reply-src"]
    assert stale_flows(FLOWS, POOL, []) == [
        ["-D", "-p", "udp", *start, "10.90.0.10"],
        ["-D", "-p", "udp", *start, "10.90.0.11"],
        ["-D", "-p", "tcp", *start, "10.90.0.11"],
    ]


# The proxy


def test_the_proxys_configuration() -> None:
    rule = evolve(WEB, mode="proxy", source_ranges=("10.0.0.0/8",), affinity_seconds=60)
    text = configuration([rule])
    own = [line.strip() for line in text[text.index("listen") :].splitlines()]
    assert own == [
        "listen 198.51.100.1-80",
        "bind 198.51.100.1:80",
        "acl allowed src 10.0.0.0/8",
        "tcp-request connection reject unless allowed",
        "stick-table type ip size 64k expire 60s",
        "stick on src",
        "balance roundrobin",
        "server m1 10.90.0.10:30080 weight 1",
        "server m2 10.90.0.11:30080 weight 3",
    ]
    assert "    tcp-request connection reject\n" in configuration([evolve(rule, targets=())])


def test_a_line_of_the_proxys_configuration_has_no_more_words_than_haproxy_reads() -> None:
    """64; with one line too long HAProxy takes none of them, and all load balancers fail."""
    ranges = tuple(f"10.{number}.0.0/16" for number in range(250))
    text = configuration([evolve(WEB, mode="proxy", source_ranges=ranges)])
    assert max(len(line.split()) for line in text.splitlines()) <= 64
    assert all(one in text for one in ranges)


def test_a_configuration_that_haproxy_refused_is_not_taken_for_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[Sequence[str]] = []

    def refuse(command: Sequence[str], *_: object, **__: object) -> str:
        checked.append(command)
        raise KernelError("haproxy -c ended with 1")

    served = Proxy(Layout(folder=tmp_path))
    monkeypatch.setattr(proxy, "run", refuse)
    monkeypatch.setattr(proxy, "find", lambda name: name)
    monkeypatch.setattr(served, "_running", lambda: Record(pid=1, started=1, boot="b"))
    for number in (1, 2):
        with pytest.raises(KernelError, match="ended with 1"):
            served.apply([evolve(WEB, mode="proxy")])
        assert len(checked) == number


def test_the_end_of_a_cloud_spares_the_namespaces_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[str] = []
    names = ["lc-m1", "lc-m123456", "lc-router", "lc-mgmt", "lc-m1-copy", "lcx-m1"]
    monkeypatch.setattr("pyroute2.netns.listnetns", lambda: names)
    monkeypatch.setattr(network, "IPRoute", nullcontext)
    monkeypatch.setattr(network, "_drop_link", lambda kernel, name: None)
    monkeypatch.setattr(network, "_drop_namespace", dropped.append)
    network.Network(Layout()).destroy()
    assert dropped == ["lc-router", "lc-m1", "lc-m123456"]


# From what the owner wants to what the router does


def test_only_healthy_targets_that_exist_and_do_not_drain_get_connections() -> None:
    balancer = LoadBalancer(
        name="web", owner="me", address="198.51.100.1", ports=WEB.ports,
        targets=("m1", "m2", "m3", "m4"), weights={"m2": 3}, draining=("m3",),
    )  # fmt: skip
    machines = {f"m{number}": machine(number) for number in (1, 2, 3)}
    assert balancer_rule(balancer, machines, {"m1", "m2", "m3", "m4"}) == WEB
    assert balancer_rule(balancer, machines, {"m1"}).targets == (ONE,)
    sticky = balancer_rule(evolve(balancer, affinity="clientIP", affinity_seconds=9), machines, {"m1"})
    assert sticky.affinity_seconds == 9


def test_a_route_to_a_stopped_or_unknown_machine_is_a_blackhole() -> None:
    routes = [Route(name=f"r{n}", destination=f"10.91.{n}.0/24", machine=f"m{n}") for n in (1, 2, 3)]
    machines = {"m1": machine(1), "m2": machine(2, "stopped")}
    assert [rule.gateway for rule in route_rules(routes, machines)] == ["10.90.0.10", None, None]


# The layout


def test_all_addresses_follow_from_the_base() -> None:
    layout = Layout(name="t1", base="10.133", pool="203.0.113.0/24", folder="/cloud")
    assert str(layout.pods_network) == "10.134.0.0/16"
    assert str(layout.services_network) == "10.135.0.0/16"
    assert (str(layout.host_address), str(layout.router_address)) == ("10.133.255.1", "10.133.0.1")
    assert str(layout.machine_addresses()[0]) == "10.133.0.10"
    assert str(layout.balancer_addresses()[0]) == "203.0.113.1"
    assert layout.machine_disk("m7") == Path("/cloud/machines/m7")
    assert (layout.machine_namespace("m7"), layout.uplink) == ("t1-m7", "t1-up")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": "Too-long-a-name"}, "the name 'Too-long-a-name' must be 1 to 6"),
        ({"base": "10.254"}, "the base '10.254' must be"),
        ({"base": "127.1"}, "the base '127.1' must be"),
        ({"base": "10"}, "the base '10' must be"),
        ({"pool": "10.91.7.0/24"}, "overlaps 10.91.0.0/16"),
        ({"pool": "198.51.100.0/30"}, "must be a /29 or larger"),
        ({"name": "", "base": ""}, "the name '' .*; the base '' "),
    ],
)
def test_a_layout_that_cannot_be_says_all_that_is_wrong(changes: dict[str, str], text: str) -> None:
    with pytest.raises(BadLayout, match=text):
        Layout(**changes)


@pytest.mark.parametrize("name", ["", "m", "m1234567", "../m1", "M1", "m1\n"])
def test_what_is_no_id_of_a_machine_gets_no_folder(name: str) -> None:
    with pytest.raises(ValueError, match="is no ID of a machine"):
        Layout().machine_disk(name)


def test_the_longest_names_fit_into_a_link() -> None:
    assert len(Layout(name="abcdef").machine_link("m123456")) <= 15


# Programs


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "find", lambda program: None if program in ("nft", "conntrack") else program)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert commands.missing_programs() == [
        "the local cloud makes namespaces and links: run it as root (sudo)",
        "nft, conntrack not found (Debian, Ubuntu: apt-get install nftables conntrack)",
    ]


def test_a_command_that_fails_says_what_it_said() -> None:
    assert commands.run(["cat"], text="hello") == "hello"
    assert commands.run(["sh", "-c", "echo out; exit 1"], accept=(0, 1)) == "out\n"
    with pytest.raises(KernelError, match="sh -c echo no >&2; exit 3 ended with 3: no"):
        commands.run(["sh", "-c", "echo no >&2; exit 3"])
    with pytest.raises(KernelError, match="no-such-program"):
        commands.run(["no-such-program"])


# Processes


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_process_is_told_from_a_later_one_with_its_number() -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    own = Record(pid=os.getpid(), started=int(stat_of(os.getpid())[19]), boot=boot)
    assert is_alive(own)
    assert not is_alive(evolve(own, started=own.started - 1))
    assert not is_alive(evolve(own, boot="another"))
    assert not is_alive(evolve(own, pid=2**22 + 1))
    child = subprocess.Popen(["true"])
    ended = evolve(own, pid=child.pid, started=int(stat_of(child.pid)[19]))
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(ended), "what has ended and is not collected does not run"
    child.wait()


def stat_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


# The kernel in memory


def test_the_kernel_in_memory_keeps_what_it_is_told() -> None:
    kernel = MemoryKernel()
    with pytest.raises(KernelError, match=r"call setup\(\) first"):
        kernel.start_machine(machine(1))
    kernel.setup()
    kernel.start_machine(machine(1))
    kernel.start_machine(machine(1))
    assert kernel.boots == ["m1"]
    with pytest.raises(KernelError, match=r"the address 10\.90\.0\.10 belongs to m1"):
        kernel.start_machine(evolve(machine(2), address="10.90.0.10"))
    with pytest.raises(KernelError, match="m1 runs: stop it"):
        kernel.delete_disk("m1")
    assert kernel.enter_command("m1", ["ls"])[-1] == "ls"
    kernel.crash("m1")
    assert kernel.running_machines() == frozenset()
    kernel.delete_disk("m1")
    assert kernel.disks == set()
    kernel.apply_routes([RouteRule(destination="10.91.1.0/24", gateway=None)])
    with pytest.raises(KernelError, match="two load balancers with one address"):
        kernel.apply_load_balancers([WEB, WEB])
    kernel.failure = KernelError("broken")
    with pytest.raises(KernelError, match="broken"):
        kernel.apply_routes([])
    assert [route.destination for route in kernel.routes] == ["10.91.1.0/24"]
    kernel.destroy()
    assert not kernel.is_set_up
