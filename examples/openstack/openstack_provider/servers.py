"""From nodes to Nova's servers: one listing answers for all nodes that are asked about at once.

A node is found by the ID in its provider ID, in its region; without one by its name, which is the
server's. What a listing lacks is asked for by itself: only Nova's 404 to that ID, or no server of
that name in a listing of its own, means that there is none.

Nova takes one name as a filter, a regular expression in which MySQL's "|" means nothing. So a
listing asks for what the names of the nodes begin with in common, which leaves out most of a
project's other servers.
"""

from __future__ import annotations

import os.path
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from uuid import UUID

from attrs import frozen
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_spec import V1NodeSpec
from kubernetes.client.models.v1_object_meta import V1ObjectMeta
from openstack.exceptions import NotFoundException

from cloudprovider import CloudProviderError, InstanceNotFound
from cloudprovider.helpers import node_name, provider_id_of
from openstack_provider.cloud import Cloud
from openstack_provider.rest import IN_URL, JSON, answered

PROVIDER = "openstack"
"""Before "://" in provider IDs: must never change."""

_PAGE = 250  # Nova may take half a minute for 1,000 servers at once
_FEW = 3
_PORTS = 1000  # in a page
_PORT = [
    ("fields", name)
    for name in ("id", "device_id", "network_id", "mac_address", "status", "fixed_ips", "trunk_details")
]
_REGION_AND_ID = re.compile(rf"(?:{PROVIDER}://(?P<region>[^/]*)/)?(?P<id>[0-9a-fA-F-]+)")


def parse(provider_id: str) -> tuple[str, str]:
    """(region, server ID) of a provider ID: "openstack:///<id>", "openstack://<region>/<id>", or
    the bare ID; the region is "" where it names none. Raises `CloudProviderError` for another's."""
    found = _REGION_AND_ID.fullmatch(provider_id)
    try:
        return (found["region"] or "", str(UUID(found["id"]))) if found else ("", str(UUID("")))
    except ValueError:
        raise CloudProviderError(
            f"{provider_id} is not the provider ID of a server: {PROVIDER}:///<id> or {PROVIDER}://<region>/<id>"
        ) from None


def servers_of(nodes: Iterable[V1Node]) -> set[str]:
    """The IDs of these nodes' servers. A node without one, or of another provider, has none."""
    found: set[str] = set()
    for node in nodes:
        with suppress(CloudProviderError):
            found.add(parse(provider_id_of(node))[1])
    return found


@frozen
class Located:
    """A server, and the region where it is."""

    cloud: Cloud
    server: JSON


@frozen
class Interfaces:
    """What Neutron knows of a server: its ports, and the addresses of their trunks' subports as
    (network name, IP address)."""

    ports: Sequence[JSON] = ()
    subports: Sequence[tuple[str, str]] = ()


@frozen
class _Wanted:
    """What is known of a node: its name, else its server's region and ID; and the ID that the
    machine itself told its kubelet."""

    node: str
    region: str = ""
    id: str = ""
    hint: str = ""


