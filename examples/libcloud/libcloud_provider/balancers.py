"""What is known of libcloud's load balancer drivers: a table, and what each can carry.

They share `create_balancer`, `balancer_attach_member` and so on, which is less than it seems: a
balancer has one port, members are machines for one driver and addresses for another, and the port
on the machines may not be another one. What a driver cannot do is refused before anything is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen
from kubernetes.client.models.v1_service import V1Service
from kubernetes.client.models.v1_service_spec import V1ServiceSpec
from libcloud.loadbalancer.base import DEFAULT_ALGORITHM, Member
from libcloud.loadbalancer.drivers import elb
from libcloud.loadbalancer.types import MemberCondition
from libcloud.utils import xml

from cloudprovider.errors import InvalidService
from cloudprovider.helpers import (
    allows_everyone,
    load_balancer_source_ranges,
    needs_health_check,
    ports_of,
)
from libcloud_provider.machines import Machine
from libcloud_provider.profiles import NO_LOGIN

_PAGE = 100


@frozen
class Port:
    """One port of a load balancer: a balancer of libcloud's."""

    name: str
    port: int
    protocol: str
    """The driver's word."""
    node_port: int


@frozen(kw_only=True)
class BalancerProfile:
    """One driver."""

    protocols: Mapping[str, str] = {"TCP": "tcp"}
    """The driver's words, by Kubernetes' protocols."""
    by_address: bool = False
    """Members are addresses with ports; otherwise machines by their IDs."""
    same_port: bool = False
    """Traffic arrives at the machines on the port that it was sent to."""
    several: bool = False
    """Balancers of one Service can share an address, so that it may have several ports."""
    page: int = 0
    """How many balancers a listing has at most, where the driver reads one page; 0: any number."""
    listed: Callable[[Any], Sequence[Any]] = lambda driver: driver.list_balancers()
    create: Callable[[Any, Port, list[Any], Any, Mapping[str, Any]], Any] | None = None
    """(driver, port, members, a balancer to share the address with, options): the new balancer."""
    destroy: Callable[[Any, Any], object] = lambda driver, balancer: driver.destroy_balancer(balancer)
    attach: Callable[[Any, Any, Any], object] = lambda driver, balancer, member: driver.balancer_attach_member(
        balancer, member
    )
    node_port: Callable[[Any, Any], int | None] = lambda driver, balancer: None
    """The port on the machines that a balancer has for all of them; None: its members have it."""
    keeps_last: bool = False
    """The last member cannot be removed, only disabled."""
    limits: str = ""
    """For the docs: what else it does not do."""
    refused: str = ""
    """Why this driver cannot be used here."""


def _create(driver: Any, port: Port, members: list[Any], share: Any, options: Mapping[str, Any]) -> Any:
    return driver.create_balancer(
        name=port.name, port=port.port, protocol=port.protocol, algorithm=DEFAULT_ALGORITHM, members=members, **options
    )


def _create_cloudstack(driver: Any, port: Port, members: list[Any], share: Any, options: Mapping[str, Any]) -> Any:
    return _create(driver, port, members, share, {**options, "private_port": port.node_port})


def _create_rackspace(driver: Any, port: Port, members: list[Any], share: Any, options: Mapping[str, Any]) -> Any:
    vip = {"vip": share.extra["virtualIps"][0]["id"]} if share is not None else {}
    return driver.ex_create_balancer(
        port.name, members, protocol=port.protocol, port=port.port, algorithm=DEFAULT_ALGORITHM, **{**options, **vip}
    )


def _create_elb(driver: Any, port: Port, members: list[Any], share: Any, options: Mapping[str, Any]) -> Any:
    made = _create(driver, port, [], share, options)  # it registers no members
    for member in members:
        driver.balancer_attach_compute_node(made, member)
    return made


def _rackspace_pages(driver: Any) -> Sequence[Any]:
    found: list[Any] = []
    while True:
        page = driver.list_balancers(ex_params={"limit": _PAGE, "offset": len(found)})
        found += page
        if len(page) < _PAGE:
            return found


def _classic_pages(driver: Any) -> Sequence[Any]:
    """The driver's own listing reads one page, and no port."""
    untyped: Any = xml
    found: list[Any] = []
    marker = ""
    while True:
        params = {"Action": "DescribeLoadBalancers", **({"Marker": marker} if marker else {})}
        answer = driver.connection.request(elb.ROOT, params=params).object
        result = untyped.findall(answer, "DescribeLoadBalancersResult", elb.NS)
        if not result:
            raise ValueError("the answer is no list of load balancers")
        for element in untyped.findall(result[0], "LoadBalancerDescriptions/member", elb.NS):
            balancer = driver._to_balancer(element)
            balancer.port = untyped.findtext(element, "ListenerDescriptions/member/Listener/LoadBalancerPort", elb.NS)
            found.append(balancer)
        marker = untyped.findtext(result[0], "NextMarker", elb.NS)
        if not marker:
            return found


def _release_address(driver: Any, balancer: Any) -> None:
    # The driver deletes the rule and then the address: in between, nothing would name the address.
    # An address that is released takes its rules along.
    driver._async_request(command="disassociateIpAddress", params={"id": balancer.ex_public_ip_id}, method="GET")


