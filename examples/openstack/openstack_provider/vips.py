"""Where a new load balancer stands: its network, subnet and addresses."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve, frozen

from cloudprovider import CloudProviderError, InvalidService, RetryError
from openstack_provider.cloud import Cloud
from openstack_provider.plan import IPV6, Plan, Target
from openstack_provider.rest import JSON, ask, listed
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
        neutron, network = self.cloud.sdk.network, wanted.networks.network
        if not network:
            network = ask(neutron, "GET", f"/subnets/{wanted.networks.subnet}")["subnet"]["network_id"]
        version = "6" if wanted.families[1] == IPV6 else "4"
        found = listed(neutron, "/subnets", "subnets", [("network_id", network), ("ip_version", version)])
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