@frozen
class Servers:
    """Looks nodes up in Nova. Changes nothing, remembers nothing. Thread-safe."""

    clouds: Mapping[str, Cloud]
    """By region."""

    def find(self, nodes: Sequence[V1Node]) -> dict[str, Located | CloudProviderError]:
        """The server of each node by the node's name, or why there is none. `InstanceNotFound` is
        Nova's word that it is gone. Raises `CloudProviderError` where no region answers."""
        found: dict[str, Located | CloudProviderError] = {}
        wanted: list[_Wanted] = []
        for node in nodes:
            try:
                wanted.append(self._wanted(node))
            except CloudProviderError as error:
                found[node_name(node)] = error
        seen: list[Located] = []
        down: dict[str, CloudProviderError] = {}
        if len(wanted) > _FEW:
            for cloud in self.clouds.values():
                try:
                    with answered():
                        seen += _beginning(cloud, [one for one in wanted if one.region in ("", cloud.region)])
                except CloudProviderError as error:
                    down[cloud.region] = error
            if len(down) == len(self.clouds):
                raise next(iter(down.values()))
        by_id = {(region, str(one.server["id"])): one for one in seen for region in ("", one.cloud.region)}
        by_name: dict[str, list[Located]] = defaultdict(list)
        for located in seen:
            by_name[_lower_name(located)].append(located)
        for one in wanted:
            known = [by_id[key]] if (key := (one.region, one.id)) in by_id else [] if one.id else by_name[one.node]
            away = [] if one.id and known else [down[name] for name in self._regions(one) if name in down]
            try:
                found[one.node] = away[0] if away else _sole(known or self._alone(one), one)
            except CloudProviderError as error:
                found[one.node] = error
        return found

    def one(self, name: str, provider_id: str = "") -> Located:
        """The server of one node. Raises as its answer says."""
        node = V1Node(metadata=V1ObjectMeta(name=name), spec=V1NodeSpec(provider_id=provider_id or None))
        answer = self.find([node])[name]
        if isinstance(answer, CloudProviderError):
            raise answer
        return answer

    def interfaces(self, located: Sequence[Located]) -> Mapping[str, Interfaces]:
        """What Neutron knows of these servers, by server ID. Raises what openstacksdk raises."""
        result: dict[str, Interfaces] = {}
        for cloud in self.clouds.values():
            ids: list[str] = [one.server["id"] for one in located if one.cloud is cloud]
            ports = _ports(cloud, ids)
            subports = _subports(cloud, ports)
            of_server: dict[str, list[JSON]] = defaultdict(list)
            for port in ports:
                of_server[port["device_id"]].append(port)
            for server in ids:
                own = of_server[server]
                result[server] = Interfaces(own, [ip for port in own for ip in subports.get(port["id"], ())])
        return result

    def _wanted(self, node: V1Node) -> _Wanted:
        name, provider_id = node_name(node), provider_id_of(node)
        if not provider_id:
            info = node.status.node_info if node.status is not None else None
            return _Wanted(name, hint=(info.system_uuid if info is not None else None) or "")
        region, server = parse(provider_id)
        if region and region not in self.clouds and "" not in self.clouds:
            raise CloudProviderError(
                f"{provider_id} lies in region {region}, and this manager asks {', '.join(self.clouds)}: add it to "
                "regions in [Global]"
            )
        return _Wanted(name, region if region in self.clouds else "", server)

    def _regions(self, wanted: _Wanted) -> Iterable[str]:
        return [wanted.region] if wanted.region else list(self.clouds)

    @answered()
    def _alone(self, wanted: _Wanted) -> list[Located]:
        """Those that fit, asked for by themselves."""
        clouds = [self.clouds[name] for name in self._regions(wanted)]
        if wanted.id:
            found = (Located(cloud, one) for cloud in clouds for one in _by_id(cloud, wanted.id))
            return [one for one in (next(found, None),) if one is not None]
        named = [Located(cloud, one) for cloud in clouds for one in _named(cloud, f"^{re.escape(wanted.node)}$")]
        named = [one for one in named if _lower_name(one) == wanted.node]
        if not named and _is_uuid(wanted.hint):
            # Only a hint, as a kubelet writes it: it proves no server to be the node's, but it is
            # a reason not to say that the node has none.
            hinted = [Located(cloud, one) for cloud in clouds for one in _by_id(cloud, wanted.hint.lower())]
            # A filter of Nova over PostgreSQL tells capitals from small letters.
            named = [one for one in hinted if _lower_name(one) == wanted.node]
            if hinted and not named:
                server, name = wanted.hint.lower(), hinted[0].server.get("name") or "not shown by Nova now"
                raise CloudProviderError(
                    f"no server is named {wanted.node}; the name of the server with the node's system UUID, {server}, "
                    f"is {name}: give server and node one name, or the kubelet --provider-id={PROVIDER}:///{server}"
                )
        return named


