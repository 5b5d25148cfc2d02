"""LoadBalancer: a Network Load Balancer for each Service, with the order of things that keeps it
whole.

Building: rules of the nodes' security group, load balancer, target groups with their instances,
listeners; then what the Service no longer needs. Deleting: load balancer, target groups, rules.
Every step finds what an interrupted call left behind, changes only what differs, and touches
nothing that is not proved to be the Service's by its tags.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, frozen
from botocore.exceptions import ClientError
from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service
from typing_extensions import override

from aws_provider.annotations import is_elsewhere, target_labels
from aws_provider.balancers import Balancer, Balancers, proved, refuse_other_addresses
from aws_provider.clients import Clients
from aws_provider.config import Config
from aws_provider.errors import DENIED, answered, error_code
from aws_provider.finder import InstanceFinder
from aws_provider.listeners import Listeners
from aws_provider.memory import Built, Memory
from aws_provider.ownership import add_tags, tags_of
from aws_provider.plan import Identity, Plan, identity, plan
from aws_provider.securitygroups import IngressRule, NodeSecurityGroups, may_be_swept, rules_of
from aws_provider.shared import Shared
from aws_provider.subnets import Subnet, Subnets
from aws_provider.tags import SERVICE_NAME_TAG, SERVICE_UID_TAG, is_owned
from aws_provider.targetgroups import Registered, TargetGroups
from aws_provider.targetgroups import proved as proved_groups
from cloudprovider import (
    CloudProviderError,
    ImplementedElsewhere,
    InvalidService,
    LoadBalancer,
    OwnedLoadBalancer,
    OwnedLoadBalancers,
    RetryError,
)
from cloudprovider.helpers import labels_of
from cloudprovider.wellknown import TAINT_NODE_SHUTDOWN

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef
    from mypy_boto3_elbv2.type_defs import LoadBalancerTypeDef, TargetGroupTypeDef

PROVISIONING_SECONDS = 10.0
"""AWS needs two or three minutes for a new load balancer."""
DELETING_SECONDS = 5.0
MISSING_SECONDS = (10.0, 600.0)
"""Until a machine that cannot be a target is looked at again: at first, and at most."""
UNLISTED = "AWS does not list it"
_ON_THEIR_WAY_OUT = ("shutting-down", "terminated")
_GONE = ("ListenerNotFound", "LoadBalancerNotFound", "TargetGroupNotFound")

logger = logging.getLogger(__name__)


@frozen
class _Targets:
    """The machines of a Service's nodes."""

    running: Mapping[str, InstanceTypeDef]
    """Those that can be registered, by ID."""
    all: frozenset[str]
    """Of every node: what is registered of these stays, as a machine that is switched off, or that
    AWS did not list for once, gets traffic as soon as it runs."""
    others: Mapping[str, str]
    """Those that cannot be registered now and may be later: why not, by ID."""
    seen: Mapping[str, InstanceTypeDef]
    """Those that AWS lists and that serve, or will, by ID: their security groups are open."""

    @property
    def is_all(self) -> bool:
        """Whether AWS lists every one."""
        return UNLISTED not in self.others.values()


