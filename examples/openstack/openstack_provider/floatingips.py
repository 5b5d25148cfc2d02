"""Floating IPs: given, made, moved, kept, deleted."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import Final

from openstack.exceptions import ConflictException, NotFoundException, PreconditionFailedException

from cloudprovider import InvalidService, RetryError
from openstack_provider.cloud import Cloud
from openstack_provider.names import FLOATING_PREFIX, Identity, subnet_matches
from openstack_provider.plan import Plan
from openstack_provider.rest import JSON, ask, listed

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
        self._lock = threading.Lock()
        self._external = ("", 0.0)
        self._seen: dict[str, JSON | None] = {}
        """What was last seen on each port."""

    def at(self, port: str) -> JSON | None:
        """The one on a port."""
        found = listed(self._cloud.sdk.network, "/floatingips", "floatingips", [("port_id", port)])
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
        return self._made(plan, port)

    def release(self, who: Identity, there: JSON, *, keep: bool) -> None:
        """Take a floating IP off its port: delete it where it was made here or by the Go manager
        and is not to be kept."""
        path, revision = f"/floatingips/{there['id']}", there.get("revision_number")
        try:
            if keep or FLOATING_PREFIX not in (there.get("description") or ""):
                changed: JSON = {"port_id": None}
                if keep:  # so that nothing takes it for a leftover
                    changed["description"] = f"Kept floating IP of {who.key} from cluster {who.cluster}"[:255]
                ask(self._cloud.sdk.network, "PUT", path, body={"floatingip": changed}, revision=revision)
            else:
                ask(self._cloud.sdk.network, "DELETE", path, revision=revision)
        except NotFoundException:
            return
        except PreconditionFailedException as error:
            raise RetryError(f"the floating IP {there['floating_ip_address']} changed meanwhile", 1.0) from error

    def delete_leftover(self, who: Identity) -> None:
        """Delete what was made for the Service and has lost its load balancer."""
        for one in self._leftovers(who):
            self.release(who, one, keep=False)

    def _leftovers(self, who: Identity) -> list[JSON]:
        """Those of the Service that are on no port."""
        query = [("description", who.floating_description)]
        found = listed(self._cloud.sdk.network, "/floatingips", "floatingips", query)
        # The description carries the Service's UID, so no other cluster's has it.
        mine = [one for one in found if one.get("description") == who.floating_description]
        return [one for one in mine if not one.get("port_id")]

    def _given(self, plan: Plan, port: str, there: JSON | None) -> str:
        query = [("floating_ip_address", plan.address)]
        found = listed(self._cloud.sdk.network, "/floatingips", "floatingips", query)
        if found and found[0].get("port_id"):
            raise InvalidService(f"spec.loadBalancerIP: the floating IP {plan.address} is in use elsewhere")
        if there is not None:
            self._seen.pop(port, None)
            self.release(plan.who, there, keep=plan.annotations.keep_floating_ip)
        if not found:
            return self._made(plan, port)
        return self._put_on(found[0], port)

    def _put_on(self, floating: JSON, port: str) -> str:
        path, body = f"/floatingips/{floating['id']}", {"floatingip": {"port_id": port}}
        ask(self._cloud.sdk.network, "PUT", path, body=body, revision=floating.get("revision_number"))
        return address_of(floating)

    def _made(self, plan: Plan, port: str) -> str:
        asked = plan.networks
        network = asked.floating_network or self._external_network()
        if not network:
            logger.warning("%s: no external network is there, so it gets no floating IP", plan.who.key)
            return ""
        wanted = {"floating_network_id": network, "port_id": port, "description": plan.who.floating_description}
        if plan.address:
            wanted["floating_ip_address"] = plan.address
        subnets = [asked.floating_subnet] if asked.floating_subnet else [""]
        if (asked.floating_pattern or asked.floating_tags) and not plan.address:
            subnets = self._subnets(plan, network)
        for subnet in subnets[:-1]:
            with suppress(ConflictException):  # this subnet is full
                return self._post({**wanted, "subnet_id": subnet})
        return self._post({**wanted, "subnet_id": subnets[-1]} if subnets[-1] else wanted)

    def _post(self, wanted: JSON) -> str:
        made = ask(self._cloud.sdk.network, "POST", "/floatingips", body={"floatingip": wanted})
        return str(made["floatingip"]["floating_ip_address"])

    def _subnets(self, plan: Plan, network: str) -> list[str]:
        """The subnets of the external network that fit, in the order of their names."""
        asked = plan.networks
        there = listed(self._cloud.sdk.network, "/subnets", "subnets", [("network_id", network)])
        names = {one["name"]: one for one in sorted(there, key=lambda one: str(one["name"]))}
        found = [
            str(one["id"])
            for one in sorted(there, key=lambda one: str(one["name"]))
            if one["ip_version"] == 4
            and subnet_matches(one["name"], one.get("tags") or (), asked.floating_pattern, asked.floating_tags)
        ]
        if not found:
            raise InvalidService(
                f"no subnet of the external network {network} fits floating-subnet {asked.floating_pattern!r} and "
                f"floating-subnet-tags {asked.floating_tags!r} (it has: {', '.join(names) or 'none that is visible'})"
            )
        return found

    def _external_network(self) -> str:
        """The first external network, as the Go manager chooses; "" where there is none."""
        with self._lock:
            known, until = self._external
        if known and time.monotonic() < until:
            return known
        found = listed(self._cloud.sdk.network, "/networks", "networks", [("router:external", "true")])
        usable = [str(one["id"]) for one in found if one.get("subnets")]
        with self._lock:
            self._external = (usable[0] if usable else "", time.monotonic() + _REMEMBERED_SECONDS)
        return self._external[0]
