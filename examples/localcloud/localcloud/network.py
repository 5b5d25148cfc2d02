"""The cloud's network: a router in a namespace, its link to the host, and a link to each machine.

Machines cannot reach each other but through the router (their ports of its bridge are isolated and
it answers for all addresses), as in a vendor's network. So its rules see both ways of every
connection, also of one machine to another by way of a load balancer.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, ip_network
from typing import Any, Final

from pyroute2 import IPRoute, NetlinkError, netns

from localcloud.balancers import machine_mark
from localcloud.commands import NAMESPACES, find, in_namespace, run
from localcloud.kernel import KernelError, RouteRule
from localcloud.layout import Layout

__all__ = ["Network"]

_BRIDGE: Final = "machines"
_UPLINK: Final = "uplink"
_OWN_ROUTES: Final = 142
"""The routing protocol number that marks the routes of the API among the router's others."""
_LAST_RESORT: Final = 1 << 30
"""The metric of the routes that end a network in the router: any other route counts more."""
_ROUTER_SETTINGS: Final[Mapping[str, int]] = {
    "net/ipv4/ip_forward": 1,
    "net/ipv4/conf/all/rp_filter": 0,
    "net/ipv4/conf/default/rp_filter": 0,
    # Machines are to send to each other by way of the router.
    "net/ipv4/conf/all/send_redirects": 0,
    "net/ipv4/conf/default/send_redirects": 0,
    f"net/ipv4/conf/{_BRIDGE}/proxy_arp_pvlan": 1,
    # By default one client hears once a second that there is no way, and waits otherwise.
    "net/ipv4/icmp_ratelimit": 0,
    # Otherwise the bridge itself would rewrite a packet to a load balancer and send it to a port.
    "net/bridge/bridge-nf-call-iptables": 0,
    # No kernel sends its IPv6 greetings here, which would only fill the table of connections.
    "net/ipv6/conf/all/disable_ipv6": 1,
}


class Network:
    """Links, addresses and routes of one cloud. For one thread at a time.

    What is there already is kept, so that a new daemon can take over. Raises KernelError.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def problems(self) -> list[str]:
        """Why the cloud cannot have its addresses on this host; empty when it can."""
        wanted = (self._layout.own_network, self._layout.pods_network, self._layout.pool)
        problems = []
        with _kernel("reading the host's addresses"), IPRoute() as host:
            own = _index(host, self._layout.uplink)
            for entry in host.get_routes(family=2, table=254):
                destination, link = entry.get("dst"), entry.get("oif")
                if not destination or link == own:
                    continue
                net = ip_network(f"{destination}/{entry['dst_len']}")
                problems += [
                    f"this host has a route to {net}, which overlaps the cloud's {mine}: choose another base or pool"
                    for mine in wanted
                    if isinstance(net, IPv4Network) and mine.overlaps(net)
                ]
        return problems

    def setup(self) -> None:
        """Make the router, its bridge and the uplink, and lead the host's packets to it."""
        layout = self._layout
        router = layout.router_namespace
        with _kernel("making the router"):
            _make_namespace(router)
            with IPRoute() as host, _inside(router) as inside:
                if _index(inside, _BRIDGE) is None:
                    inside.link("add", ifname=_BRIDGE, kind="bridge", address=_mac(layout.router_address))
                if _index(host, layout.uplink) is None:
                    peer = {"ifname": _UPLINK, "net_ns_fd": router}
                    host.link("add", ifname=layout.uplink, kind="veth", peer=peer)
                _set(router, _ROUTER_SETTINGS)
                for link, address, length in (
                    ("lo", None, 0),
                    (_BRIDGE, layout.router_address, layout.machines_network.prefixlen),
                    (_UPLINK, layout.uplink_router_address, layout.uplink_network.prefixlen),
                ):
                    _raise_link(inside, link, address, length)
                _raise_link(host, layout.uplink, layout.host_address, layout.uplink_network.prefixlen)
                inside.route("replace", dst="0.0.0.0/0", gateway=str(layout.host_address))
                for ended in (layout.pool, layout.pods_network, layout.machines_network):
                    # Otherwise host and router would send a packet to nobody to and fro.
                    inside.route("replace", dst=str(ended), type="unreachable", priority=_LAST_RESORT)
                for net in (layout.machines_network, layout.pods_network, layout.pool):
                    host.route(
                        "replace",
                        dst=str(net),
                        gateway=str(layout.uplink_router_address),
                        oif=_known(host, layout.uplink),
                        prefsrc=str(layout.host_address),
                    )

    def destroy(self) -> None:
        """Remove the router and the uplink, and with them all routes."""
        with _kernel("removing the router"):
            with IPRoute() as host:
                _drop_link(host, self._layout.uplink)
            _drop_namespace(self._layout.router_namespace)
            for name in netns.listnetns():
                if re.fullmatch(rf"{self._layout.name}-m[0-9]{{1,6}}", name):
                    _drop_namespace(name)

    def add_machine(self, machine_id: str, address: str) -> None:
        """Give a machine its namespace, link and address; what was left of an earlier run goes."""
        layout = self._layout
        name = layout.machine_namespace(machine_id)
        self.remove_machine(machine_id)
        with _kernel(f"linking {machine_id}"):
            _make_namespace(name)
            mac = _mac(IPv4Address(address))
            with _inside(layout.router_namespace) as router, _inside(name) as inside:
                link = layout.machine_link(machine_id)
                peer = {"ifname": "eth0", "net_ns_fd": name, "address": mac}
                router.link("add", ifname=link, kind="veth", peer=peer)
                port = _known(router, link)
                router.link("set", index=port, master=_known(router, _BRIDGE))
                router.brport("set", index=port, isolated=True)
                router.link("set", index=port, state="up")
                # The router may know another machine by this address, or this one by another MAC.
                with contextlib.suppress(NetlinkError):
                    router.neigh("delete", dst=address, ifindex=_known(router, _BRIDGE))
                mark = machine_mark(machine_id)
                router.route("replace", dst="0.0.0.0/0", gateway=address, table=mark)
                router.rule("add", family=socket.AF_INET, fwmark=mark, table=mark, priority=mark)
                _raise_link(inside, "lo", None, 0)
                _raise_link(inside, "eth0", IPv4Address(address), layout.machines_network.prefixlen)
                inside.route("replace", dst="0.0.0.0/0", gateway=str(layout.router_address))

    def remove_machine(self, machine_id: str) -> None:
        """Drop a machine's link and namespace. Nothing where there is none."""
        with _kernel(f"unlinking {machine_id}"):
            mark = machine_mark(machine_id)
            with _inside(self._layout.router_namespace) as router:
                _drop_link(router, self._layout.machine_link(machine_id))
                with contextlib.suppress(NetlinkError):
                    router.rule("delete", family=socket.AF_INET, fwmark=mark, table=mark, priority=mark)
                with contextlib.suppress(NetlinkError):
                    router.route("delete", dst="0.0.0.0/0", table=mark)
            _drop_namespace(self._layout.machine_namespace(machine_id))

    def apply_routes(self, rules: Sequence[RouteRule]) -> None:
        """Make these the router's only routes to networks of machines."""
        wanted = {str(ip_network(rule.destination)): rule.gateway for rule in rules}
        with _kernel("setting routes"), _inside(self._layout.router_namespace) as router:
            present = {
                f"{entry.get('dst') or '0.0.0.0'}/{entry['dst_len']}": entry.get("gateway")
                for entry in router.get_routes(family=2, table=254, proto=_OWN_ROUTES)
            }
            for destination, gateway in wanted.items():
                if destination in present and present[destination] == gateway:
                    continue
                way: dict[str, Any] = {"gateway": gateway} if gateway else {"type": "blackhole"}
                router.route("replace", dst=destination, proto=_OWN_ROUTES, **way)
            for destination in present.keys() - wanted.keys():
                router.route("delete", dst=destination, proto=_OWN_ROUTES)

    def apply_addresses(self, addresses: Iterable[str]) -> None:
        """Make these the load balancers' addresses that the router answers for."""
        wanted = set(addresses)
        with _kernel("setting load balancers' addresses"), _inside(self._layout.router_namespace) as router:
            lo = _known(router, "lo")
            present = {
                str(entry.get("local"))
                for entry in router.get_addr(family=2, index=lo)
                if IPv4Address(entry.get("local")) in self._layout.pool
            }
            for address in wanted - present:
                router.addr("add", index=lo, address=address, prefixlen=32)
            for address in present - wanted:
                router.addr("delete", index=lo, address=address, prefixlen=32)