class AWSLoadBalancers(LoadBalancer, OwnedLoadBalancers):
    """Network Load Balancers, named as the Go provider names them."""

    def __init__(self, clients: Clients, finder: InstanceFinder, config: Config) -> None:
        self._clients = clients
        self._config = config
        self._finder = finder
        self._balancers = Balancers(clients)
        self._groups = TargetGroups(clients)
        self._listeners = Listeners(clients)
        self._subnets = Subnets(clients, config.vpc)
        self._security = NodeSecurityGroups(clients)
        self._memory = Memory()
        self._instances: Shared[frozenset[str], Mapping[str, InstanceTypeDef]] = Shared(
            lambda ids: finder.by_id(sorted(ids))
        )
        self._waits: dict[str, float] = {}
        """Seconds until the next look at machines that cannot be targets, by the Service's UID."""

    @override
    @answered()
    def get_load_balancer(self, cluster_name: str, service: V1Service) -> V1LoadBalancerStatus | None:
        asked = identity(cluster_name, service)
        balancer = self._balancers.find(asked)
        if balancer is not None:
            return _status(balancer)
        return V1LoadBalancerStatus() if self._leftovers(asked) else None

    @override
    def target_traits(self, node: V1Node) -> str:
        """Its labels, by which Services choose; and whether it was switched off: as soon as it
        runs, it can be registered."""
        taints = (node.spec.taints if node.spec is not None else None) or []
        is_off = any(taint.key == TAINT_NODE_SHUTDOWN for taint in taints)
        return f"{is_off} {sorted(labels_of(node).items())}"

    @override
    def check_service(self, service: V1Service) -> None:
        if not is_elsewhere(service):
            plan("", service)  # whatever the cluster's name is

    @override
    @answered()
    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        if is_elsewhere(service):
            raise ImplementedElsewhere("the annotation asks for the AWS Load Balancer Controller")
        wanted = plan(cluster_name, service)
        asked = self._finder.target_ids(_chosen(nodes, wanted.annotations.node_labels))
        known = self._memory.get(wanted)
        self._memory.forget(wanted)
        if known is not None and known.building == (wanted, asked):
            # All else is done, so this alone is asked while AWS builds.
            now = self._balancers.named(wanted.name)
            if now is not None and now.get("LoadBalancerArn") == known.balancer.arn:
                balancer = proved(now, known.balancer.tags, wanted)
                still = known.building if balancer.state == "provisioning" else None
                self._memory.keep(wanted, evolve(known, balancer=balancer, building=still))
                return _ready(balancer)
        built, targets = self._ensure(wanted, asked)
        left = _left_out(targets, built.registered)
        if built.balancer.state == "provisioning" and not left:
            built = evolve(built, building=(wanted, asked))
        self._memory.keep(wanted, built)
        status = _ready(built.balancer)
        # With another address so far, or none: better the right one for those that run.
        if _hostnames(service.status.load_balancer if service.status else None) == _hostnames(status):
            self._wait_for(wanted, {key: why for key, why in left.items() if why == UNLISTED})
        return status

    def _ensure(self, wanted: Plan, asked: frozenset[str]) -> tuple[Built, _Targets]:
        """One pass over all of it."""
        subnets = self._subnets.for_load_balancer(
            wanted.cluster, wanted.annotations.internal, wanted.annotations.subnets
        )
        balancer, groups, tags = self._find(wanted, self._groups.candidates(wanted))
        if balancer is not None and balancer.is_internal != wanted.annotations.internal:
            self._balancers.delete(balancer)
            raise RetryError(
                f"{balancer.name} is deleted and rebuilt: AWS cannot turn an internal load balancer into an "
                "internet-facing one, or back",
                DELETING_SECONDS,
            )
        if balancer is None:
            self._balancers.refuse_classic(wanted)
        else:
            refuse_other_addresses(balancer, wanted)
        # First of all, so that a full group is known before anything is built and paid for.
        vpc = subnets[0].vpc if balancer is None else balancer.vpc
        targets = self._targets(asked, vpc)
        rules = self._rules(wanted, vpc, {} if balancer is None else balancer.zones, subnets)
        self._open(wanted, rules, targets)
        if balancer is None:
            balancer = self._balancers.create(wanted, subnets)
            tags[balancer.arn] = balancer.tags
        balancer = self._balancers.adjust(balancer, wanted, subnets)
        arns: dict[int, str] = {}
        registered: dict[str, Registered] = {}
        for port in wanted.ports:
            group = self._groups.ensure(wanted, port, balancer.vpc, groups)
            arn = arns[port.port] = group.get("TargetGroupArn", "")
            present = self._groups.registered(arn, port.node_port) if port.group in groups else frozenset()
            registered[arn] = self._groups.set_targets(arn, port.node_port, present, targets.running, targets.all)
            groups = {**groups, port.group: group}
        if any(may_be_swept(rule) for rule in rules):
            # Until a target group uses it, another Service's call may take the rule away.
            self._open(wanted, rules, targets)
        kept = self._listeners.ensure(balancer.arn, wanted, arns)
        needed = {port.group for port in wanted.ports}
        self._groups.delete(group for name, group in groups.items() if name not in needed)
        there = {arn: known for arn, known in tags.items() if arn == balancer.arn or arn in arns.values()}
        add_tags(self._clients, wanted.all_tags, {**there, **tags_of(self._clients, kept)})
        return Built(balancer, {name: groups[name] for name in needed}, registered, rules), targets

    @override
    @answered()
    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        asked = identity(cluster_name, service)
        known = self._memory.get(asked)
        self._memory.forget(asked)  # until all has gone well
        try:
            left = self._update(asked, service, nodes, known or self._look(asked, service))
        except ClientError as exc:
            if known is None or error_code(exc) not in _GONE:
                raise
            left = self._update(asked, service, nodes, self._look(asked, service))
        self._wait_for(asked, left)

    def _update(self, asked: Identity, service: V1Service, nodes: Sequence[V1Node], built: Built) -> Mapping[str, str]:
        """Set the targets, whatever the Service's annotations say of all else. Returns the machines
        that are left out, and why."""
        labels = target_labels(service)
        if labels is None:
            logger.warning("%s: its target-node-labels cannot be read, so no target is added", asked.service)
        targets = self._targets(self._finder.target_ids(_chosen(nodes, labels or {})), built.balancer.vpc)
        if labels is None:
            targets = evolve(targets, running={}, others={}, seen={})
        if self._config.manage_security_groups and targets.seen:
            ports = {group.get("HealthCheckPort", "") for group in built.groups.values()}
            checked = {int(port) for port in ports if port.isdecimal()}
            self._security.extend(asked, built.rules, checked, targets.seen.values())
        registered = {}
        for group in built.groups.values():
            arn, port = group.get("TargetGroupArn", ""), group.get("Port", 0)
            present = built.registered.get(arn)
            if present is None:
                present = self._groups.registered(arn, port)
            registered[arn] = self._groups.set_targets(arn, port, present, targets.running, targets.all)
        self._memory.keep(asked, evolve(built, registered=registered, building=None))
        return _left_out(targets, registered)

    def _look(self, asked: Identity, service: V1Service) -> Built:
        """What AWS has of the Service's load balancer."""
        found = self._balancers.named(asked.name)
        if found is None and is_elsewhere(service):
            raise ImplementedElsewhere("the annotation asks for the AWS Load Balancer Controller")
        if found is None:
            raise CloudProviderError(f"there is no load balancer {asked.name} whose targets could be set")
        balancer, groups, _ = self._find(asked, self._groups.behind(found.get("LoadBalancerArn", "")), found)
        if balancer is None or not groups:
            raise CloudProviderError(f"the load balancer {asked.name} has no target groups")
        try:
            rules = self._rules(plan(asked.cluster, service), balancer.vpc, balancer.zones)
        except InvalidService:
            rules = frozenset()  # those that were made before it was refused are found in the groups
        return Built(balancer, groups, {}, rules)

    @override
    @answered()
    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        asked = identity(cluster_name, service)
        self._memory.forget(asked)
        self._waits.pop(asked.uid, None)
        balancer, groups, _ = self._find(asked, self._groups.candidates(asked, newly=True))
        if balancer is not None:
            self._balancers.delete(balancer)
        self._groups.delete(groups.values())
        self._close(asked)
        if balancer is not None and self._balancers.find(asked) is not None:
            raise RetryError(f"AWS is still deleting {balancer.name}", DELETING_SECONDS)

    @override
    @answered()
    def owned_load_balancers(self, cluster_name: str) -> Sequence[OwnedLoadBalancer]:
        """Classic ones too, which the Go provider made: nothing here deletes them."""
        found = [(one.name, one.tags) for one in self._balancers.all()]
        named = {name for name, _ in found}
        found += [(name, tags) for name, tags in self._balancers.all_classic().items() if name not in named]
        return [
            OwnedLoadBalancer(name, tags.get(SERVICE_NAME_TAG, ""), tags.get(SERVICE_UID_TAG, ""))
            for name, tags in found
            if is_owned(tags, cluster_name)
        ]

    def _find(
        self, asked: Identity, candidates: Sequence[TargetGroupTypeDef], found: LoadBalancerTypeDef | None = None
    ) -> tuple[Balancer | None, dict[str, TargetGroupTypeDef], dict[str, Mapping[str, str]]]:
        """The Service's load balancer, and those of the target groups that are its own; the tags of
        all, by ARN. Raises `NotOurs`."""
        found = found or self._balancers.named(asked.name)
        arns = [group.get("TargetGroupArn", "") for group in candidates]
        tags: dict[str, Mapping[str, str]] = {}
        if found is not None:
            arns.insert(0, found.get("LoadBalancerArn", ""))
        tags |= tags_of(self._clients, arns)
        balancer = None if found is None else proved(found, tags.get(arns[0], {}), asked)
        return balancer, proved_groups(candidates, tags, asked), tags

    def _targets(self, asked: frozenset[str], vpc: str) -> _Targets:
        """The machines with these IDs. One in another network can never be a target."""
        found = self._instances.get(asked) if asked else {}
        others: dict[str, str] = dict.fromkeys(sorted(asked - found.keys()), UNLISTED)
        running: dict[str, InstanceTypeDef] = {}
        seen: dict[str, InstanceTypeDef] = {}
        for key, instance in found.items():
            state = instance.get("State", {}).get("Name", "")
            if instance.get("VpcId") != vpc or state in _ON_THEIR_WAY_OUT:
                continue
            seen[key] = instance
            if state == "running":
                running[key] = instance
            else:
                others[key] = state
        return _Targets(running, asked, others, seen)

    def _wait_for(self, asked: Identity, left: Mapping[str, str]) -> None:
        """Raise `RetryError` where machines of the Service's nodes could not become targets: less
        and less often, as some never will."""
        if not left:
            self._waits.pop(asked.uid, None)
            return
        first, most = MISSING_SECONDS
        seconds = self._waits[asked.uid] = min(most, 2 * self._waits.get(asked.uid, first / 2))
        shown = ", ".join(f"{key} ({why})" for key, why in sorted(left.items())[:5])
        more = f" and {len(left) - 5} more" if len(left) > 5 else ""
        raise RetryError(
            f"{shown}{more}: no targets of {asked.name} yet, though nodes of the cluster. A node that never can be "
            "one needs the label node.kubernetes.io/exclude-from-external-load-balancers",
            seconds,
        )

    def _rules(
        self, wanted: Plan, vpc: str, zones: Mapping[str, str], subnets: Sequence[Subnet] = ()
    ) -> frozenset[IngressRule]:
        """What the nodes must let in, of a load balancer in these zones, and in those subnets from
        now on."""
        if not self._config.manage_security_groups:
            return frozenset()
        known = {one.id: one.cidr for one in subnets if one.zone not in zones or one.id in zones.values()}
        if others := set(zones.values()) - known.keys():
            known |= {one.id: one.cidr for one in self._subnets.with_ids(others)}
        sources = self._subnets.ranges_of_vpc(vpc) if wanted.sources is None else wanted.sources
        return frozenset(rules_of(wanted, known.values(), sources))

    def _open(self, wanted: Plan, rules: Collection[IngressRule], targets: _Targets) -> None:
        """Have the nodes let the traffic in."""
        if self._config.manage_security_groups:
            self._security.ensure(wanted, rules, targets.seen.values(), is_all=targets.is_all)

    def _close(self, asked: Identity) -> None:
        """Take the rules away, also where they are no more managed: what was opened is not left
        open."""
        try:
            self._security.remove(asked)
        except ClientError as exc:
            if self._config.manage_security_groups or error_code(exc) not in DENIED:
                raise
            logger.warning(
                "%s: rules that this program made before manage_security_groups was set to false are left, as AWS "
                "does not allow it to remove them (%s): remove them yourself: %s",
                asked.service, error_code(exc), self._security.names_of_rules(asked),
            )  # fmt: skip

    def _leftovers(self, asked: Identity) -> bool:
        """Whether anything of a load balancer that is gone is still there."""
        if self._groups.of(asked):
            return True
        return bool(self._security.names_of_rules(asked))


