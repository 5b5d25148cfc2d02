"""A load balancer as Octavia has it: read, changed by one step in a call, deleted."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import evolve, frozen
from kubernetes.client.models.v1_service import V1Service
from openstack.exceptions import NotFoundException

from cloudprovider import CloudProviderError, Pending
from cloudprovider.helpers import health_check_path_port, ports_of
from openstack_provider.cloud import Cloud
from openstack_provider.names import SERVICE_PREFIX, Identity
from openstack_provider.plan import Target
from openstack_provider.rest import BALANCERS, JSON, ask, listed
from openstack_provider.steps import Actual, Spot, Step, join_step, member_step, members, only_new

BUILDING_SECONDS: Final = 5.0
BUSY_SECONDS: Final = 2.0

logger = logging.getLogger(__name__)


@frozen
class Octavia:
    """Raises what openstacksdk raises. Thread-safe for different load balancers."""

    cloud: Cloud

    def create(self, body: JSON) -> JSON:
        made: JSON = self._ask("POST", BALANCERS, {"loadbalancer": body})["loadbalancer"]
        return made

    def delete(self, balancer: JSON, *, cascade: bool = True) -> None:
        """Have it deleted, with `cascade` all its parts with it. Gone already is fine."""
        path = f"{BALANCERS}/{balancer['id']}"
        try:
            self._ask("DELETE", f"{path}?cascade=true" if cascade else path)
        except NotFoundException:
            return

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
        first = todo[0]
        logger.info("load balancer %s: %s", balancer["id"], first.what)
        try:
            self._ask(first.method, first.path, first.body)
        except NotFoundException:
            if first.method != "DELETE":
                raise
        if more or len(todo) > 1:
            raise Pending(f"Octavia carries out {first.what} of {balancer['id']}, then more", BUSY_SECONDS)

    def parts(self, balancer: JSON) -> Actual:
        """Its listeners and pools."""
        query = [("loadbalancer_id", balancer["id"])]
        listeners = listed(self.cloud.sdk.load_balancer, "/lbaas/listeners", "listeners", query)
        return Actual(balancer, listeners, listed(self.cloud.sdk.load_balancer, "/lbaas/pools", "pools", query))

    def tree(self, who: Identity, balancer: JSON) -> Actual:
        """Its parts, with members and monitors of those that are not another Service's."""
        parts = self.parts(balancer)
        others = [one for one in parts.listeners if _is_anothers(one, who)]
        taken = {one["default_pool_id"] for one in others}
        behind = {one["default_pool_id"] for one in parts.listeners} - taken
        mine = [one for one in parts.pools if one["id"] in behind or who.is_part("pool", one["name"])]
        inside = {one["id"]: self._members(one["id"]) for one in mine}
        checks = [one["healthmonitor_id"] for one in mine if one.get("healthmonitor_id")]
        monitors = {one: self._ask("GET", f"/lbaas/healthmonitors/{one}")["healthmonitor"] for one in checks}
        return evolve(parts, members=inside, monitors=monitors)

    def listeners_of(self, who: Identity, balancer: JSON) -> list[JSON]:
        """The Service's listeners as the status tree has them: with pools, these with members."""
        tree = self._ask("GET", f"{BALANCERS}/{balancer['id']}/status")["statuses"]["loadbalancer"]
        mine = [one for one in tree["listeners"] if who.is_part("listener", one["name"])]
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
            is_checked = check is not None and pool.get("health_monitor", {}).get("type") == "HTTP"
            spot = Spot(subnet, number, check[1] if check is not None and is_checked else None)
            if (joining := only_new(seen, wanted)) is not None:
                todo.append(join_step(pool["id"], joining, spot))
                continue
            # The tree has no weights, and a PUT sets all that it does not say to defaults.
            present = self._members(pool["id"])
            checked = next((one["monitor_port"] for one in present), spot.monitor_port)
            made = members(Spot(subnet, number, checked), present, chosen)
            if made is not None:
                todo.append(member_step(pool["id"], made))
        return todo

    def _node_port(self, service: V1Service, listener: str) -> int:
        """The node port behind a listener whose pool is empty."""
        one = self._ask("GET", f"/lbaas/listeners/{listener}")["listener"]
        transport = one["protocol"] if one["protocol"] in ("UDP", "SCTP") else "TCP"
        for port in ports_of(service):
            if (port.protocol, port.port) == (transport, one["protocol_port"]):
                return port.node_port
        raise CloudProviderError(f"the Service has no port {one['protocol_port']}, which its load balancer has")

    def _members(self, pool: str) -> list[JSON]:
        return listed(self.cloud.sdk.load_balancer, f"/lbaas/pools/{pool}/members", "members")

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> JSON:
        return ask(self.cloud.sdk.load_balancer, method, path, body=body)


def tag_step(balancer: JSON, tags: Sequence[str]) -> Step:
    """Have these tags on the load balancer, and no others."""
    return Step("PUT", f"{BALANCERS}/{balancer['id']}", {"loadbalancer": {"tags": list(tags)}}, "the tags")


def _is_anothers(listener: JSON, who: Identity) -> bool:
    tags = listener.get("tags") or ()
    return who.balancer not in tags and any(tag.startswith(SERVICE_PREFIX) for tag in tags)
