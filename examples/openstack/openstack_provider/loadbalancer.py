"""LoadBalancer: one of Octavia's for each Service, or one for several.

Building: the load balancer with all its parts in one request, then its floating IP, while Octavia
works. Keeping: one change of it in each call, since Octavia takes no other before it has carried
that out: `Pending` brings the host back. Deleting: rules of the nodes, floating IP, then all parts
at once. Nothing is touched that is not proved to be the Service's: see `ownership`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence, Set
from typing import Final, NoReturn

from attrs import evolve
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service
from typing_extensions import override

from cloudprovider import (
    CloudProviderError,
    InvalidService,
    Listers,
    LoadBalancer,
    OwnedLoadBalancer,
    OwnedLoadBalancers,
    Pending,
    RetryError,
)
from cloudprovider.helpers import labels_of, load_balancer_status_equal
from openstack_provider.addresses import ADDRESS_SECONDS, FloatingIPs, VIPs, address_of, addresses, status
from openstack_provider.annotations import lenient, was_internal
from openstack_provider.cloud import Cloud
from openstack_provider.config import ClassConfig, LoadBalancerConfig
from openstack_provider.finder import Finder
from openstack_provider.octavia import BUILDING_SECONDS, BUSY_SECONDS, Octavia, tag_step
from openstack_provider.ownership import (
    ADOPTED_TAG,
    OPENED_TAG,
    Identity,
    has_status,
    identity,
    is_marked,
    is_of,
    is_owner,
    may_be_deleted,
    own,
    sharers,
)
from openstack_provider.plan import IPV4, Networks, Plan, Target, families_of, networks, plan, targets
from openstack_provider.rest import BALANCERS, JSON, answered
from openstack_provider.securitygroups import NodeGroups, ports_of, rules_of
from openstack_provider.steps import created, leaving, steps

AGAIN_SECONDS: Final = (10.0, 600.0)
"""Until what Octavia could not build is built again: at first, and at most."""

logger = logging.getLogger(__name__)


class OpenStackLoadBalancers(LoadBalancer, OwnedLoadBalancers):
    """Load balancers of Octavia, named as the Go manager names them."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._cluster_uid = ""
        self._octavia = Octavia(cloud)
        self._floating = FloatingIPs(cloud)
        self._finder = Finder(cloud, self._floating)
        self._groups = NodeGroups(cloud)
        self._vips = VIPs(cloud)
        self._listers: Listers | None = None
        # By UIDs: the host makes one call for a Service at a time, so nothing is locked.
        self._built: dict[str, tuple[str, Plan, Sequence[Target], str]] = {}
        """What this process has just built (ID, plan, targets, floating address): while Octavia
        works on it, nothing of it is read again."""
        self._deleting: set[str] = set()
        """Those of which nothing was left beside what Octavia deletes, and that is found by its
        tag."""
        self._failures: dict[str, int] = {}
        self._members: dict[str, Set[Target]] = {}
        """Which nodes this process set last. Only a reason to ask nothing while others lack an
        address."""
        self._ranges: dict[str, str] = {}
        """Of subnets, by ID. They never change."""

    def start(self, cluster_uid: str | None) -> None:
        """Say which cluster this is, by the UID of kube-system: before any other call."""
        self._cluster_uid = cluster_uid or ""
        if not cluster_uid:
            logger.warning(
                "there is no cluster (as in a check), or its namespace kube-system may not be read: load balancers "
                "would be marked with their Services' UIDs only"
            )

    def use(self, listers: Listers) -> None:
        """Tell by these from now on which servers have left the cluster."""
        self._listers = listers

    @override
    def get_load_balancer_name(self, cluster_name: str, service: V1Service) -> str:
        return self._who(cluster_name, service).host_name

    @override
    def target_traits(self, node: V1Node) -> str:
        """The labels, by which a Service or the configuration chooses nodes."""
        return str(sorted(labels_of(node).items()))

    @override
    def check_service(self, service: V1Service) -> None:
        self._plan(self._who("", service), service)

    @override
    @answered()
    def get_load_balancer(self, cluster_name: str, service: V1Service) -> V1LoadBalancerStatus | None:
        found, floating = self._finder.proved(self._who(cluster_name, service), service)
        if found is None:
            return None
        if found["provisioning_status"] in ("PENDING_CREATE", "PENDING_DELETE") or not found["vip_address"]:
            return V1LoadBalancerStatus()
        floating = floating or self._floating.at(found["vip_port_id"])
        return status(service, self._config, addresses(found, address_of(floating)))

    @override
    @answered()
    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        wanted = self._plan(self._who(cluster_name, service), service)
        self._members.pop(wanted.who.uid, None)
        self._deleting.discard(wanted.who.uid)
        chosen = targets(nodes, wanted.annotations.node_selector, wanted.families[0])
        balancer = self._finder.for_plan(wanted, service)
        if balancer is None:
            self._build(wanted, chosen, had_one=has_status(service))
        shown = status(service, self._config, self._keep(wanted, service, chosen, balancer))
        self._members[wanted.who.uid] = _reached(chosen)
        published = service.status.load_balancer if service.status is not None else None
        if load_balancer_status_equal(published, shown):  # else better an address with those nodes than none
            _wait_for_addresses(chosen)
        return shown

    @override
    @answered()
    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        who, asked = self._who(cluster_name, service), lenient(service, self._config)
        family = ((service.spec.ip_families if service.spec is not None else None) or [IPV4])[0]
        chosen = targets(nodes, asked.node_selector, family)
        if _reached(chosen) == self._members.get(who.uid):
            _wait_for_addresses(chosen)  # nothing is to be changed before they have some
        self._members.pop(who.uid, None)  # until all pools have these
        balancer = own(self._finder.tagged(who), who)
        if balancer is None:
            raise CloudProviderError(f"no load balancer is marked as that of {who.key}, so no members can be set")
        self._octavia.usable(balancer)
        chosen_class = self._cloud.config.loadbalancerclass.get(asked.class_name or "", ClassConfig())
        subnet = _member_subnet(networks(asked, self._config, chosen_class), balancer)
        listeners = self._octavia.listeners_of(who, balancer)
        todo = self._octavia.member_steps(listeners, service, chosen, subnet)
        if todo and self._config.manage_security_groups:
            pools = [pool for one in listeners for pool in one["pools"]]
            there = {member["address"] for pool in pools for member in pool["members"]}
            # A node that is a member already was let in before it became one.
            self._groups.extend(who, [one for one in chosen if one.address not in there])
            if len(todo) == 1:
                self._open_no_more(who, there - {one.address for one in chosen})
        self._octavia.do(balancer, todo)
        self._members[who.uid] = _reached(chosen)
        _wait_for_addresses(chosen)

    @override
    @answered()
    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        who, config = self._who(cluster_name, service), self._config
        for known in (self._built, self._failures, self._members):
            known.pop(who.uid, None)
        balancer, floating = self._finder.proved(who, service, by_name=who.uid not in self._deleting)
        if balancer is None:
            if who.uid not in self._deleting:
                self._floating.delete_leftover(who)
                if config.manage_security_groups:
                    self._groups.remove(who, adopted=False)
            self._deleting.discard(who.uid)
            return
        self._octavia.settled(balancer)
        if not may_be_deleted(balancer, who) and (is_marked(balancer) or sharers(balancer, who)):
            self._leave(who, balancer)
            return
        if not is_of(balancer, who) and balancer["provisioning_status"] != "ERROR":
            # Only the Service's address proves it, and that goes before it: by its tags the calls
            # that wait for its end know it, too.
            marks = (who.balancer, who.uid_tag, who.cluster_tag, ADOPTED_TAG)
            tags = [*(balancer.get("tags") or ()), *(tag for tag in marks if tag)]
            self._octavia.do(balancer, [tag_step(balancer, list(dict.fromkeys(tags)))], more=True)
        # In ERROR it takes no other change than its deletion.
        cascade = config.cascade_delete or balancer["provisioning_status"] == "ERROR"
        if not cascade:
            self._octavia.do(balancer, leaving(who, self._octavia.parts(balancer)), more=True)
        self._close(who, balancer)
        floating = floating or self._floating.last_seen(balancer["vip_port_id"])
        if floating is not None:
            self._floating.release(who, floating, keep=lenient(service, config).keep_floating_ip)
        self._cloud.octavia.delete(f"{BALANCERS}/{balancer['id']}{'?cascade=true' if cascade else ''}")
        is_whole = floating is not None or was_internal(service, config)
        if is_whole and who.balancer in (balancer.get("tags") or ()):
            self._deleting.add(who.uid)
        raise Pending(f"Octavia is deleting {balancer['id']}", BUSY_SECONDS)

    @override
    @answered()
    def owned_load_balancers(self, cluster_name: str) -> Sequence[OwnedLoadBalancer]:
        return self._finder.owned(cluster_name, self._cluster_uid)

    @override
    def delete_owned_load_balancer(self, cluster_name: str, owned: OwnedLoadBalancer) -> None:
        """One that several Services share, or that the Go manager built, is left to the operator:
        nothing proves that it is this cluster's alone."""
        if not owned.service_uid:
            raise CloudProviderError(
                f"several Services share {owned.name}, or the Go manager built it for a cluster of this name: look "
                "whose it is, and delete it: openstack loadbalancer delete --cascade"
            )
        super().delete_owned_load_balancer(cluster_name, owned)

    @property
    def _config(self) -> LoadBalancerConfig:
        return self._cloud.config.loadbalancer

    def _who(self, cluster_name: str, service: V1Service) -> Identity:
        return identity(cluster_name, self._cluster_uid, service)

    def _plan(self, who: Identity, service: V1Service) -> Plan:
        return plan(who, service, self._config, self._cloud.config.loadbalancerclass)

    def _build(self, wanted: Plan, chosen: Sequence[Target], *, had_one: bool) -> NoReturn:
        """Create it. Raises `Pending`: Octavia needs a minute or two. `had_one`: an address of the
        Service was published."""
        ports = ports_of(self._cloud, chosen) if self._config.manage_security_groups else []
        placed = self._vips.placed(wanted, chosen, ports)
        vip, families = self._vips.of(placed)
        made = self._cloud.octavia.post(
            BALANCERS, loadbalancer=created(placed, chosen, vip, families, self._tags(wanted, None))
        )["loadbalancer"]
        logger.info("%s: Octavia builds load balancer %s", wanted.who.key, made["id"])
        if self._config.manage_security_groups:
            self._open(placed, made, chosen, ports)
        address = ""
        if families_of([made["vip_address"]]) == [IPV4]:
            address = self._floating.ensure(wanted, made["vip_port_id"], None, is_owner=True, had_one=had_one)
        self._built[wanted.who.uid] = made["id"], wanted, chosen, address
        raise Pending(f"Octavia is building {made['id']}", BUILDING_SECONDS)

    def _keep(self, wanted: Plan, service: V1Service, chosen: Sequence[Target], balancer: JSON) -> list[str]:
        """Bring what is there in line. Returns its addresses. Raises `Pending` before it is."""
        who, managed = wanted.who, self._config.manage_security_groups
        _refuse_another_address(wanted, balancer)
        if balancer["provisioning_status"] == "ERROR":
            self._rebuild(who, service, balancer)
        self._octavia.usable(balancer)
        *built, address = self._built.pop(who.uid, ("", ""))
        self._failures.pop(who.uid, None)
        if built == [balancer["id"], wanted, chosen]:
            return addresses(balancer, address)
        tags = self._tags(wanted, balancer)
        if len(tags) > len(balancer.get("tags") or ()):
            # First of all, so that whatever follows is known to be the Service's.
            self._octavia.do(balancer, [tag_step(balancer, tags)], more=True)
        wanted = evolve(
            wanted, networks=evolve(wanted.networks, member_subnet=_member_subnet(wanted.networks, balancer))
        )
        families = families_of(addresses(balancer, ""))
        todo = steps(wanted, self._octavia.tree(who, balancer), chosen, families)
        if len(todo) > 1:
            self._octavia.do(balancer, todo)
        # The rest is looked at in the call of the last step, and not in each.
        surplus = self._open(wanted, balancer, chosen) if managed else []
        address = ""
        if families[0] == IPV4:
            there = self._floating.at(balancer["vip_port_id"])
            address = self._floating.ensure(
                wanted, balancer["vip_port_id"], there, is_owner=is_owner(balancer, who), had_one=has_status(service)
            )
        self._octavia.do(balancer, todo, more=bool(surplus))
        self._groups.close(surplus)
        if OPENED_TAG in tags and not managed:
            # They are managed no more: nothing half is left.
            self._close(who, balancer)
            self._octavia.untag(balancer, OPENED_TAG)
        return addresses(balancer, address)

    def _rebuild(self, who: Identity, service: V1Service, balancer: JSON) -> None:
        """Delete one in ERROR where nobody knows its address yet, so that it is built again."""
        if has_status(service) or not is_marked(balancer) or not may_be_deleted(balancer, who):
            return
        floating = self._floating.at(balancer["vip_port_id"])
        if floating is not None:
            self._floating.release(who, floating, keep=False)
        self._cloud.octavia.delete(f"{BALANCERS}/{balancer['id']}?cascade=true")
        self._built.pop(who.uid, None)
        tries = self._failures[who.uid] = self._failures.get(who.uid, 0) + 1
        first, most = AGAIN_SECONDS
        raise RetryError(
            f"Octavia could not build {balancer['id']}, which was in ERROR: it is deleted and built again",
            min(most, first * 2 ** min(tries - 1, 10)),
        )

    def _leave(self, who: Identity, balancer: JSON) -> None:
        """Take the Service off a load balancer that stays."""
        self._octavia.usable(balancer)
        self._octavia.do(balancer, leaving(who, self._octavia.parts(balancer)), more=True)
        self._close(who, balancer)
        # The tags last: they are what the Service's parts are found by.
        self._octavia.untag(balancer, who.balancer, who.uid_tag)

    def _tags(self, wanted: Plan, balancer: JSON | None) -> list[str]:
        """The tags that it should have, with those that it has."""
        who = wanted.who
        there: list[str] = [] if balancer is None else list(balancer.get("tags") or ())
        ours = [who.balancer, who.uid_tag]
        if balancer is None or is_owner(balancer, who):
            ours.append(who.cluster_tag)
        if self._config.manage_security_groups:
            ours.append(OPENED_TAG)
        if balancer is not None and is_owner(balancer, who) and (who.cluster_tag or who.uid_tag) not in there:
            ours.append(ADOPTED_TAG)
        return [*there, *(tag for tag in ours if tag and tag not in there)]

    def _open(
        self, wanted: Plan, balancer: JSON, chosen: Sequence[Target], ports: Sequence[JSON] | None = None
    ) -> list[JSON]:
        """Have the nodes let its traffic in. Returns the rules that it needs no more."""
        subnet = wanted.networks.member_subnet or balancer["vip_subnet_id"]
        if subnet not in self._ranges:
            self._ranges[subnet] = self._cloud.neutron.get(f"/subnets/{subnet}")["subnet"]["cidr"]
        rules = rules_of(wanted, self._ranges[subnet], balancer["provider"] or "")
        return self._groups.open(wanted.who, rules, chosen, ports)

    def _open_no_more(self, who: Identity, left: Set[str]) -> None:
        """Close the node ports of servers that had these addresses and have left the cluster. One
        whose Node is there keeps them: other Services may use it, and its connections end first."""
        if left and self._listers is not None and self._listers.has_synced():
            self._groups.leave(who, left, self._listers.nodes.list)

    def _close(self, who: Identity, balancer: JSON) -> None:
        """Take its rules off the nodes, where there may be some."""
        tags = balancer.get("tags") or ()
        adopted = ADOPTED_TAG in tags or not is_marked(balancer)
        if adopted or OPENED_TAG in tags or self._config.manage_security_groups:
            self._groups.remove(who, adopted=adopted)


def _refuse_another_address(wanted: Plan, balancer: JSON) -> None:
    there, is_floating = balancer["vip_address"], not wanted.is_internal and wanted.families[0] == IPV4
    if wanted.address not in ("", there) and not is_floating:
        raise InvalidService(
            f"spec.loadBalancerIP: the load balancer has the address {there}, which cannot be changed: name that one, "
            "or make the Service again"
        )


def _member_subnet(where: Networks, balancer: JSON) -> str:
    """The members' subnet: the load balancer's own, where nobody said anything of either."""
    if where.member_subnet or where.network or where.port:
        return where.member_subnet
    return str(balancer["vip_subnet_id"])


def _reached(chosen: Sequence[Target]) -> Set[Target]:
    return frozenset(one for one in chosen if one.address)


def _wait_for_addresses(chosen: Sequence[Target]) -> None:
    """Raise `RetryError` where a node could not become a member. The Go manager reports success,
    and the node stays outside until something else happens."""
    lacking = sorted(one.name for one in chosen if not one.address)
    if lacking:
        more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
        raise RetryError(f"no address yet of {', '.join(lacking[:5])}{more}: no traffic goes there", ADDRESS_SECONDS)
