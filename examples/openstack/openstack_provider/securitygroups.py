"""The nodes' security group: one for the cluster, on the port of each node, with rules for each
Service.

A node's port is changed once in its life, and not for each Service: the Go manager makes a group
for each Service and changes every node's port for it. A port always keeps all its other groups, and
is changed only as it was read: by its revision.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Sequence, Set
from contextlib import contextmanager, suppress

from attrs import evolve
from kubernetes.client.models.v1_node import V1Node
from openstack.exceptions import ConflictException, NotFoundException

from cloudprovider import CallDeadlineExceeded, CloudProviderError, RetryError, current_call
from cloudprovider.helpers import provider_id_of
from openstack_provider.cloud import Cloud
from openstack_provider.config import ID
from openstack_provider.ownership import Identity
from openstack_provider.plan import Plan, Target
from openstack_provider.rest import JSON
from openstack_provider.servers import servers_of

Rule = tuple[str, str, str, int]
"""Of a rule: IPv4 or IPv6, the protocol, the range that may come in, the port."""


def rules_of(plan: Plan, cidr: str, provider: str) -> set[Rule]:
    """What the nodes must let in, of load balancers in this subnet. The provider `ovn` keeps the
    clients' addresses, so there the source ranges are limited here."""
    # Its checks come from the subnet.
    ranges = {*plan.sources(plan.families), cidr} if provider == "ovn" else {cidr}
    wanted = {(_family(one), port.transport.lower(), one, port.node_port) for port in plan.ports for one in ranges}
    checked = {port.monitor_port for port in plan.ports if port.monitor_port}
    return wanted | {(_family(cidr), "tcp", cidr, number) for number in checked}


def ports_of(cloud: Cloud, targets: Iterable[Target]) -> list[JSON]:
    """The ports of these nodes' servers that have the nodes' addresses."""
    known = {target.server: target.address for target in targets if target.server and target.address}
    found = cloud.neutron.with_any("/ports", "device_id", known, *cloud.mine)
    return [one for one in found if known.get(one["device_id"]) in {ip["ip_address"] for ip in one["fixed_ips"]}]


