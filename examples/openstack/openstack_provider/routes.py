"""Routes: the nodes' pod networks among the extra routes of one router, and in the allowed address
pairs of the nodes' ports, without which Neutron drops what pods send.

Neutron's routes have no marks. A route is the cluster's where its next hop is a port of a node's
server, as Neutron and the host's cache of nodes say, or was while this process ran; every other one
is listed as another's and never deleted. What the host asks for at the same moment, route by route,
becomes one update of the router, by the calls that add and remove and never write the whole table.

Idle, a listing is one request: ports are looked up again only when the nodes have changed.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from attrs import frozen
from kubernetes.client.models.v1_node_address import V1NodeAddress
from typing_extensions import override

from cloudprovider import CloudProviderError, Listers, QuotaExceeded, Route, Routes
from cloudprovider.wellknown import NODE_ADDRESS_INTERNAL_IP
from openstack_provider.cloud import Cloud
from openstack_provider.gathering import Gathering
from openstack_provider.rest import JSON, OpenStackError, answered
from openstack_provider.servers import Servers, parse, servers_of

logger = logging.getLogger(__name__)

_PORT = [
    ("fields", name)
    for name in (
        "id", "device_id", "device_owner", "project_id", "tenant_id", "fixed_ips", "allowed_address_pairs",
        "port_security_enabled", "revision_number",
    )
]  # fmt: skip
"""The project under both its names: an older Neutron makes the new one of the old."""

Pair = tuple[str, str]
"""Destination and next hop: a router has each such pair once."""


@frozen
class _Change:
    cluster: str
    node: str
    cidr: str
    server: str
    hop: str = ""
    """Of a route that goes; "" for one to be made."""
    preferred: tuple[str, ...] = ()
    """Addresses of the node, for one to be made."""


class OpenStackRoutes(Routes):
    """The extra routes of the router that the configuration names. Thread-safe."""

    def __init__(self, cloud: Cloud, servers: Servers, provider_id: Callable[[str, str], str]) -> None:
        """`provider_id`: of a server, by its ID and its region."""
        self._cloud = cloud
        self._servers = servers
        self._provider_id = provider_id
        self._listers: Listers | None = None
        self._changes = Gathering(self._change)
        self._lock = threading.Lock()
        self._ours: dict[Pair, str] = {}
        """The servers of the routes that were the cluster's while this process ran."""
        self._made: dict[Pair, str] = {}
        """For which cluster this process made them."""
        self._behind: dict[str, str] = {}
        """The server behind each next hop; "" where Neutron has no port of a server with it."""
        self._asked_for: Set[str] = frozenset()

    def use(self, listers: Listers) -> None:
        """Tell the cluster's nodes by these from now on."""
        self._listers = listers

    @override
    @answered()
    def list_routes(self, cluster_name: str) -> list[Route]:
        with self._lock:
            pairs = self._pairs()
            nodes = self._nodes()
            self._look(frozenset(pairs), nodes)
            return [self._shown(cluster_name, pair, nodes) for pair in pairs]

    @override
    @answered()
    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        region, server = parse(route.target_provider_id) if route.target_provider_id else ("", "")
        if not server:
            found = self._servers.one(route.target_node)
            region, server = found.cloud.region, found.server["id"]
        if region not in ("", self._cloud.region):
            raise CloudProviderError(
                f"{route.target_node} is in region {region}, and the router in {self._cloud.region}"
            )
        preferred = tuple(one.address for one in route.target_node_addresses)
        self._changes.do(_Change(cluster_name, route.target_node, route.destination_cidr, server, preferred=preferred))

    @override
    @answered()
    def delete_route(self, cluster_name: str, route: Route) -> None:
        cidr = route.destination_cidr
        hops = [one.address for one in route.target_node_addresses] if route.enable_node_addresses else []
        if not hops or any((cidr, hop) not in self._ours for hop in hops):
            present = [one for one in self.list_routes(cluster_name) if one.destination_cidr == cidr]
            hops = [hop for one in present if (hop := _hop(one)) in hops or not hops]
            for one in present:
                if one.owned is False and _hop(one) in hops:
                    raise CloudProviderError(f"the route {one.name} leads to no node of this cluster: it stays")
        for hop in hops:
            server = self._ours.get((cidr, hop))
            if server is not None:  # another thread may have deleted it meanwhile
                self._changes.do(_Change(cluster_name, route.target_node, cidr, server, hop))

    def _pairs(self) -> list[Pair]:
        router = self._cloud.neutron.get(f"/routers/{self._cloud.config.route.router_id}")["router"]
        return [(one["destination"], one["nexthop"]) for one in router["routes"]]

    def _nodes(self) -> Set[str] | None:
        """The IDs of the nodes' servers; None where no cache of nodes is there."""
        if self._listers is None:
            return None
        if not self._listers.has_synced():
            raise CloudProviderError("the nodes are not listed yet, and routes are told by them")
        return servers_of(self._listers.nodes.list())

    def _look(self, pairs: Set[Pair], nodes: Set[str] | None) -> None:
        """Bring up to date what is known of the next hops, and forget what is no route any more."""
        hops = {hop for _, hop in pairs}
        changed = nodes is None or nodes != self._asked_for
        ask = {hop for hop in hops if hop not in self._behind or (changed and self._behind[hop] not in (nodes or ()))}
        behind = {hop: server for hop, server in self._behind.items() if hop in hops} | dict.fromkeys(ask, "")
        for port in self._with_addresses(ask):
            is_servers = self._is_mine(port) and port["device_owner"].startswith("compute:")
            for ip in port["fixed_ips"] if is_servers else ():
                if ip["ip_address"] in ask and behind[ip["ip_address"]] not in (nodes or ()):
                    # of two networks with the same addresses, the one that has the node
                    behind[ip["ip_address"]] = port["device_id"]
        self._behind, self._asked_for = behind, nodes or frozenset()
        self._ours = {pair: server for pair, server in self._ours.items() if pair in pairs}
        self._made = {pair: cluster for pair, cluster in self._made.items() if pair in pairs}

    def _shown(self, cluster: str, pair: Pair, nodes: Set[str] | None) -> Route:
        cidr, hop = pair
        server = self._behind[hop]
        if server and (server in nodes if nodes is not None else True):
            self._ours.setdefault(pair, server)
        leads = (V1NodeAddress(type=NODE_ADDRESS_INTERNAL_IP, address=hop),)
        own = self._ours.get(pair, "")
        if not own or self._made.get(pair, cluster) != cluster:
            return Route(f"{cidr} by {hop}", "", cidr, True, leads, owned=False)
        gone = server != own  # the port went with its server
        provider_id = self._provider_id(own, self._cloud.region)
        return Route(f"{cidr} by {hop}", "", cidr, True, leads, gone, target_provider_id=provider_id)

    # ---- one batch of changes

    @answered()
    def _change(self, changes: Sequence[_Change]) -> Mapping[_Change, CloudProviderError]:
        """Make and remove routes: two requests, one for each port that changes, and one or two for
        the router."""
        ports = self._ports({one.server for one in changes})
        present = self._pairs()
        failed: dict[_Change, CloudProviderError] = {}
        remove: dict[Pair, _Change] = {(one.cidr, one.hop): one for one in changes if one.hop}
        add: dict[Pair, _Change] = {}
        in_the_way: list[Pair] = []
        allowed = _Allowed(self._cloud)
        subnets = _subnets(ports[self._cloud.config.route.router_id])
        for one in sorted(changes, key=lambda one: not one.hop):  # the pair of one that comes is to stay
            try:
                if one.hop:
                    for port in ports[one.server]:
                        allowed.without(port, one)
                    continue
                if not ports[one.server]:  # this raises where it is gone
                    self._servers.one(one.node, self._provider_id(one.server, self._cloud.region))
                port, hop = _next_hop(one, ports[one.server], subnets)
                in_the_way += self._in_the_way(one.cidr, hop, present)
                allowed.also(port, one)
                add[one.cidr, hop] = one
            except CloudProviderError as error:
                failed[one] = error
        failed |= allowed.put()
        # A route whose pairs could not be removed stays too: the host asks again for what it lists.
        remove = {pair: one for pair, one in remove.items() if one not in failed}
        self._update("remove_extraroutes", [pair for pair in (*remove, *in_the_way) if pair in present])
        add = {pair: one for pair, one in add.items() if one not in failed}
        full = self._added([pair for pair in add if pair not in present])
        failed |= {add[pair]: error for pair, error in full.items()}
        self._take_back([add[pair] for pair in full if add[pair] in allowed.added])
        with self._lock:
            for pair in (*remove, *in_the_way):
                self._ours.pop(pair, None)
                self._made.pop(pair, None)
            for pair, one in add.items():
                if pair not in full:
                    self._ours[pair], self._made[pair] = one.server, one.cluster
        return failed

    def _take_back(self, changes: Sequence[_Change]) -> None:
        """Remove the address pairs of routes that were not made: nobody would ask for that."""
        if not changes:
            return
        ports, allowed = self._ports({one.server for one in changes}), _Allowed(self._cloud)
        for one in changes:
            for port in ports[one.server]:
                allowed.without(port, one)
        for one, error in allowed.put().items():
            logger.warning("the address pair %s of %s, whose route was refused, stays: %s", one.cidr, one.node, error)

    def _added(self, pairs: Sequence[Pair]) -> Mapping[Pair, CloudProviderError]:
        """Add routes; those that Neutron refuses, and why. One that it refuses, or for which there
        is no place, keeps no other from being made."""
        try:
            with answered():
                self._update("add_extraroutes", pairs)
        except (OpenStackError, QuotaExceeded) as error:
            if isinstance(error, OpenStackError) and error.status != 400:
                raise
            if len(pairs) == 1:
                return {pairs[0]: self._without_place(pairs[0], error)}
            half = len(pairs) // 2
            failed = self._added(pairs[:half])
            full = [one for one in failed.values() if isinstance(one, QuotaExceeded)]
            return {**failed, **(dict.fromkeys(pairs[half:], full[0]) if full else self._added(pairs[half:]))}
        return {}

    def _without_place(self, pair: Pair, error: CloudProviderError) -> CloudProviderError:
        """The error; of a full table, as what to do about it."""
        if not isinstance(error, QuotaExceeded):
            return error
        return QuotaExceeded(
            f"the router {self._cloud.config.route.router_id} has no place for the route to {pair[0]}: have the quota "
            f"router_route of the project, or max_routes in neutron.conf, raised: {error}"
        )

    def _ports(self, servers: Set[str]) -> Mapping[str, list[JSON]]:
        """The ports of these servers and of the router, by server or router."""
        found: dict[str, list[JSON]] = defaultdict(list)
        devices = {self._cloud.config.route.router_id, *servers}
        for port in self._cloud.neutron.with_any("/ports", "device_id", devices, *_PORT):
            # Whoever has a port in a shared network may write any server's ID on it.
            if self._is_mine(port) or port["device_id"] not in servers:
                found[port["device_id"]].append(port)
        return found

    def _is_mine(self, port: JSON) -> bool:
        return self._cloud.mine in ([], [("project_id", port["project_id"])])

    def _with_addresses(self, ips: Iterable[str]) -> list[JSON]:
        return self._cloud.neutron.with_any("/ports", "fixed_ips", [f"ip_address={ip}" for ip in ips], *_PORT)

    def _in_the_way(self, cidr: str, hop: str, present: Sequence[Pair]) -> list[Pair]:
        """Routes to the same destination by other hops, which have to go first. Raises for one that
        leads to a machine that is not this cluster's: half of the packets would go there."""
        others = [pair for pair in present if pair[0] == cidr and pair[1] != hop]
        for pair in others:
            if pair not in self._ours and self._with_addresses([pair[1]]):
                raise CloudProviderError(
                    f"the route to {cidr} leads to {pair[1]}, which is no node of this cluster, and not to {hop}: "
                    "give the clusters that share this router ranges of their own"
                )
        return others

    def _update(self, how: str, pairs: Sequence[Pair]) -> None:
        if pairs:
            routes = [{"destination": cidr, "nexthop": hop} for cidr, hop in pairs]
            self._cloud.neutron.put(f"/routers/{self._cloud.config.route.router_id}/{how}", router={"routes": routes})


