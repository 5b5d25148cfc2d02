"""LoadBalancer: one of Octavia's for each Service, or one for several.

Building: the load balancer with all its parts in one request, then its floating IP, while Octavia
works. Keeping: floating IP, then one change of the load balancer in each call, since Octavia takes
no other before it has carried that out: `Pending` brings the host back. Deleting: floating IP,
rules of the nodes, then all parts at once. Nothing is touched that is not proved to be the
Service's: see `ownership`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final, NoReturn

from attrs import evolve, frozen
from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service
from openstack.exceptions import NotFoundException
from typing_extensions import override

from cloudprovider import (
    CloudProviderError,
    InvalidService,
    LoadBalancer,
    OwnedLoadBalancer,
    OwnedLoadBalancers,
    Pending,
    RetryError,
)
from cloudprovider.helpers import health_check_path_port, labels_of, load_balancer_status_equal, ports_of
from openstack_provider.annotations import Annotations, lenient
from openstack_provider.cloud import Cloud
from openstack_provider.config import ClassConfig, LoadBalancerConfig
from openstack_provider.errors import answered
from openstack_provider.floatingips import FloatingIPs
from openstack_provider.names import (
    ADOPTED_TAG,
    OPENED_TAG,
    SERVICE_PREFIX,
    SERVICE_TAG,
    Identity,
    identity,
    service_of,
)
from openstack_provider.ownership import (
    has_status,
    is_marked,
    is_of_another_cluster,
    is_owner,
    may_be_deleted,
    own,
    refusal,
    sharers,
    shows,
)
from openstack_provider.plan import IPV4, IPV6, Networks, Plan, Target, families_of, networks, plan, targets
from openstack_provider.rest import JSON, ask, listed
from openstack_provider.securitygroups import NodeGroups, rules_of
from openstack_provider.steps import Actual, Spot, Step, created, leaving, member_step, members, steps

BUILDING_SECONDS: Final = 5.0
BUSY_SECONDS: Final = 2.0
DELETING_SECONDS: Final = 2.0
ADDRESS_SECONDS: Final = 30.0
"""Until nodes without an address are looked at again. The host also asks when they get one."""
AGAIN_SECONDS: Final = (10.0, 600.0)
"""Until one that Octavia could not build is built again: at first, and at most."""
_BALANCERS: Final = "/lbaas/loadbalancers"

logger = logging.getLogger(__name__)


@frozen
class _Built:
    """What this process has just built: Octavia works on it, and nothing of it need be read
    again."""

    id: str
    plan: Plan
    targets: Sequence[Target]
    address: str


class OpenStackLoadBalancers(LoadBalancer, OwnedLoadBalancers):
    """Load balancers of Octavia, named as the Go manager names them."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._cluster_uid = ""
        self._floating = FloatingIPs(cloud)
        self._groups = NodeGroups(cloud)
        self._lock = threading.Lock()
        self._built: dict[str, _Built] = {}
        """By the Service's UID."""
        self._deleted: set[str] = set()
        """UIDs of Services of whose load balancers nothing was left when Octavia began to delete
        them."""
        self._failures: dict[str, int] = {}
        self._ranges: dict[str, str] = {}
        """Of subnets, by ID. They never change."""

    def start(self, cluster_uid: str | None) -> None:
        """Say which cluster this is, by the UID of kube-system: before any other call."""
        self._cluster_uid = cluster_uid or ""
        if not cluster_uid:
            logger.warning("the cluster's UID cannot be read: load balancers are marked with their Services' UIDs only")

    @override
    def get_load_balancer_name(self, cluster_name: str, service: V1Service) -> str:
        return self._who(cluster_name, service).host_name

    @override
    def target_traits(self, node: V1Node) -> str:
        """The labels, by which a Service or the configuration chooses nodes."""
        return str(sorted(labels_of(node).items()))

    @override
    def check_service(self, service: V1Service) -> None:
        plan(self._who("", service), service, self._config, self._cloud.config.loadbalancerclass)

    @override
    @answered()
    def get_load_balancer(self, cluster_name: str, service: V1Service) -> V1LoadBalancerStatus | None:
        who = self._who(cluster_name, service)
        found, floating = self._proved(who, service, self._tagged(who))
        if found is None:
            return None
        if found["provisioning_status"] in ("PENDING_CREATE", "PENDING_DELETE") or not found["vip_address"]:
            return V1LoadBalancerStatus()
        floating = floating or self._floating.at(found["vip_port_id"])
        return _status(service, self._config, _addresses(found, _address_of(floating)))

    @override
    @answered()
    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        who = self._who(cluster_name, service)
        wanted = plan(who, service, self._config, self._cloud.config.loadbalancerclass)
        chosen = targets(nodes, wanted.annotations.node_selector, wanted.families[0])
        tagged = self._tagged(who)
        balancer = own(tagged, who)
        if balancer is None:
            balancer = self._other(wanted, service, tagged)
        elif wanted.annotations.balancer_id not in (None, balancer["id"]):
            raise InvalidService(
                f"load-balancer-id: the Service has the load balancer {balancer['id']}; to use "
                f"{wanted.annotations.balancer_id}, make the Service again"
            )
        if balancer is None:
            self._build(wanted, chosen)
        status = self._keep(wanted, service, chosen, balancer)
        if load_balancer_status_equal(service.status.load_balancer if service.status is not None else None, status):
            _wait_for_addresses(chosen)
        return status

    @override
    @answered()
    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        who = self._who(cluster_name, service)
        balancer = own(self._tagged(who), who)
        if balancer is None:
            raise CloudProviderError(
                f"there is no load balancer marked as that of {who.key}, whose members could be set"
            )
        self._usable(balancer)
        asked = lenient(service, self._config)
        family = ((service.spec.ip_families if service.spec is not None else None) or [IPV4])[0]
        chosen = targets(nodes, asked.node_selector, family)
        if self._config.manage_security_groups:
            group = self._groups.group(who)
            if group is not None:
                self._groups.attach(group, self._groups.ports(chosen))
        where = networks(
            asked, self._config, self._cloud.config.loadbalancerclass.get(asked.class_name or "", ClassConfig())
        )
        todo = self._member_steps(who, service, balancer, chosen, _member_subnet(where, balancer))
        self._do(balancer, todo)
        _wait_for_addresses(chosen)

    @override
    @answered()
    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        who = self._who(cluster_name, service)
        with self._lock:
            self._built.pop(who.uid, None)
            self._failures.pop(who.uid, None)
        balancer, floating = self._proved(who, service, self._tagged(who))
        config = self._config
        if balancer is None:
            if who.uid not in self._deleted:
                self._floating.leftover(who)
                if config.manage_security_groups:
                    self._groups.remove(who, adopted=False)
            self._deleted.discard(who.uid)
            return
        if balancer["provisioning_status"].startswith("PENDING_"):
            raise Pending(
                f"Octavia is at work on {balancer['id']}: {balancer['provisioning_status']}", DELETING_SECONDS
            )
        tags = balancer.get("tags") or ()
        if OPENED_TAG in tags or ADOPTED_TAG in tags or config.manage_security_groups:
            self._groups.remove(who, adopted=ADOPTED_TAG in tags or not is_marked(balancer))
        goes = may_be_deleted(balancer, who) or not (is_marked(balancer) or sharers(balancer, who))
        if not goes:
            self._leave(who, balancer)
            return
        floating = floating or self._floating.at(balancer["vip_port_id"])
        if floating is not None:
            keep = lenient(service, config).keep_floating_ip
            self._floating.release(who, floating, keep=keep)
        if not config.cascade_delete:
            self._do(balancer, [*leaving(who, self._parts(balancer)), _LAST])
        self._delete(balancer, cascade=config.cascade_delete)
        self._deleted.add(who.uid)
        raise Pending(f"Octavia is deleting {balancer['id']}", DELETING_SECONDS)

    @override
    @answered()
    def owned_load_balancers(self, cluster_name: str) -> Sequence[OwnedLoadBalancer]:
        """Those that the Go manager built for a cluster of this name, too."""
        anyone = Identity(cluster_name, self._cluster_uid, "", "")
        found = []
        for one in listed(self._cloud.sdk.load_balancer, _BALANCERS, "loadbalancers", self._project()):
            names = [one["name"], *(tag for tag in one.get("tags") or () if tag.startswith(SERVICE_PREFIX))]
            if not service_of(one["name"], cluster_name) or is_of_another_cluster(one, anyone):
                continue
            users = [name for name in names if name in (one.get("tags") or ())] or names
            uids = [tag.removeprefix(SERVICE_TAG) for tag in one.get("tags") or () if tag.startswith(SERVICE_TAG)]
            service = service_of(users[0], cluster_name)
            uid = uids[0] if len(uids) == 1 else ""
            name = Identity(cluster_name, "", service, uid).host_name if uid else one["name"]
            found.append(OwnedLoadBalancer(name, service, uid))
        return found

    @property
    def _config(self) -> LoadBalancerConfig:
        return self._cloud.config.loadbalancer

    def _who(self, cluster_name: str, service: V1Service) -> Identity:
        return identity(cluster_name, self._cluster_uid, service)

    def _project(self) -> list[tuple[str, str]]:
        """An administrator would be shown every project's."""
        project = self._cloud.sdk.current_project_id
        return [("project_id", project)] if project else []

    def _tagged(self, who: Identity) -> list[JSON]:
        """Every load balancer with the Service's name among its tags, whoever wrote it."""
        query = [("tags", who.balancer), *self._project()]
        return listed(self._cloud.sdk.load_balancer, _BALANCERS, "loadbalancers", query)

    def _proved(self, who: Identity, service: V1Service, tagged: Sequence[JSON]) -> tuple[JSON | None, JSON | None]:
        """The Service's load balancer, None where there is none or nothing proves it; and its
        floating IP, where that had to be asked for."""
        found = own(tagged, who)
        if found is not None:
            return dict(found), None
        for one in tagged:
            if is_owner(one, who) and not is_marked(one) and has_status(service):
                floating = self._floating.at(one["vip_port_id"])
                if self._shows(service, one, floating):
                    return one, floating
        return None, None

    def _shows(self, service: V1Service, balancer: JSON, floating: JSON | None) -> bool:
        addresses = [balancer["vip_address"], _address_of(floating)]
        return shows(service, [one for one in addresses if one], self._config.ingress_hostname_suffix)

    def _other(self, wanted: Plan, service: V1Service, tagged: Sequence[JSON]) -> JSON | None:
        """A load balancer without the Service's mark that is to be its: the Go manager's, or one
        that it is to share. None where one is to be built. Raises `NotOurs`."""
        who, asked = wanted.who, wanted.annotations.balancer_id
        if asked:
            found = [one for one in tagged if one["id"] == asked] or [self._by_id(asked)]
        else:
            found = [one for one in tagged if is_owner(one, who)]
            if not found:  # of a time before there were tags
                query = [("name", who.balancer), *self._project()]
                found = listed(self._cloud.sdk.load_balancer, _BALANCERS, "loadbalancers", query)
        if len(found) > 1:
            ids = ", ".join(one["id"] for one in found)
            raise CloudProviderError(
                f"{len(found)} load balancers have the name {who.balancer}: {ids}. Delete all but one"
            )
        if not found:
            return None
        one = found[0]
        if is_of_another_cluster(one, who) or (is_owner(one, who) and is_marked(one)):
            raise refusal(one, who)
        is_the_clusters = bool(who.cluster_tag) and who.cluster_tag in (one.get("tags") or ())
        if one["name"].startswith(SERVICE_PREFIX) and not is_the_clusters:
            floating = self._floating.at(one["vip_port_id"]) if has_status(service) else None
            if not self._shows(service, one, floating):
                raise refusal(one, who)
        if is_owner(one, who):
            return one
        if wanted.is_internal:
            raise InvalidService("load-balancer-id: an internal Service shares no load balancer")
        if who.balancer not in (one.get("tags") or ()) and len(sharers(one, who)) >= self._config.max_shared_lb:
            raise InvalidService(
                f"load-balancer-id: {len(sharers(one, who))} Services use {one['id']} already (max-shared-lb)"
            )
        return one

    def _by_id(self, asked: str) -> JSON:
        try:
            found: JSON = ask(self._cloud.sdk.load_balancer, "GET", f"{_BALANCERS}/{asked}")["loadbalancer"]
        except NotFoundException as error:
            raise InvalidService(
                f"load-balancer-id: there is no load balancer {asked}: remove the annotation"
            ) from error
        return found

    def _tags(self, wanted: Plan, balancer: JSON | None) -> list[str]:
        """The tags that it should have, with those that it has."""
        who = wanted.who
        there = [] if balancer is None else list(balancer.get("tags") or ())
        ours = [who.balancer, who.uid_tag]
        if balancer is None or is_owner(balancer, who):
            ours.append(who.cluster_tag)
        if self._config.manage_security_groups:
            ours.append(OPENED_TAG)
        if balancer is not None and is_owner(balancer, who) and not is_marked(balancer):
            ours.append(ADOPTED_TAG)
        return [*there, *(tag for tag in ours if tag and tag not in there)]

    def _build(self, wanted: Plan, chosen: Sequence[Target]) -> NoReturn:
        """Create it. Raises `Pending`: Octavia needs a minute or two."""
        ports: list[JSON] = []
        where = wanted.networks
        if self._config.manage_security_groups:
            ports = self._groups.ports(chosen)
        if not (where.port or where.subnet or where.network):
            subnet = self._subnet_of(chosen, ports)
            wanted = evolve(wanted, networks=evolve(where, subnet=subnet, member_subnet=where.member_subnet or subnet))
        vip, families = self._vip(wanted)
        body = created(wanted, chosen, vip, families, self._tags(wanted, None))
        made = ask(self._cloud.sdk.load_balancer, "POST", _BALANCERS, body={"loadbalancer": body})["loadbalancer"]
        logger.info("%s: load balancer %s is being built", wanted.who.key, made["id"])
        if self._config.manage_security_groups:
            self._open(wanted, made, ports)
        address = ""
        if families_of([made["vip_address"]]) == [IPV4]:
            address = self._floating.ensure(wanted, made["vip_port_id"], None, is_owner=True)
        with self._lock:
            self._built[wanted.who.uid] = _Built(made["id"], evolve(wanted, networks=where), chosen, address)
        raise Pending(f"Octavia is building {made['id']}", BUILDING_SECONDS)

    def _vip(self, wanted: Plan) -> tuple[JSON, list[str]]:
        """Where its addresses are, and of which families."""
        asked, where = wanted.annotations, wanted.networks
        vip: JSON = {}
        if where.port:
            vip["vip_port_id"] = where.port
        else:
            vip = {"vip_subnet_id": where.subnet, "vip_network_id": where.network}
            if wanted.address and (wanted.is_internal or wanted.families[0] == IPV6):
                vip["vip_address"] = wanted.address
        vip |= {
            "provider": self._config.lb_provider, "flavor_id": asked.flavor_id or "",
            "availability_zone": asked.availability_zone or "",
        }  # fmt: skip
        vip = {key: one for key, one in vip.items() if one}
        families = [wanted.families[0]]
        if len(wanted.families) > 1 and not where.port:
            subnet = self._second_subnet(wanted)
            if subnet:
                return {**vip, "additional_vips": [{"subnet_id": subnet}]}, [*families, wanted.families[1]]
        if len(wanted.families) > 1 and wanted.needs_all_families:
            raise InvalidService(
                f"spec.ipFamilyPolicy RequireDualStack: the network has no subnet of {wanted.families[1]}"
            )
        return vip, families

    def _second_subnet(self, wanted: Plan) -> str:
        """A subnet of the second family in the load balancer's network; "" where it has none."""
        network = wanted.networks.network
        if not network:
            path = f"/subnets/{wanted.networks.subnet}"
            network = ask(self._cloud.sdk.network, "GET", path)["subnet"]["network_id"]
        version = "6" if wanted.families[1] == IPV6 else "4"
        query = [("network_id", network), ("ip_version", version)]
        found = listed(self._cloud.sdk.network, "/subnets", "subnets", query)
        return str(found[0]["id"]) if found else ""

    def _subnet_of(self, chosen: Sequence[Target], ports: Sequence[JSON]) -> str:
        """The first node's subnet: where nobody says, the load balancer is to be there."""
        first = next((one for one in chosen if one.address and one.server), None)
        if first is None:
            raise RetryError(
                "no node has an address yet that tells where the load balancer is to be: say it with subnet-id, or "
                "wait for a node", ADDRESS_SECONDS,
            )  # fmt: skip
        for port in [one for one in ports if one["device_id"] == first.server] or self._groups.ports([first]):
            for one in port["fixed_ips"]:
                if one["ip_address"] == first.address:
                    return str(one["subnet_id"])
        raise CloudProviderError(
            f"the server of node {first.name} has no port with its address {first.address}, which would tell where the "
            "load balancer is to be: set subnet-id"
        )

    def _open(self, wanted: Plan, balancer: JSON, ports: Sequence[JSON]) -> list[JSON]:
        """Have the nodes let its traffic in. Returns the rules that it needs no more."""
        subnet = wanted.networks.member_subnet or balancer["vip_subnet_id"]
        if subnet not in self._ranges:
            self._ranges[subnet] = ask(self._cloud.sdk.network, "GET", f"/subnets/{subnet}")["subnet"]["cidr"]
        rules = rules_of(wanted, self._ranges[subnet], balancer["provider"] or "")
        return self._groups.open(wanted.who, rules, ports)

    def _keep(self, wanted: Plan, service: V1Service, chosen: Sequence[Target], balancer: JSON) -> V1LoadBalancerStatus:
        """Bring what is there in line."""
        who = wanted.who
        if balancer["provisioning_status"] == "ERROR":
            self._mend(who, service, balancer)
        self._usable(balancer)
        with self._lock:
            built = self._built.pop(who.uid, None)
            self._failures.pop(who.uid, None)
        if built is not None and (built.id, built.plan, built.targets) == (balancer["id"], wanted, chosen):
            return _status(service, self._config, _addresses(balancer, built.address))
        tags = self._tags(wanted, balancer)
        if tags != list(balancer.get("tags") or ()):
            # First of all, so that whatever follows is known to be the Service's.
            self._do(balancer, [_tag_step(balancer, tags), _LAST])
        address = ""
        if families_of([balancer["vip_address"]]) == [IPV4]:
            floating = self._floating.at(balancer["vip_port_id"])
            address = self._floating.ensure(wanted, balancer["vip_port_id"], floating, is_owner=is_owner(balancer, who))
        wanted = evolve(
            wanted, networks=evolve(wanted.networks, member_subnet=_member_subnet(wanted.networks, balancer))
        )
        surplus: list[JSON] = []
        if self._config.manage_security_groups:
            surplus = self._open(wanted, balancer, self._groups.ports(chosen))
        families = families_of(_addresses(balancer, ""))
        self._do(balancer, steps(wanted, self._tree(balancer), chosen, families))
        self._groups.close(surplus)
        if OPENED_TAG in tags and not self._config.manage_security_groups:
            # They are managed no more: nothing half is left.
            self._groups.remove(who, adopted=ADOPTED_TAG in tags)
            self._do(balancer, [_tag_step(balancer, [tag for tag in tags if tag != OPENED_TAG])])
        return _status(service, self._config, _addresses(balancer, address))

    def _mend(self, who: Identity, service: V1Service, balancer: JSON) -> NoReturn:
        """One in ERROR: delete it where nobody knows its address yet, so that it is built again."""
        if has_status(service) or not is_marked(balancer) or not may_be_deleted(balancer, who):
            raise CloudProviderError(
                f"the load balancer {balancer['id']} is in ERROR. Nothing is deleted, as its address is in use: let "
                f"Octavia mend it: openstack loadbalancer failover {balancer['id']}"
            )
        floating = self._floating.at(balancer["vip_port_id"])
        if floating is not None:
            self._floating.release(who, floating, keep=False)
        self._delete(balancer, cascade=True)
        with self._lock:
            self._built.pop(who.uid, None)
            tries = self._failures[who.uid] = self._failures.get(who.uid, 0) + 1
        first, most = AGAIN_SECONDS
        raise RetryError(
            f"Octavia could not build {balancer['id']}, which was in ERROR: it is deleted and built again",
            min(most, first * 2 ** (tries - 1)),
        )

    def _usable(self, balancer: JSON) -> None:
        """Raise where Octavia takes no change of it."""
        status = balancer["provisioning_status"]
        if status.startswith("PENDING_"):
            seconds = BUILDING_SECONDS if status == "PENDING_CREATE" else BUSY_SECONDS
            raise Pending(f"Octavia is at work on {balancer['id']}: {status}", seconds)
        if status != "ACTIVE":
            raise CloudProviderError(
                f"the load balancer {balancer['id']} is in {status}: openstack loadbalancer failover {balancer['id']}"
            )

    def _do(self, balancer: JSON, todo: Sequence[Step]) -> None:
        """Carry out the first step. Raises `Pending` where more is to be done."""
        if not todo:
            return
        first = todo[0]
        if first is not _LAST:
            logger.info("load balancer %s: %s", balancer["id"], first.what)
            try:
                ask(self._cloud.sdk.load_balancer, first.method, first.path, body=first.body)
            except NotFoundException as error:
                if first.method != "DELETE":
                    raise
                logger.info("load balancer %s: %s: gone already (%s)", balancer["id"], first.what, error)
            if len(todo) > 1:
                raise Pending(f"Octavia carries out {first.what} of {balancer['id']}, then more", BUSY_SECONDS)

    def _delete(self, balancer: JSON, *, cascade: bool) -> None:
        try:
            query = [("cascade", "true")] if cascade else []
            ask(self._cloud.sdk.load_balancer, "DELETE", f"{_BALANCERS}/{balancer['id']}", query=query)
        except NotFoundException:
            return

    def _leave(self, who: Identity, balancer: JSON) -> None:
        """Take the Service off a load balancer that stays."""
        left = [tag for tag in balancer.get("tags") or () if tag not in (who.balancer, who.uid_tag)]
        # The tags last: they are what the Service's parts are found by.
        self._do(balancer, [*leaving(who, self._parts(balancer)), _tag_step(balancer, left)])

    def _parts(self, balancer: JSON) -> Actual:
        octavia, query = self._cloud.sdk.load_balancer, [("loadbalancer_id", balancer["id"])]
        found = listed(octavia, "/lbaas/listeners", "listeners", query)
        return Actual(balancer, found, listed(octavia, "/lbaas/pools", "pools", query))

    def _tree(self, balancer: JSON) -> Actual:
        """All that Octavia has of it."""
        parts, octavia = self._parts(balancer), self._cloud.sdk.load_balancer
        behind = {one["default_pool_id"] for one in parts.listeners}
        there = {one["id"]: one for one in parts.pools if one["id"] in behind or one["name"].startswith("pool_")}
        members = {one: listed(octavia, f"/lbaas/pools/{one}/members", "members") for one in there}
        ids = [one["healthmonitor_id"] for one in there.values() if one.get("healthmonitor_id")]
        monitors = {one: ask(octavia, "GET", f"/lbaas/healthmonitors/{one}")["healthmonitor"] for one in ids}
        return evolve(parts, members=members, monitors=monitors)

    def _member_steps(
        self, who: Identity, service: V1Service, balancer: JSON, chosen: Sequence[Target], subnet: str
    ) -> list[Step]:
        """The pools whose members are others than these nodes."""
        octavia = self._cloud.sdk.load_balancer
        tree = ask(octavia, "GET", f"{_BALANCERS}/{balancer['id']}/status")["statuses"]["loadbalancer"]
        mine = [one for one in tree["listeners"] if who.is_part("listener", one["name"])]
        pools = {pool["id"]: (one["id"], pool) for one in mine for pool in one["pools"]}
        if not pools:
            raise CloudProviderError(f"the load balancer {balancer['id']} has no pools of {who.key}")
        check = health_check_path_port(service)
        wanted = {(one.name, one.address) for one in chosen}
        todo: list[Step] = []
        for key, (listener, pool) in pools.items():
            if {(one.get("name"), one["address"]) for one in pool["members"]} == wanted:
                continue
            present = listed(octavia, f"/lbaas/pools/{key}/members", "members")
            ports = {one["protocol_port"] for one in present} or self._node_port(service, listener)
            checked = {one["monitor_port"] for one in present if one.get("monitor_port")} or {check and check[1]}
            made = members(Spot(subnet, max(ports), max(checked, key=bool)), present, chosen)
            if made is not None:
                todo.append(member_step(key, made))
        return todo

    def _node_port(self, service: V1Service, listener: str) -> set[int]:
        """The node port behind a listener whose pool is empty."""
        one = ask(self._cloud.sdk.load_balancer, "GET", f"/lbaas/listeners/{listener}")["listener"]
        transport = one["protocol"] if one["protocol"] in ("UDP", "SCTP") else "TCP"
        found = {
            port.node_port
            for port in ports_of(service)
            if (port.protocol, port.port) == (transport, one["protocol_port"])
        }
        if not found:
            raise CloudProviderError(f"the Service has no port {one['protocol_port']}, which its load balancer has")
        return found