BALANCERS: Mapping[str, BalancerProfile] = {
    "alb": BalancerProfile(refused="it carries HTTP and HTTPS alone, and Services are TCP and UDP"),
    "aliyun_slb": BalancerProfile(refused="it reads one page of load balancers, without saying so"),
    "brightbox": BalancerProfile(refused=NO_LOGIN),
    "cloudstack": BalancerProfile(
        page=500,
        create=_create_cloudstack,
        destroy=_release_address,
        node_port=lambda driver, balancer: int(balancer.ex_private_port),
        limits="a creation that is interrupted may leave a public address without rules",
    ),
    "dimensiondata": BalancerProfile(refused="it leaves pool and nodes behind when a load balancer is deleted"),
    "elb": BalancerProfile(
        same_port=True,
        listed=_classic_pages,
        create=_create_elb,
        attach=lambda driver, balancer, member: driver.balancer_attach_compute_node(balancer, member),
        limits="`ex_members_availability_zones` under `options`: the letters of the zones; else zone a",
    ),
    "gce": BalancerProfile(refused="it leaves the target pool behind when a deletion is interrupted"),
    "ninefold": BalancerProfile(refused="this cloud was closed"),
    "nttcis": BalancerProfile(refused="it leaves pool and nodes behind when a load balancer is deleted"),
    "rackspace": BalancerProfile(
        protocols={"TCP": "tcp", "UDP": "udp"},
        by_address=True,
        several=True,
        listed=_rackspace_pages,
        create=_create_rackspace,
        keeps_last=True,
    ),
}


def balancer_profile_of(driver: str) -> BalancerProfile:
    """The driver's entry. A driver that this table does not know is refused."""
    return BALANCERS.get(driver, BalancerProfile(refused="nobody has read yet what it does"))


def created(
    profile: BalancerProfile, driver: Any, port: Port, members: list[Any], share: Any, options: Mapping[str, Any]
) -> Any:
    """Have the driver build a balancer."""
    return (profile.create or _create)(driver, port, members, share, options)


def plan(driver: str, profile: BalancerProfile, name: str, service: V1Service) -> tuple[Port, ...]:
    """The balancers of a Service. Raises `InvalidService` with all that this driver cannot do."""
    problems = list(_problems(driver, profile, service))
    if problems:
        raise InvalidService(*problems)
    return tuple(
        Port(name=own, port=port.port, protocol=profile.protocols[port.protocol], node_port=node_port)
        for port, (own, node_port) in zip(ports_of(service), named_ports(profile, name, service), strict=True)
    )


def named_ports(profile: BalancerProfile, name: str, service: V1Service) -> list[tuple[str, int]]:
    """The name of each balancer, and the port on the machines; nothing is refused here."""
    return [
        (
            f"{name}-{port.port}-{port.protocol.lower()}" if profile.several else name,
            port.port if profile.same_port else port.node_port,
        )
        for port in ports_of(service)
        if port.protocol in profile.protocols
    ]


def member_of(profile: BalancerProfile, machine: Machine, node_port: int) -> Any:
    """The machine as a libcloud member; None where it has no address that the driver could use."""
    address = next((one for one in (*machine.private, *machine.public) if "." in one), None)
    if address is None and profile.by_address:
        return None
    kind: Any = Member
    return kind(id=None if profile.by_address else machine.parts.id, ip=address, port=node_port)


def key_of(profile: BalancerProfile, member: Any) -> tuple[str, int]:
    """What two members that are the same have in common."""
    return (str(member.ip), int(member.port)) if profile.by_address else (str(member.id), 0)


def is_disabled(member: Any) -> bool:
    """Whether the member gets no traffic."""
    return bool((member.extra or {}).get("condition") == MemberCondition.DISABLED)


def _problems(driver: str, profile: BalancerProfile, service: V1Service) -> Iterator[str]:
    spec = service.spec or V1ServiceSpec()
    shown = f"libcloud's load balancer driver {driver}"
    ports = ports_of(service)
    if len(ports) > 1 and not profile.several:
        yield f"{shown} gives each port an address of its own: use one Service for each of the {len(ports)} ports"
    for port in ports:
        if port.protocol not in profile.protocols:
            yield f"port {port.port}/{port.protocol}: {shown} knows {' and '.join(profile.protocols)}"
        elif not port.node_port:
            yield f"port {port.port}/{port.protocol} has no node port: set allocateLoadBalancerNodePorts"
        elif profile.same_port and port.port != port.node_port:
            yield (
                f"port {port.port}/{port.protocol}: {shown} cannot send to another port of the machines: "
                f"set port and nodePort to the same number"
            )
    try:
        ranges = load_balancer_source_ranges(service)
    except ValueError as exc:
        yield str(exc)
    else:
        # All balancers here are of IPv4: a range of IPv6 says nothing about their clients.
        everyone = allows_everyone(one for one in ranges if one.version == 4)
        if not everyone and "IPv4" in (spec.ip_families or ["IPv4"]):
            yield f"{shown} cannot limit who connects: remove loadBalancerSourceRanges, or use a NetworkPolicy"
    if spec.session_affinity == "ClientIP":
        yield f"{shown} has no session affinity: set sessionAffinity to None"
    if needs_health_check(service):
        yield f"{shown} does not ask nodes whether they have endpoints: set externalTrafficPolicy to Cluster"
    if spec.load_balancer_ip:
        yield f"{shown} cannot be asked for an address: remove loadBalancerIP"
    if spec.ip_families and "IPv4" not in spec.ip_families:
        yield f"{shown} has IPv4 alone, and spec.ipFamilies has no IPv4"