@contextlib.contextmanager
def _kernel(doing: str) -> Iterator[None]:
    try:
        yield
    except (NetlinkError, OSError) as problem:
        raise KernelError(f"{doing}: {problem}") from problem


def _inside(namespace: str) -> IPRoute:
    """The kernel's links and routes in a namespace. pyroute2 would fork to get there, which is no
    good in a process with threads."""
    with open("/proc/thread-self/ns/net", "rb") as own:
        netns.setns(str(NAMESPACES / namespace), flags=0, fork=False)
        try:
            found = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, socket.NETLINK_ROUTE)
        finally:
            netns.setns(own.fileno())
    return IPRoute(fileno=found.detach())


def _make_namespace(name: str) -> None:
    file = NAMESPACES / name
    if not os.path.ismount(file):
        NAMESPACES.mkdir(exist_ok=True)
        file.touch()
        run([find("unshare") or "unshare", f"--net={file}", "true"])


def _drop_namespace(name: str) -> None:
    file = NAMESPACES / name
    if os.path.ismount(file):
        netns.remove(name)
    file.unlink(missing_ok=True)


def _index(kernel: IPRoute, name: str) -> int | None:
    found = kernel.link_lookup(ifname=name)
    return int(found[0]) if found else None


def _known(kernel: IPRoute, name: str) -> int:
    index = _index(kernel, name)
    if index is None:
        raise KernelError(f"the link {name} is gone: somebody has removed it; restart the cloud")
    return index


def _drop_link(kernel: IPRoute, name: str) -> None:
    index = _index(kernel, name)
    if index is not None:
        kernel.link("delete", index=index)


def _raise_link(kernel: IPRoute, name: str, address: IPv4Address | None, length: int) -> None:
    index = _known(kernel, name)
    if address:
        try:
            kernel.addr("add", index=index, address=str(address), prefixlen=length)
        except NetlinkError as problem:
            if problem.code != errno.EEXIST:
                raise
    kernel.link("set", index=index, state="up")


def _set(namespace: str, settings: Mapping[str, int]) -> None:
    """The kernel's settings of a namespace; those that this kernel lacks are left out."""
    lines = (f"[ ! -e /proc/sys/{name} ] || echo {value} > /proc/sys/{name}" for name, value in settings.items())
    run(in_namespace(namespace, ["sh", "-ec", "\n".join(lines)]))


def _mac(address: IPv4Address) -> str:
    # The same for the same address: who knows it need not ask again after a reboot.
    return "02:00:" + ":".join(f"{number:02x}" for number in address.packed)