class _Allowed:
    """The allowed address pairs that ports shall have: one request for each port that changes."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._ports: dict[str, tuple[JSON, list[JSON]]] = {}
        self._changes: dict[str, list[_Change]] = defaultdict(list)
        self.added: set[_Change] = set()
        """Those that found no such pair there."""

    def also(self, port: JSON, change: _Change) -> None:
        """Let packets from and to these addresses pass at this port."""
        # Without port security, or the extension, Neutron lets all pass and takes no pairs.
        if port.get("allowed_address_pairs") is None or not port.get("port_security_enabled", True):
            return
        _, pairs = self._ports.setdefault(port["id"], (port, list(port["allowed_address_pairs"])))
        if all(pair["ip_address"] != change.cidr for pair in pairs):
            pairs.append({"ip_address": change.cidr})
            self.added.add(change)
        self._changes[port["id"]].append(change)

    def without(self, port: JSON, change: _Change) -> None:
        """No longer."""
        _, pairs = self._ports.setdefault(port["id"], (port, list(port.get("allowed_address_pairs") or ())))
        pairs[:] = [pair for pair in pairs if pair["ip_address"] != change.cidr]
        self._changes[port["id"]].append(change)

    def put(self) -> Mapping[_Change, CloudProviderError]:
        """Write them, only on ports as they were read: others keep pairs there too, for virtual
        addresses. What failed, and why."""
        failed: dict[_Change, CloudProviderError] = {}
        for port, pairs in self._ports.values():
            if pairs == list(port.get("allowed_address_pairs") or ()):
                continue
            try:
                with answered():
                    changed, revision = {"allowed_address_pairs": pairs}, port["revision_number"]
                    self._cloud.neutron.put(f"/ports/{port['id']}", port=changed, revision=revision)
            except CloudProviderError as error:
                failed |= dict.fromkeys(self._changes[port["id"]], error)
        return failed


def _subnets(ports: Iterable[JSON]) -> Set[str]:
    """Those of the router's interfaces, but for the one to the outside."""
    inside = [port for port in ports if port["device_owner"] != "network:router_gateway"]
    return {str(ip["subnet_id"]) for port in inside for ip in port["fixed_ips"]}


def _next_hop(change: _Change, ports: Sequence[JSON], subnets: Set[str]) -> tuple[JSON, str]:
    """The port and the address by which the router reaches the node: the first of the node's that
    is of the destination's family, else of the server's."""
    version6 = ":" in change.cidr
    found = {
        str(ip["ip_address"]): port
        for port in ports
        for ip in port["fixed_ips"]
        if ip["subnet_id"] in subnets and (":" in ip["ip_address"]) == version6
    }
    for hop in (*change.preferred, *found):
        if hop in found:
            return found[hop], hop
    raise OpenStackError(
        f"the server {change.server} has no {'IPv6' if version6 else 'IPv4'} address in a subnet of the router: add "
        "an interface in the nodes' subnet to the router, or name another one as router-id in [Route]"
    )


def _hop(route: Route) -> str:
    return str(route.target_node_addresses[0].address)
