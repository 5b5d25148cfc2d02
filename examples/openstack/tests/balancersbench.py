"""What the tests of load balancers share: a cluster on the double, and on OpenStack's own services.

pytest_plugins = ["balancersbench", "tests.lab.openstack.fixtures"]
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar
from uuid import uuid4

from attrs import define, field
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress
from kubernetes.client.models.v1_node_status import V1NodeStatus
from kubernetes.client.models.v1_service import V1Service
from kubernetes.client.models.v1_service_status import V1ServiceStatus
from openstack.connection import Connection
from openstack_provider.cloud import Cloud
from openstack_provider.config import Config
from openstack_provider.loadbalancer import OpenStackLoadBalancers
from openstack_provider.rest import ask
from openstackdouble import Double

from cloudprovider import CloudConfig, RetryError
from cloudprovider.helpers import internal_ips
from cloudprovider.testing.conformance.lab import new_node, new_service
from tests.lab.openstack.cloud import OpenStack

CLUSTER = "lab"
PATIENCE = 900.0
NO_CALLS = re.compile(r"/v3|/v2\.0/?$|:\d+/?$|/(neutron|octavia)/?$")
"""Logins, and what openstacksdk asks once to find out the versions."""
PREFIX = "loadbalancer.openstack.org/"
T = TypeVar("T")


@define
class Bench:
    """A cluster on the double, or on the services."""

    cloud: Double | OpenStack
    nodes: list[V1Node]
    sdk: Connection
    asked: list[tuple[str, str]] = field(factory=list)
    """What managers asked: method and URL."""
    services: list[tuple[OpenStackLoadBalancers, V1Service]] = field(factory=list)

    def manager(self, settings: str = "", uid: str = "cluster-1") -> OpenStackLoadBalancers:
        """The provider of a cluster, as after a restart. `settings` are of [LoadBalancer]."""
        cloud = login(self.cloud, settings)
        http: Any = cloud.sdk.session.session
        http.hooks["response"].append(lambda answer, **_: self.asked.append((answer.request.method, answer.url)))
        made = OpenStackLoadBalancers(cloud)
        made.start(uid)
        return made

    def service(self, manager: OpenStackLoadBalancers, name: str = "", /, **more: Any) -> V1Service:
        """A Service that is deleted in the end."""
        made = new_service(name or f"s-{uuid4().hex[:8]}", str(uuid4()), **more)
        self.services.append((manager, made))
        return made

    def ensure(self, manager: OpenStackLoadBalancers, service: V1Service, nodes: Sequence[V1Node] = ()) -> list[str]:
        """Until it is there, and its status published. Returns its addresses."""
        status = self.patiently(lambda: manager.ensure_load_balancer(CLUSTER, service, nodes or self.nodes[:2]))
        service.status = V1ServiceStatus(load_balancer=status)
        return [one.ip or one.hostname or "" for one in status.ingress or ()]

    def update(self, manager: OpenStackLoadBalancers, service: V1Service, nodes: Sequence[V1Node]) -> None:
        self.patiently(lambda: manager.update_load_balancer(CLUSTER, service, nodes))

    def delete(self, manager: OpenStackLoadBalancers, service: V1Service) -> None:
        self.patiently(lambda: manager.ensure_load_balancer_deleted(CLUSTER, service))

    def octavia(self, path: str, method: str = "GET", body: Any = None) -> Any:
        return ask(self.sdk.load_balancer, method, f"/lbaas/{path}", body=body)

    def neutron(self, path: str, method: str = "GET", body: Any = None) -> Any:
        found = ask(self.sdk.network, method, f"/{path}", body=body)
        return next((one for key, one in found.items() if not key.endswith("_links")), None)

    def balancers(self, service: V1Service) -> list[Any]:
        assert service.metadata is not None
        found: list[Any] = self.octavia(f"loadbalancers?name=kube_service_{CLUSTER}_default_{service.metadata.name}")[
            "loadbalancers"
        ]
        return found

    def balancer(self, service: V1Service) -> Any:
        [found] = self.balancers(service)
        return found

    def members(self, balancer: str) -> dict[str, set[tuple[str, int]]]:
        """By the pool's name: addresses and ports."""
        pools = self.octavia(f"pools?loadbalancer_id={balancer}")["pools"]
        return {
            one["name"]: {
                (member["address"], member["protocol_port"])
                for member in self.octavia(f"pools/{one['id']}/members")["members"]
            }
            for one in pools
        }

    def settled(self, balancer: str) -> None:
        end = time.monotonic() + PATIENCE
        while self.octavia(f"loadbalancers/{balancer}")["loadbalancer"]["provisioning_status"] != "ACTIVE":
            assert time.monotonic() < end, balancer
            self.pause(1.0)

    def gone(self, balancer: str) -> None:
        """Wait until Octavia has deleted it."""
        end = time.monotonic() + PATIENCE
        while any(one["id"] == balancer for one in self.octavia("loadbalancers")["loadbalancers"]):
            assert time.monotonic() < end, balancer
            self.pause(1.0)

    def pause(self, seconds: float) -> None:
        """The double is as fast as it is asked."""
        if isinstance(self.cloud, OpenStack):
            time.sleep(seconds)

    def patiently(self, call: Callable[[], T]) -> T:
        """As the host does: again after the delay that the error names."""
        end = time.monotonic() + (PATIENCE if isinstance(self.cloud, OpenStack) else 10.0)
        while True:
            try:
                return call()
            except RetryError as error:
                if time.monotonic() > end:
                    raise
                self.pause(min(error.retry_after, 5.0))

    def left(self) -> set[str]:
        """All that a load balancer may leave."""
        ports = {one["name"] for one in self.neutron("ports") if "octavia" in one["name"]}
        groups = {one["name"] for one in self.neutron("security-groups")} - {"default"}
        floating = {one["floating_ip_address"] for one in self.neutron("floatingips")}
        return ports | groups | floating | {one["name"] for one in self.octavia("loadbalancers")["loadbalancers"]}


def login(cloud: Double | OpenStack, settings: str = "") -> Cloud:
    text = (
        f"[Global]\nauth-url={cloud.auth_url}\nusername={cloud.user}\npassword={cloud.password}\n"
        f"tenant-name={cloud.project}\ndomain-id=default\nregion={cloud.region}\n"
        f"[Metadata]\nrequest-timeout=180\n[LoadBalancer]\n{settings}\n"
    )
    return Cloud.of(Config.load(CloudConfig("", text.encode())))


def a_node(name: str, server: str, address: str) -> V1Node:
    node = new_node(name, f"openstack:///{server}")
    addresses = [V1NodeAddress(type="InternalIP", address=address)] if address else []
    node.status = V1NodeStatus(addresses=addresses)
    return node


def address_of(node: V1Node) -> str:
    return internal_ips(node)[0]


class Counted:
    """The requests in the body of a with statement, without logins. A load balancer that is asked
    again whether it is ready counts once."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def __enter__(self) -> Counted:
        self._since = len(self._bench.asked)
        return self

    def __exit__(self, *error: object) -> None:
        asked = [one for one in self._bench.asked[self._since :] if not NO_CALLS.search(one[1])]
        self.calls = len(asked) - sum(one == following for one, following in pairwise(asked))
        self.writes = [" ".join(one) for one in asked if one[0] != "GET"]