class NodeGroups:
    """The security group of the nodes of a cluster. Raises what openstacksdk raises. Thread-safe
    for different Services."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._turn = threading.Lock()
        """One Service at a time: the last one's deletion takes the group away, under another one's
        hands."""

    def open(
        self, who: Identity, rules: set[Rule], chosen: Sequence[Target], ports: Sequence[JSON] | None = None
    ) -> list[JSON]:
        """Have the nodes let in what the Service needs. `ports` are theirs, where they were read.
        Returns the rules that it needs no more: for `close`, when nothing uses them."""
        with self._alone():
            group = self._group(who)
            if group is None:
                told = {"name": who.node_group, "description": f"Node ports of Kubernetes cluster {who.cluster}"[:255]}
                group = self._cloud.neutron.post("/security-groups", security_group=told)["security_group"]
            there = {_rule(one): one for one in group["security_group_rules"] if one["direction"] == "ingress"}
            # A Service that had such a port before may be at work, and takes its rules along.
            former = [one for rule, one in there.items() if rule in rules and _is_of_another(one, who)]
            self.close(former)
            there = {rule: one for rule, one in there.items() if one not in former}
            if missing := sorted(rules - there.keys()):
                made = [_described(rule, group, who) for rule in missing]
                try:
                    self._cloud.neutron.post("/security-group-rules", security_group_rules=made)
                except ConflictException as error:
                    raise RetryError(f"the rules of {who.node_group} changed meanwhile", 1.0) from error
            # Read in this Service's turn, they are as the one before has left them.
            self._attach(group, ports_of(self._cloud, chosen) if ports is None else ports)
            return [one for rule, one in there.items() if one.get("description") == who.uid and rule not in rules]

    def extend(self, who: Identity, joining: Sequence[Target]) -> None:
        """Have the cluster's group, where there is one, on the ports of more nodes."""
        if not joining:
            return
        with self._alone():  # each Service has the same port changed
            group = self._group(who)
            if group is not None:
                self._attach(group, ports_of(self._cloud, joining))

    def leave(self, who: Identity, addresses: Set[str], nodes: Callable[[], Sequence[V1Node]]) -> None:
        """Take the group off the ports with these addresses, and those of servers that left
        unseen. The server of one of `nodes` keeps it: an address may have a new one."""
        with self._alone():
            group = self._group(who)
            known = nodes()  # in this turn: all that were given the group are among them
            if group is None or not all(provider_id_of(node) for node in known):
                return  # any server may be that of the node without an ID
            servers = servers_of(known)
            for port in self._ports_with(group):
                # Without the UID, another cluster's nodes may have a group of this name.
                left = who.cluster_uid or any(ip["ip_address"] in addresses for ip in port["fixed_ips"])
                if left and port["device_id"] not in servers:
                    self._detach(group, port)

    def _ports_with(self, group: JSON) -> list[JSON]:
        return self._cloud.neutron.listed("/ports", ("security_groups", group["id"]))

    def _detach(self, group: JSON, port: JSON) -> None:
        if group["id"] in port["security_groups"]:
            self._put(port, [one for one in port["security_groups"] if one != group["id"]])

    def _attach(self, group: JSON, ports: Sequence[JSON]) -> None:
        for port in ports:
            if port.get("port_security_enabled", True) and group["id"] not in port["security_groups"]:
                self._put(port, [*port["security_groups"], group["id"]])

    def close(self, rules: Iterable[JSON]) -> None:
        """Delete these rules."""
        for one in rules:
            self._cloud.neutron.delete(f"/security-group-rules/{one['id']}")

    def remove(self, who: Identity, *, adopted: bool) -> None:
        """Delete the Service's rules; with the last of all Services' the group, too. With `adopted`
        also the group that the Go manager made for it."""
        # One of the cluster's name is of a time when its UID could not be read.
        named = [who.node_group, evolve(who, cluster_uid="").node_group, *([who.go_group] if adopted else ())]
        with self._alone():
            for group in self._cloud.neutron.with_any("/security-groups", "name", set(named), *self._cloud.mine):
                rules = [one for one in group["security_group_rules"] if one["direction"] == "ingress"]
                mine = [one for one in rules if one.get("description") == who.uid]
                is_gos = group["name"] == who.go_group
                self.close(() if is_gos else mine)
                if is_gos or (len(mine) == len(rules) and (mine or group["name"] == who.node_group)):
                    self._drop(group)

    @contextmanager
    def _alone(self) -> Generator[None, None, None]:
        left = current_call().remaining()
        if not self._turn.acquire(timeout=-1 if left is None else left):
            raise CallDeadlineExceeded("another Service's change of the nodes' security group took too long")
        try:
            yield
        finally:
            self._turn.release()

    def _group(self, who: Identity) -> JSON | None:
        # Another project may share a group of this name with ours, whose rules it writes.
        found = self._cloud.neutron.listed("/security-groups", ("name", who.node_group), *self._cloud.mine)
        if len(found) > 1:
            raise CloudProviderError(f"{len(found)} security groups have the name {who.node_group}: delete all but one")
        return found[0] if found else None

    def _drop(self, group: JSON) -> None:
        for port in self._ports_with(group):
            self._detach(group, port)
        try:
            self._cloud.neutron.delete(f"/security-groups/{group['id']}")
        except ConflictException as error:
            raise RetryError(f"the security group {group['name']} is still used", 5.0) from error

    def _put(self, port: JSON, groups: Sequence[str]) -> None:
        current_call().check()
        changed, revision = {"security_groups": list(groups)}, port.get("revision_number")
        with suppress(NotFoundException):  # the server is gone, and its port with it
            self._cloud.neutron.put(f"/ports/{port['id']}", port=changed, revision=revision)


def _family(cidr: str) -> str:
    return "IPv6" if ":" in cidr else "IPv4"


def _rule(one: JSON) -> Rule:
    low = one["port_range_min"] if one["port_range_min"] == one["port_range_max"] else -1
    return (one["ethertype"], one["protocol"] or "", one["remote_ip_prefix"] or "", low or 0)


def _is_of_another(rule: JSON, who: Identity) -> bool:
    """Whether it is another Service's, of this cluster: only one of them has a node port."""
    uid = rule.get("description") or ""
    return bool(who.cluster_uid) and uid != who.uid and ID.problem(uid) is None


def _described(rule: Rule, group: JSON, who: Identity) -> JSON:
    """The rule for Neutron. Its description says which Service needs it."""
    family, protocol, cidr, port = rule
    return {
        "security_group_id": group["id"], "direction": "ingress", "ethertype": family, "protocol": protocol,
        "remote_ip_prefix": cidr, "port_range_min": port, "port_range_max": port, "description": who.uid,
    }  # fmt: skip
