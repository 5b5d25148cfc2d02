"""A load balancer as Octavia has it: read, and changed by one step in a call."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from attrs import frozen
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import CloudProviderError, Pending
from cloudprovider.helpers import health_check_path_port, ports_of
from openstack_provider.cloud import Cloud
from openstack_provider.ownership import SERVICE_PREFIX, Identity
from openstack_provider.plan import Target
from openstack_provider.rest import BALANCERS, JSON
from openstack_provider.steps import Actual, Spot, Step, join_step, member_step, members, transport_of

BUILDING_SECONDS: Final = 5.0
BUSY_SECONDS: Final = 2.0

logger = logging.getLogger(__name__)


@frozen
class Octavia:
    """Raises what openstacksdk raises. Thread-safe for different load balancers."""

    cloud: Cloud

    def usable(self, balancer: JSON) -> None:
        """Raise where Octavia takes no change of it: `Pending`, or `CloudProviderError`."""
        self.settled(balancer)
        if balancer["provisioning_status"] != "ACTIVE":
            raise CloudProviderError(
                f"the load balancer {balancer['id']} is in {balancer['provisioning_status']}. Nothing is deleted, as "
                f"its address is in use: let Octavia mend it: openstack loadbalancer failover {balancer['id']}"
            )

    def settled(self, balancer: JSON) -> None:
        """Raise `Pending` while Octavia is at work on it."""
        state = balancer["provisioning_status"]
        if state.startswith("PENDING_"):
            seconds = BUILDING_SECONDS if state == "PENDING_CREATE" else BUSY_SECONDS
            raise Pending(f"Octavia is at work on {balancer['id']}: {state}", seconds)

    def do(self, balancer: JSON, todo: Sequence[Step], *, more: bool = False) -> None:
        """Carry out the first step. Raises `Pending` where there are others, or something else is
        still to be done."""
        if not todo:
            return
        first, api = todo[0], self.cloud.octavia
        logger.info("load balancer %s: %s", balancer["id"], first.what)
        if first.method == "DELETE":
            api.delete(first.path)
        elif first.method == "POST":
            api.post(first.path, **first.body)
        else:
            api.put(first.path, **first.body)
        if more or len(todo) > 1:
            raise Pending(f"Octavia carries out {first.what} of {balancer['id']}, then more", BUSY_SECONDS)

    def untag(self, balancer: JSON, *tags: str) -> None:
        """Take these tags off. The others as they are now: another Service may have joined."""
        now = self.cloud.octavia.get(f"{BALANCERS}/{balancer['id']}")["loadbalancer"]
        self.usable(now)
        self.do(now, [tag_step(now, [one for one in now.get("tags") or () if one not in tags])])

    def parts(self, balancer: JSON) -> Actual:
        """Its listeners and pools."""
        api, inside = self.cloud.octavia, ("loadbalancer_id", str(balancer["id"]))
        return Actual(balancer, api.listed("/lbaas/listeners", inside), api.listed("/lbaas/pools", inside))

    def tree(self, who: Identity, balancer: JSON) -> Actual:
        """Its parts, with members and monitors inside the pools that are not another Service's."""
        parts = self.parts(balancer)
        others = [one for one in parts.listeners if _is_anothers(one, who)]
        taken = {one["default_pool_id"] for one in others}
        behind = {one["default_pool_id"] for one in parts.listeners} - taken
        for pool in parts.pools:
            if pool["id"] in behind or who.is_part("pool", pool["name"]):
                pool["members"] = self._members(pool["id"])
                if monitor := pool.get("healthmonitor_id"):
                    pool["healthmonitor"] = self.cloud.octavia.get(f"/lbaas/healthmonitors/{monitor}")["healthmonitor"]
        return parts

    def listeners_of(self, who: Identity, balancer: JSON) -> list[JSON]:
        """The Service's listeners as the status tree has them: with pools, these with members."""
        status = self.cloud.octavia.get(f"{BALANCERS}/{balancer['id']}/status")["statuses"]["loadbalancer"]
        mine = [one for one in status["listeners"] if who.is_part("listener", one["name"])]
        if not mine:
            raise CloudProviderError(f"the load balancer {balancer['id']} has no listeners of {who.key}")
        return mine

    def member_steps(
        self, listeners: Sequence[JSON], service: V1Service, chosen: Sequence[Target], subnet: str
    ) -> list[Step]:
        """How the pools behind these listeners of the status tree get these nodes as members,
        whatever else the Service asks for."""
        check = health_check_path_port(service)
        todo: list[Step] = []
        for listener, pool in [(one, pool) for one in listeners for pool in one["pools"]]:
            seen: list[JSON] = pool["members"]
            # The pool tells better than the Service, which may have changed since it was built.
            number = next((one["protocol_port"] for one in seen), 0) or self._node_port(service, listener["id"])
            wanted = members(Spot(subnet, number, None), seen, chosen)
            if wanted is None:
                continue
            monitor: JSON = pool.get("health_monitor") or {}
            checked = check[1] if check is not None and monitor.get("type") == "HTTP" else None
            if (joining := join_step(pool["id"], seen, wanted, checked)) is not None:
                todo.append(joining)
                continue
            # The tree has no weights, and a PUT sets all that it does not say to defaults.
            present = self._members(pool["id"])
            checked = next((one["monitor_port"] for one in present), checked)
            made = members(Spot(subnet, number, checked), present, chosen)
            if made is not None:
                todo.append(member_step(pool["id"], made))
        return todo

    def _node_port(self, service: V1Service, listener: str) -> int:
        """The node port behind a listener whose pool is empty."""
        one = self.cloud.octavia.get(f"/lbaas/listeners/{listener}")["listener"]
        for port in ports_of(service):
            if (port.protocol, port.port) == (transport_of(one), one["protocol_port"]):
                return port.node_port
        raise CloudProviderError(f"the Service has no port {one['protocol_port']}, which its load balancer has")

    def _members(self, pool: str) -> list[JSON]:
        return self.cloud.octavia.listed(f"/lbaas/pools/{pool}/members")


def tag_step(balancer: JSON, tags: Sequence[str]) -> Step:
    """Have these tags on the load balancer, and no others."""
    return Step("PUT", f"{BALANCERS}/{balancer['id']}", {"loadbalancer": {"tags": list(tags)}}, "the tags")


def _is_anothers(listener: JSON, who: Identity) -> bool:
    tags = listener.get("tags") or ()
    return who.balancer not in tags and any(tag.startswith(SERVICE_PREFIX) for tag in tags)
