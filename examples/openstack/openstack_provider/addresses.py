"""The addresses of load balancers: where a new one stands, its floating IP (given, made, moved,
kept, deleted), and what the Service's status shows of them.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from fnmatch import translate
from typing import Final

from attrs import evolve, frozen
from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_service import V1Service
from openstack.exceptions import ConflictException, NotFoundException

from cloudprovider import CloudProviderError, InvalidService, RetryError
from openstack_provider.annotations import lenient
from openstack_provider.cloud import Cloud
from openstack_provider.config import LoadBalancerConfig
from openstack_provider.ownership import FLOATING_PREFIX, Identity
from openstack_provider.plan import IPV6, Plan, Target
from openstack_provider.rest import JSON
from openstack_provider.securitygroups import ports_of

ADDRESS_SECONDS = 30.0
"""Until nodes without an address are looked at again. The host also asks when they get one."""
_FIRST_NODE_SECONDS = 5.0
"""The same before there is a load balancer. In a new cluster the first Service and the first node
are seen at the same moment, and nothing brings the Service back when the node has its address."""


@frozen
class VIPs:
    """Answers by questions to Neutron, at most two. Raises what openstacksdk raises."""

    cloud: Cloud

    def placed(self, wanted: Plan, chosen: Sequence[Target], ports: Sequence[JSON]) -> Plan:
        """With the first node's subnet where nobody says another one. `ports` are of the nodes, as
        far as they are known."""
        where = wanted.networks
        if where.port or where.subnet or where.network:
            return wanted
        subnet = self._subnet_of(chosen, ports)
        return evolve(wanted, networks=evolve(where, subnet=subnet, member_subnet=where.member_subnet or subnet))

    def of(self, wanted: Plan) -> tuple[JSON, list[str]]:
        """What its creation says of its addresses, and of which families they are. Raises
        `InvalidService` where there is no subnet of a family that must be."""
        asked, where, families = wanted.annotations, wanted.networks, list(wanted.families)
        vip: JSON = {
            "provider": self.cloud.config.loadbalancer.lb_provider, "flavor_id": asked.flavor_id,
            "availability_zone": asked.availability_zone, "vip_port_id": where.port,
        }  # fmt: skip
        if not where.port:
            vip |= {"vip_subnet_id": where.subnet, "vip_network_id": where.network}
            if wanted.is_internal or families[0] == IPV6:  # else it is that of the floating IP
                vip["vip_address"] = wanted.address
        second = self._second_subnet(wanted) if len(families) > 1 and not where.port else ""
        if second:
            vip["additional_vips"] = [{"subnet_id": second}]
        elif wanted.needs_all_families and len(families) > 1:
            raise InvalidService(f"spec.ipFamilyPolicy RequireDualStack: the network has no subnet of {families[1]}")
        return {key: one for key, one in vip.items() if one}, families if second else families[:1]

    def _second_subnet(self, wanted: Plan) -> str:
        """A subnet of the second family in the load balancer's network; "" where it has none."""
        neutron, network = self.cloud.neutron, wanted.networks.network
        if not network:
            network = neutron.get(f"/subnets/{wanted.networks.subnet}")["subnet"]["network_id"]
        version = "6" if wanted.families[1] == IPV6 else "4"
        found = neutron.listed("/subnets", ("network_id", network), ("ip_version", version))
        return str(found[0]["id"]) if found else ""

    def _subnet_of(self, chosen: Sequence[Target], ports: Sequence[JSON]) -> str:
        first = next((one for one in chosen if one.address and one.server), None)
        if first is None:
            raise RetryError(
                "no node has an address that would tell where the load balancer is to be: waiting for one; or set "
                "subnet-id", _FIRST_NODE_SECONDS,
            )  # fmt: skip
        for port in [one for one in ports if one["device_id"] == first.server] or ports_of(self.cloud, [first]):
            for one in port["fixed_ips"]:
                if one["ip_address"] == first.address:
                    return str(one["subnet_id"])
        raise CloudProviderError(
            f"the server of node {first.name} has no port with its address {first.address}, which would tell where the "
            "load balancer is to be: set subnet-id"
        )


_REMEMBERED_SECONDS: Final = 600.0
"""How long the external network is taken for the same. One that the configuration names is not
looked for."""