_LAST: Final = Step("", "", None, "")
"""Stands for what is done when nothing else is left."""


def _tag_step(balancer: JSON, tags: Sequence[str]) -> Step:
    return Step("PUT", f"{_BALANCERS}/{balancer['id']}", {"loadbalancer": {"tags": list(tags)}}, "its tags")


def _member_subnet(where: Networks, balancer: JSON) -> str:
    """The members' subnet: the load balancer's own where that is the nodes', as nobody said."""
    if where.member_subnet or where.network or where.port:
        return where.member_subnet
    return str(balancer["vip_subnet_id"])


def _address_of(floating: JSON | None) -> str:
    return "" if floating is None else str(floating["floating_ip_address"])


def _addresses(balancer: JSON, floating: str) -> list[str]:
    """Its addresses for clients: the floating IP in place of its own."""
    more = [one["ip_address"] for one in balancer.get("additional_vips") or ()]
    return [floating or balancer["vip_address"], *more]


def _status(service: V1Service, config: LoadBalancerConfig, addresses: Sequence[str]) -> V1LoadBalancerStatus:
    asked: Annotations = lenient(service, config)
    if asked.hostname:
        return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(hostname=asked.hostname)])
    if asked.proxy and config.enable_ingress_hostname:
        names = [f"{one.replace(':', '-')}.{config.ingress_hostname_suffix}" for one in addresses]
        return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(hostname=name) for name in names])
    # Else pods would reach the address without the PROXY protocol's header, by kube-proxy's way.
    mode = "Proxy" if asked.proxy else "VIP"
    return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip=one, ip_mode=mode) for one in addresses])


def _wait_for_addresses(chosen: Sequence[Target]) -> None:
    """Raise `RetryError` where a node could not become a member. The Go manager reports success,
    and the node stays outside until something else happens."""
    lacking = sorted(one.name for one in chosen if not one.address)
    if lacking:
        more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
        raise RetryError(f"no address yet of {', '.join(lacking[:5])}{more}: no traffic goes there", ADDRESS_SECONDS)
