"""LoadBalancer: one or several of libcloud's balancers for each Service.

libcloud has no labels for balancers, so the name is the mark of ownership: it is made of the
Service's UID, and only balancers with this name, or this name and a port, are ever touched. Two of
one name are left alone, with an error. Everything is found again by name, so each call may be
repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service
from libcloud.loadbalancer.types import MemberCondition, State
from typing_extensions import override

from cloudprovider import CloudProviderError, LoadBalancer, RetryError, current_call
from cloudprovider.helpers import parse_ip
from libcloud_provider.balancers import (
    BalancerProfile,
    Port,
    created,
    is_disabled,
    key_of,
    member_of,
    named_ports,
    plan,
)
from libcloud_provider.cloud import Cloud
from libcloud_provider.instances import Machines, targets
from libcloud_provider.machines import Machine

BUILD_SECONDS = 5.0
"""How long to wait before a balancer that is built, changed or deleted is looked at again."""
TARGET_SECONDS = 30.0
"""How long until a machine of which the cloud said nothing is asked for again."""


class LibcloudLoadBalancers(LoadBalancer):
    """Load balancers named as `get_load_balancer_name` does by default."""

    def __init__(self, cloud: Cloud, profile: BalancerProfile, machines: Machines, options: Mapping[str, Any]) -> None:
        self._cloud = cloud
        self._profile = profile
        self._machines = machines
        self._options = options

    @override
    def get_load_balancer(self, cluster_name: str, service: V1Service) -> V1LoadBalancerStatus | None:
        found = self._found(self.get_load_balancer_name(cluster_name, service))
        return _status(found.values()) if found else None

    @override
    def check_service(self, service: V1Service) -> None:
        plan(self._cloud.driver, self._profile, "", service)

    @override
    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        name = self.get_load_balancer_name(cluster_name, service)
        ports = plan(self._cloud.driver, self._profile, name, service)
        found = self._found(name)
        machines, unknown = targets(self._machines, nodes)
        for port in ports:
            present = found.get(port.name)
            if present is not None:
                _check_state(present)
                if self._is_other(present, port):
                    self._destroy(found.pop(port.name))
            if port.name not in found:
                # A port that is added shares the address of those that are there, so these go last.
                found[port.name] = self._create(port, machines, next(iter(found.values()), None))
            self._set_members(found[port.name], port.node_port, machines, keep=bool(unknown))
        for stale in found.keys() - {port.name for port in ports}:
            self._destroy(found[stale])
        if service.status and service.status.load_balancer and service.status.load_balancer.ingress:
            _wait_for(unknown)  # else better an address with the others than none
        return _status(found[port.name] for port in ports)

    @override
    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        name = self.get_load_balancer_name(cluster_name, service)
        found = self._found(name)
        if not found:
            raise CloudProviderError(f"the load balancer {name} does not exist")  # it is ensured at once
        machines, unknown = targets(self._machines, nodes)
        wanted = dict(named_ports(self._profile, name, service))
        for own, balancer in found.items():
            self._set_members(balancer, wanted.get(own, 0), machines, keep=bool(unknown), keep_port=True)
        if found.keys() < wanted.keys():  # else the ports have changed, which ensure carries out
            raise CloudProviderError(f"{', '.join(sorted(wanted.keys() - found.keys()))} does not exist")
        _wait_for(unknown)

    @override
    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        name = self.get_load_balancer_name(cluster_name, service)
        for balancer in self._found(name).values():
            self._destroy(balancer)
        if left := self._found(name):
            raise RetryError(f"the cloud is still deleting {', '.join(sorted(left))}", BUILD_SECONDS)

    def _found(self, name: str) -> dict[str, Any]:
        """The balancers of the Service, by name. Raises where the listing may lack some: another
        one would be built beside them."""
        listed = self._cloud.ask("list load balancers", self._profile.listed)
        found: dict[str, Any] = {}
        for balancer in listed:
            own = str(balancer.name)
            if balancer.state != State.DELETED and (own == name or own.startswith(f"{name}-")):
                if own in found:
                    raise CloudProviderError(f"several load balancers are called {own}: delete all but one by hand")
                found[own] = balancer
        if not found and self._profile.page and len(listed) >= self._profile.page:
            raise CloudProviderError(
                f"the cloud has {len(listed)} load balancers or more, and libcloud's driver {self._cloud.driver} reads "
                f"no more than {self._profile.page}: it cannot be said whether {name} is there"
            )
        return found

    def _is_other(self, balancer: Any, port: Port) -> bool:
        """Whether the balancer must be rebuilt: libcloud cannot change its ports."""
        if balancer.port is not None and int(balancer.port) != port.port:
            return True
        node_port = self._profile.node_port(None, balancer)
        return node_port is not None and node_port != port.node_port

    def _create(self, port: Port, machines: Sequence[Machine], share: Any) -> Any:
        members = [
            one for machine in machines if (one := member_of(self._profile, machine, port.node_port)) is not None
        ]
        if not members and self._profile.keeps_last:
            raise RetryError("the load balancer is built as soon as there is a node to send traffic to", 30.0)
        current_call().check()
        made = self._cloud.ask(
            f"create load balancer {port.name}",
            lambda driver: created(self._profile, driver, port, members, share, self._options),
        )
        if made is None:
            raise RetryError(f"the cloud does not show the load balancer {port.name} yet", BUILD_SECONDS)
        if made.state == State.PENDING and not made.ip:
            raise RetryError(f"the load balancer {port.name} is being built", BUILD_SECONDS)
        return made

    def _set_members(
        self,
        balancer: Any,
        node_port: int,
        machines: Sequence[Machine],
        *,
        keep: bool,
        keep_port: bool = False,
    ) -> None:
        """Attach and detach what differs. `keep`: detach nothing, as it may be the machine of a
        node. `keep_port`: on the port that members have already, if there are any."""
        profile = self._profile
        listed = self._cloud.ask(
            f"list members of load balancer {balancer.name}", lambda driver: driver.balancer_list_members(balancer)
        )
        present = {key_of(profile, one): one for one in listed}
        if keep_port:
            node_port = next((int(one.port) for one in listed if one.port), node_port)
        wanted = {
            key_of(profile, one): one
            for machine in machines
            if (one := member_of(profile, machine, node_port)) is not None
        }
        for key in sorted(wanted.keys() - present.keys()):
            self._change(balancer, "attach", lambda driver, one=wanted[key]: profile.attach(driver, balancer, one))
        for key in sorted(wanted.keys() & present.keys()):
            if is_disabled(present[key]):
                self._set_condition(balancer, present[key], MemberCondition.ENABLED)
        unwanted = [] if keep else sorted(present.keys() - wanted.keys())
        if profile.keeps_last and not wanted and unwanted:
            last = present[unwanted.pop()]
            if not is_disabled(last):
                self._set_condition(balancer, last, MemberCondition.DISABLED)
        for key in unwanted:
            self._change(
                balancer, "detach", lambda driver, one=present[key]: driver.balancer_detach_member(balancer, one)
            )

    def _set_condition(self, balancer: Any, member: Any, condition: int) -> None:
        self._change(
            balancer,
            "change",
            lambda driver: driver.ex_balancer_update_member_no_poll(balancer, member, condition=condition),
        )

    def _change(self, balancer: Any, what: str, change: Any) -> None:
        """Drivers answer False where the cloud refused."""
        current_call().check()
        if self._cloud.ask(f"{what} a member of load balancer {balancer.name}", change) is False:
            raise CloudProviderError(f"the cloud refused to {what} a member of load balancer {balancer.name}")

    def _destroy(self, balancer: Any) -> None:
        current_call().check()
        answer = self._cloud.ask(
            f"delete load balancer {balancer.name}", lambda driver: self._profile.destroy(driver, balancer)
        )
        if answer is False:
            raise CloudProviderError(f"the cloud refused to delete load balancer {balancer.name}")


def _wait_for(unknown: Mapping[str, CloudProviderError]) -> None:
    """Raise `RetryError` where it is not known whether all machines are targets."""
    for name, error in unknown.items():
        more = f" and {len(unknown) - 1} other nodes" if len(unknown) > 1 else ""
        raise RetryError(f"the machine of node {name}{more} may be no target yet: {error}", TARGET_SECONDS) from error


def _check_state(balancer: Any) -> None:
    """Raises where the balancer cannot be changed now."""
    if balancer.state == State.PENDING:
        raise RetryError(f"the cloud is still working on load balancer {balancer.name}", BUILD_SECONDS)
    if balancer.state == State.ERROR:
        raise CloudProviderError(f"the cloud says that load balancer {balancer.name} is in error: see its console")


def _status(balancers: Any) -> V1LoadBalancerStatus:
    addresses = dict.fromkeys(str(one.ip) for one in balancers if one.ip)
    return V1LoadBalancerStatus(
        ingress=[
            V1LoadBalancerIngress(ip=one) if parse_ip(one) is not None else V1LoadBalancerIngress(hostname=one)
            for one in addresses
        ]
    )