logger = logging.getLogger(__name__)


def address_of(floating: JSON | None) -> str:
    """Its address; "" of none."""
    return "" if floating is None else str(floating["floating_ip_address"])


class FloatingIPs:
    """The floating IPs of load balancers. Raises what openstacksdk raises, and errors of the
    contract. Thread-safe for different Services."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._external = ("", 0.0)
        self._seen: dict[str, JSON | None] = {}
        """What was last seen on each port."""

    def at(self, port: str) -> JSON | None:
        """The one on a port."""
        found = self._cloud.neutron.listed("/floatingips", ("port_id", port))
        self._seen[port] = found[0] if found else None
        return self._seen[port]

    def last_seen(self, port: str) -> JSON | None:
        """The one on a port that is about to go: as it was last seen, else asked for. By its
        revision `release` finds out whether it has changed since, and then it is asked for."""
        if port not in self._seen:
            self.at(port)
        return self._seen.pop(port)

    def ensure(self, plan: Plan, port: str, there: JSON | None, *, is_owner: bool, had_one: bool) -> str:
        """Have the port's floating IP as planned. Returns its address, "" where there is to be
        none. `there` is the one on the port; `had_one`: the Service may have one that was taken
        off its port, or whose load balancer was deleted. Its address is known to clients."""
        if there is None:
            self._seen.pop(port, None)  # there may be one from now on
        if not is_owner:
            # An address from outside for somebody else's load balancer could expose his Services.
            return address_of(there)
        if plan.is_internal:
            if there is not None:
                self._seen.pop(port, None)
                self.release(plan.who, there, keep=plan.annotations.keep_floating_ip)
            return ""
        if there is not None and plan.address in ("", there["floating_ip_address"]):
            return address_of(there)
        if plan.address:
            return self._given(plan, port, there)
        for one in self._leftovers(plan.who) if had_one else ():
            return self._put_on(one, port)
        return address_of(self._made(plan, port))

    def release(self, who: Identity, there: JSON, *, keep: bool) -> None:
        """Take a floating IP off its port: delete it where it was made here or by the Go manager
        and is not to be kept."""
        path, revision = f"/floatingips/{there['id']}", there.get("revision_number")
        if not keep and FLOATING_PREFIX in (there.get("description") or ""):
            self._cloud.neutron.delete(path, revision=revision)
            return
        changed: JSON = {"port_id": None}
        if keep:  # so that nothing takes it for a leftover
            changed["description"] = f"Kept floating IP of {who.key} from cluster {who.cluster}"[:255]
        with suppress(NotFoundException):
            self._cloud.neutron.put(path, floatingip=changed, revision=revision)

    def delete_leftover(self, who: Identity) -> None:
        """Delete what was made for the Service and has lost its load balancer."""
        for one in self._leftovers(who):
            self.release(who, one, keep=False)

    def _leftovers(self, who: Identity) -> list[JSON]:
        """Those of the Service that are on no port."""
        found = self._cloud.neutron.listed("/floatingips", ("description", who.floating_description), *self._cloud.mine)
        # The description carries the Service's UID, so no other cluster's has it.
        mine = [one for one in found if one.get("description") == who.floating_description]
        return [one for one in mine if not one.get("port_id")]

    def _given(self, plan: Plan, port: str, there: JSON | None) -> str:
        found = self._cloud.neutron.listed("/floatingips", ("floating_ip_address", plan.address), *self._cloud.mine)
        if found and found[0].get("port_id"):
            raise InvalidService(f"spec.loadBalancerIP: the floating IP {plan.address} is in use elsewhere")
        if not found and there is None:
            return address_of(self._made(plan, port))
        # Made before the present one goes, whose address clients know: most roles may choose none.
        given = found[0] if found else self._made(plan, None)
        if there is not None and given is not None:
            self._seen.pop(port, None)
            self.release(plan.who, there, keep=plan.annotations.keep_floating_ip)
        return address_of(there) if given is None else self._put_on(given, port)

    def _put_on(self, floating: JSON, port: str) -> str:
        path, revision = f"/floatingips/{floating['id']}", floating.get("revision_number")
        self._cloud.neutron.put(path, floatingip={"port_id": port}, revision=revision)
        return address_of(floating)

    def _made(self, plan: Plan, port: str | None) -> JSON | None:
        asked = plan.networks
        network = asked.floating_network or self._external_network()
        if not network:
            logger.warning("%s: no external network is there, so it gets no floating IP", plan.who.key)
            return None
        wanted: JSON = {"floating_network_id": network, "port_id": port, "description": plan.who.floating_description}
        if plan.address:
            wanted["floating_ip_address"] = plan.address
        if asked.floating_subnet:
            wanted["subnet_id"] = asked.floating_subnet
        elif (asked.floating_pattern or asked.floating_tags) and not plan.address:
            *others, wanted["subnet_id"] = self._subnets(plan, network)
            for subnet in others:
                with suppress(ConflictException):  # this subnet is full
                    return self._post({**wanted, "subnet_id": subnet})
        return self._post(wanted)

    def _post(self, wanted: JSON) -> JSON:
        made: JSON = self._cloud.neutron.post("/floatingips", floatingip=wanted)["floatingip"]
        return made

    def _subnets(self, plan: Plan, network: str) -> list[str]:
        """The subnets of the external network that fit, in the order of their names."""
        asked = plan.networks
        listed = self._cloud.neutron.listed("/subnets", ("network_id", network))
        there = sorted(listed, key=lambda one: str(one["name"]))
        found = [
            str(one["id"])
            for one in there
            if one["ip_version"] == 4
            and subnet_matches(one["name"], one.get("tags") or (), asked.floating_pattern, asked.floating_tags)
        ]
        if not found:
            raise InvalidService(
                f"no subnet of the external network {network} fits floating-subnet {asked.floating_pattern!r} and "
                f"floating-subnet-tags {asked.floating_tags!r} (it has: "
                f"{', '.join(one['name'] for one in there) or 'none that is visible'})"
            )
        return found

    def _external_network(self) -> str:
        """The first external network, as the Go manager chooses; "" where there is none."""
        known, until = self._external
        if known and time.monotonic() < until:
            return known
        found = self._cloud.neutron.listed("/networks", ("router:external", "true"))
        usable = [str(one["id"]) for one in found if one.get("subnets")]
        self._external = (usable[0] if usable else "", time.monotonic() + _REMEMBERED_SECONDS)
        return self._external[0]


def subnet_matches(name: str, tags: Sequence[str], pattern: str = "", wanted_tags: str = "") -> bool:
    """Whether a subnet fits a pattern and tags as the Go manager reads them."""
    return _name_matches(name, pattern) and _tags_match(tags, wanted_tags)


def _name_matches(name: str, pattern: str) -> bool:
    if not pattern:
        return True
    negated, pattern = pattern.startswith("!"), pattern.removeprefix("!")
    regexp = pattern[1:] if pattern.startswith("~") else translate(pattern)
    return (re.fullmatch(regexp, name) is not None) is not negated


def _tags_match(tags: Iterable[str], wanted: str) -> bool:
    if not wanted:
        return True
    negated, wanted = wanted.startswith("!"), wanted.removeprefix("!")
    every, wanted = wanted.startswith("&"), wanted.removeprefix("&")
    asked, there = {one.strip() for one in wanted.split(",")}, set(tags)
    return (asked <= there if every else bool(asked & there)) is not negated


def addresses(balancer: JSON, floating: str) -> list[str]:
    """Its addresses for clients: the floating IP, where it has one, in place of its own."""
    more = [one["ip_address"] for one in balancer.get("additional_vips") or ()]
    return [floating or balancer["vip_address"], *more]


def status(service: V1Service, config: LoadBalancerConfig, shown: Sequence[str]) -> V1LoadBalancerStatus:
    """The status with these addresses."""
    asked = lenient(service, config)
    if asked.hostname:
        return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(hostname=asked.hostname)])
    if asked.proxy and config.enable_ingress_hostname:
        names = [f"{one.replace(':', '-')}.{config.ingress_hostname_suffix}" for one in shown]
        return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(hostname=name) for name in names])
    # As VIP, kube-proxy leads pods past the load balancer, without the PROXY protocol's header.
    mode = "Proxy" if asked.proxy else "VIP"
    return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip=one, ip_mode=mode) for one in shown])
