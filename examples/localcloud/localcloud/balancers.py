"""Load balancers as nftables rules: text from values. Pure.

The text is one transaction. It replaces all rules but keeps the sets in which clients are
remembered for their target (session affinity), so that applying it again forgets nobody. Only the
first packet of a connection meets these rules; the others follow the kernel's table of connections.
Hence the open connections of a target go on when it is left out: it drains.

Packets of a balancer with the mode "direct" are not changed. They and their connection get the mark
of the target's machine (`machine_mark`), by which the router has a route to it (`network.py`).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network, collapse_addresses, ip_network

from attrs import frozen

from localcloud.kernel import BalancerRule, TargetRule
from localcloud.model import Port

__all__ = ["Present", "machine_mark", "parse_present", "ruleset", "stale_flows"]

_FIRST_MARK = 10_000
_CLIENTS = 65536
"""Clients that are remembered for one target."""
_HOOKS = {
    "direct": "{ type filter hook prerouting priority mangle; policy accept; }",
    "prerouting": "{ type nat hook prerouting priority dstnat; policy accept; }",
    "postrouting": "{ type nat hook postrouting priority srcnat; policy accept; }",
}


@frozen(kw_only=True)
class Present:
    """The names of chains and sets that the table has now."""

    chains: frozenset[str] = frozenset()
    sets: frozenset[str] = frozenset()


def parse_present(listing: str) -> Present:
    """What ``nft -j list table`` wrote."""
    entries = json.loads(listing)["nftables"]
    chains, sets = ([e[kind]["name"] for e in entries if kind in e] for kind in ("chain", "set"))
    return Present(chains=frozenset(chains), sets=frozenset(sets))


def ruleset(table: str, rules: Sequence[BalancerRule], present: Present = Present()) -> str:
    """The input of ``nft -f -`` that makes these the only load balancers of that table.

    Of the mode "proxy" only the addresses count; their ports are not nftables' matter.
    """
    balancers = sorted((rule for rule in rules if rule.mode != "proxy"), key=lambda rule: rule.address)
    chains = dict(_HOOKS)
    # Matches nothing here, but without any rule about connections the kernel stops following them,
    # and an open one whose target has left would end.
    body = [f"add rule ip {table} prerouting ct state established accept"]
    sets: dict[str, str] = {}
    ports: dict[str, list[str]] = {"direct": [], "prerouting": []}
    for rule in balancers:
        if rule.affinity_seconds is not None:
            for target in rule.targets:
                sets[_set_name(rule, target)] = (
                    f"{{ type ipv4_addr; size {_CLIENTS}; flags dynamic,timeout; timeout {rule.affinity_seconds}s; }}"
                )
        for port in rule.ports:
            name = _port_chain(rule, port)
            chains[name] = ""
            hook = "direct" if rule.mode == "direct" else "prerouting"
            ports[hook].append(f"{rule.address} . {port.protocol.lower()} . {port.port} : goto {name}")
            body += (f"add rule ip {table} {name} {line}" for line in _choose(rule, port))
            for target in rule.targets:
                chain = f"{name}-{target.machine}"
                chains[chain] = ""
                body += (f"add rule ip {table} {chain} {line}" for line in _send(rule, port, target))
    for hook, leading in ports.items():
        if leading:
            lookup = f"ip daddr . meta l4proto . th dport vmap {{ {', '.join(leading)} }}"
            body.append(f"add rule ip {table} {hook} {lookup}")
    own = sorted({target.address for rule in balancers if rule.mode == "nat" for target in rule.targets})
    if own:
        # A machine that calls itself through a balancer would drop a packet from its own address.
        pairs = ", ".join(f"{address} . {address}" for address in own)
        body.append(f"add rule ip {table} postrouting ip saddr . ip daddr {{ {pairs} }} ct status dnat masquerade")
    lines = [
        f"add table ip {table}",
        f"flush table ip {table}",  # the rules; sets keep their clients
        *(f"delete chain ip {table} {name}" for name in sorted(present.chains - chains.keys())),
        *(f"delete set ip {table} {name}" for name in sorted(present.sets - sets.keys())),
        *(f"add set ip {table} {name} {text}" for name, text in sets.items()),
        *(f"add chain ip {table} {name} {text}".rstrip() for name, text in chains.items()),
        *body,
    ]
    return "\n".join(lines) + "\n"


def machine_mark(machine_id: str) -> int:
    """The mark of packets that go to a machine as they are; the number of its routing table too."""
    return _FIRST_MARK + int(machine_id.removeprefix("m"))


def _choose(rule: BalancerRule, port: Port) -> Iterator[str]:
    if rule.mode == "direct":  # meets all packets, not only the first one of a connection
        yield "ct mark != 0 meta mark set ct mark accept"
        yield "ct state != new accept"
    if rule.source_ranges:
        allowed = _networks(rule.source_ranges)
        if allowed != ["0.0.0.0/0"]:
            yield f"ip saddr != {{ {', '.join(allowed)} }} drop" if allowed else "drop"
    name = _port_chain(rule, port)
    if rule.affinity_seconds is not None:
        for target in rule.targets:
            yield f"ip saddr @{_set_name(rule, target)} goto {name}-{target.machine}"
    weighted = [target for target in rule.targets if target.weight > 0]
    if weighted:
        ends = list(itertools.accumulate(target.weight for target in weighted))
        starts = [end - target.weight for end, target in zip(ends, weighted, strict=True)]
        shares = (
            f"{start if end - start == 1 else f'{start}-{end - 1}'} : goto {name}-{target.machine}"
            for start, end, target in zip(starts, ends, weighted, strict=True)
        )
        yield f"numgen inc mod {ends[-1]} vmap {{ {', '.join(shares)} }}"


def _send(rule: BalancerRule, port: Port, target: TargetRule) -> Iterator[str]:
    if rule.affinity_seconds is not None:
        yield f"update @{_set_name(rule, target)} {{ ip saddr }}"
    if rule.mode == "direct":
        mark = machine_mark(target.machine)
        yield f"ct mark set {mark} meta mark set {mark} accept"
    else:
        yield f"meta l4proto {port.protocol.lower()} dnat to {target.address}:{port.target_port}"


def _networks(ranges: Iterable[str]) -> list[str]:
    """The IPv4 networks of these, without overlaps, which nft refuses. There is no IPv6 here."""
    parsed = (ip_network(text, strict=False) for text in ranges)
    return [str(net) for net in collapse_addresses(net for net in parsed if isinstance(net, IPv4Network))]


def _port_chain(rule: BalancerRule, port: Port) -> str:
    return f"lb-{rule.address}-{port.protocol.lower()}-{port.port}"


def _set_name(rule: BalancerRule, target: TargetRule) -> str:
    # The time is part of the name, since a set's time cannot be changed.
    return f"clients-{rule.address}-{target.machine}-{rule.affinity_seconds}s"


_FLOW = re.compile(
    r"^(?P<protocol>\S+) .*?src=\S+ dst=(?P<balancer>\S+) .*?dport=\S+ .*?src=(?P<target>\S+) "
    r"(?:.*? mark=(?P<mark>\d+))?"
)


def stale_flows(listing: str, pool: IPv4Network, rules: Sequence[BalancerRule]) -> list[list[str]]:
    """The arguments of ``conntrack``, once for each kind of flow that must be cut, given what
    ``conntrack -L`` wrote.

    UDP has no end of a connection: a client with a steady port would stay with a target that has
    left, or with none, if there was none when it began. Of a balancer that is gone, all flows are
    cut.
    """
    targets: Mapping[str, set[str]] = {
        rule.address: {_seen_as(rule, target) for target in rule.targets} or {rule.address, "0"} for rule in rules
    }
    direct = {rule.address for rule in rules if rule.mode == "direct"}
    stale: dict[tuple[str, ...], None] = {}
    for line in listing.splitlines():
        # A TCP connection goes on whatever its target is, and there may be 50,000 of them: to parse
        # each takes seconds, in which the health checks of all targets wait.
        if line.startswith("tcp ") and line.partition(" dst=")[2].partition(" ")[0] in targets:
            continue
        flow = _FLOW.match(line)
        if not flow or not _within(flow["balancer"], pool):
            continue
        here = targets.get(flow["balancer"])
        by_mark = flow["balancer"] in direct
        seen = flow["mark"] or "0" if by_mark else flow["target"]
        if here is None or (flow["protocol"] == "udp" and seen not in here):
            option = "--mark" if by_mark else "--reply-src"
            stale["-D", "-p", flow["protocol"], "--orig-dst", flow["balancer"], option, seen] = None
    return [list(arguments) for arguments in stale]


def _seen_as(rule: BalancerRule, target: TargetRule) -> str:
    """How the kernel's table of connections shows the target: its address, or its mark."""
    return str(machine_mark(target.machine)) if rule.mode == "direct" else target.address


def _within(address: str, pool: IPv4Network) -> bool:
    net = ip_network(address)
    return isinstance(net, IPv4Network) and net.subnet_of(pool)