def _lower_name(one: Located) -> str:
    """A kubelet writes its host's name in small letters. "" where Nova has only the ID at hand: the
    server's cell is down."""
    return str(one.server.get("name") or "").lower()


def _sole(found: Sequence[Located], wanted: _Wanted) -> Located:
    if len(found) > 1:
        ids = ", ".join(sorted(str(one.server["id"]) for one in found))
        raise CloudProviderError(f"{len(found)} servers are named {wanted.node}, rename all but one: {ids}")
    if not found:
        raise InstanceNotFound(f"Nova knows no server {wanted.id or wanted.node}")
    return found[0]


def _beginning(cloud: Cloud, nodes: Sequence[_Wanted]) -> list[Located]:
    """All servers whose names begin as those of all these nodes do; where that leaves out the
    servers of many, all that the project has."""
    if not nodes:
        return []
    common = os.path.commonprefix([one.node for one in nodes])  # noqa: RUF071 - character by character is what is wanted
    found = _named(cloud, f"^{re.escape(common)}" if common else "")
    if common and len({one.id for one in nodes if one.id} - {one["id"] for one in found}) > _FEW:
        found = _named(cloud, "")
    return [Located(cloud, one) for one in found]


def _named(cloud: Cloud, pattern: str) -> list[JSON]:
    return cloud.nova.listed("/servers/detail", ("limit", str(_PAGE)), *([("name", pattern)] if pattern else ()))


def _by_id(cloud: Cloud, server: str) -> list[JSON]:
    try:
        return [cloud.nova.get(f"/servers/{server}")["server"]]
    except NotFoundException as error:
        # Other words are Nova's where it does not know the path: a wrong endpoint, no lost server.
        if error.response is None or "itemNotFound" not in error.response.json():
            raise
        return []


def _ports(cloud: Cloud, servers: Sequence[str]) -> list[JSON]:
    """The ports of these servers, and maybe others. Of many servers: those of the project, in one
    listing, where a page of that tells of more servers than can stand in a URL."""
    if len(servers) > IN_URL:
        pages = cloud.neutron.pages("/ports", *_PORT, ("limit", str(_PORTS)), *cloud.mine)
        first, wanted = next(pages), set(servers)
        if len(first) < _PORTS or sum(port["device_id"] in wanted for port in first) > IN_URL:
            return [*first, *chain.from_iterable(pages)]
    # Whoever has a port in a shared network may write any server's ID on it.
    return cloud.neutron.with_any("/ports", "device_id", servers, *_PORT, *cloud.mine)


def _subports(cloud: Cloud, ports: Sequence[JSON]) -> Mapping[str, Sequence[tuple[str, str]]]:
    """(network name, IP address) of the subports of trunks, by the ID of the trunk's port."""
    trunks: dict[str, list[str]] = {
        port["id"]: [one["port_id"] for one in port["trunk_details"]["sub_ports"]]
        for port in ports
        if port.get("trunk_details")
    }
    wanted = {one for subports in trunks.values() for one in subports}
    if not wanted:
        return {}
    known: dict[str, JSON] = {port["id"]: port for port in ports if port["id"] in wanted}
    missing = cloud.neutron.with_any("/ports", "id", wanted - known.keys(), *_PORT)
    known |= {port["id"]: port for port in missing}
    networks = {port["network_id"] for port in known.values()}
    names = {one["id"]: one["name"] for one in cloud.neutron.with_any("/networks", "id", networks)}
    return {
        trunk: [
            (names.get(known[one]["network_id"], ""), ip["ip_address"])
            for one in subports
            if one in known
            for ip in known[one]["fixed_ips"]
        ]
        for trunk, subports in trunks.items()
    }


def _is_uuid(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text.lower()) is not None