def _chosen(nodes: Iterable[V1Node], labels: Mapping[str, str]) -> list[V1Node]:
    """The nodes with these labels."""
    return [node for node in nodes if labels.items() <= labels_of(node).items()]


def _left_out(targets: _Targets, registered: Mapping[str, Registered]) -> dict[str, str]:
    """The machines that are in none of the target groups, or not in all, and why."""
    everywhere = [{instance for instance, _ in one} for one in registered.values()]
    return {key: why for key, why in targets.others.items() if not all(key in one for one in everywhere)}


def _hostnames(status: V1LoadBalancerStatus | None) -> set[str]:
    return {one.hostname or "" for one in (status and status.ingress) or ()}


def _ready(balancer: Balancer) -> V1LoadBalancerStatus:
    if balancer.state == "provisioning":
        raise RetryError(f"AWS is building {balancer.name}", PROVISIONING_SECONDS)
    if balancer.state == "failed":
        raise CloudProviderError(f"AWS could not build {balancer.name}: {balancer.reason or 'it gave no reason'}")
    return _status(balancer)


def _status(balancer: Balancer) -> V1LoadBalancerStatus:
    """Without an address until it works: its name would not be found before."""
    if balancer.state in ("provisioning", "failed") or not balancer.hostname:
        return V1LoadBalancerStatus()
    return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(hostname=balancer.hostname)])
