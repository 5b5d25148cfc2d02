"""What the conformance suite does behind the provider's back: in the double, and in OpenStack's own
services. Both are asked by the same requests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import pytest
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress
from kubernetes.client.models.v1_node_status import V1NodeStatus
from openstack_provider.provider import new_provider
from openstackdouble import Double
from typing_extensions import override

from cloudprovider import CloudConfig
from cloudprovider.helpers import node_name
from cloudprovider.loading import registry
from cloudprovider.testing.conformance import BalancerFacts, HTTPLab, new_node
from tests.lab.openstack.cloud import OpenStack

_LBAAS = "/v2.0/lbaas"


class Cloud(Protocol):
    """What the lab needs of either."""

    @property
    def auth_url(self) -> str:
        """Keystone's."""

    user: str
    password: str
    project: str
    region: str
    subnet: str
    external: str
    router: str

    def create_server(self, name: str) -> str:
        """An active server's ID."""

    def delete_server(self, server: str) -> None:
        """End it."""

    def ask(self, method: str, service: str, path: str, json: Any = None) -> Any:
        """The answer's document."""

    def exhausted(self) -> AbstractContextManager[None]:
        """No quota in the body."""


def cloud_conf(cloud: Cloud) -> CloudConfig:
    """The cloud config that an operator would write for the cloud."""
    text = (
        f'[Global]\nauth-url = {cloud.auth_url}\nusername = {cloud.user}\npassword = "{cloud.password}"\n'
        f"tenant-name = {cloud.project}\ndomain-id = default\nregion = {cloud.region}\n"
        f"[LoadBalancer]\nsubnet-id = {cloud.subnet}\nfloating-network-id = {cloud.external}\n"
        f"[Route]\nrouter-id = {cloud.router}\n"
    )
    return CloudConfig(path="", data=text.encode())


@contextmanager
def registered() -> Iterator[None]:
    """The provider is there by its name, although nobody installs it here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_REGISTRY", registry.Registry())
        registry.register_cloud_provider("openstack", new_provider)
        yield


class CloudLab(HTTPLab):
    """Every hook that either cloud can do."""

    cloud_hosts = ("127.0.0.1",)

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.secrets = (cloud.password,)
        self.servers: dict[str, str] = {}
        """Servers' IDs by their nodes' provider IDs."""

    @override
    def config(self) -> CloudConfig:
        return cloud_conf(self.cloud)

    @override
    def create_machine(self, name: str) -> V1Node:
        self.servers[name] = self.cloud.create_server(name)
        return self._node(name, self.servers[name])

    @override
    def delete_machine(self, node: V1Node) -> None:
        if (server := self.servers.pop(self._key(node), "")) != "":
            self.cloud.delete_server(server)

    @override
    def create_twin(self, node: V1Node) -> V1Node:
        name = node_name(node)
        server = self.cloud.create_server(name)
        self.servers[f"openstack:///{server}"] = server
        return self._node(name, server, f"openstack:///{server}")

    def _node(self, name: str, server: str, provider_id: str = "") -> V1Node:
        """As a kubelet with --node-ip registers it, which is an address of the server."""
        addresses = self.cloud.ask("GET", "nova", f"/v2.1/servers/{server}")["server"]["addresses"]["nodes"]
        made = new_node(name, provider_id)
        made.status = V1NodeStatus(addresses=[V1NodeAddress(type="InternalIP", address=addresses[0]["addr"])])
        return made

    @override
    def placement(self, node: V1Node) -> tuple[str, str]:
        server = self.cloud.ask("GET", "nova", f"/v2.1/servers/{self.server(node)}")["server"]
        return server["OS-EXT-AZ:availability_zone"], self.cloud.region

    @override
    def quota(self) -> AbstractContextManager[None]:
        return self.cloud.exhausted()

    @override
    def resources(self) -> Collection[str]:
        lists = [(f"{_LBAAS}/{kind}", kind) for kind in ("loadbalancers", "listeners", "pools", "healthmonitors")]
        found = [f"{kind} {one['id']}" for path, kind in lists for one in self._listed("octavia", path, kind)]
        for kind in ("floatingips", "security-groups"):
            listed = self._listed("neutron", f"/v2.0/{kind}", kind.replace("-", "_"))
            found += [f"{kind} {one['id']}" for one in listed if one.get("name") != "default"]
        ports = self._listed("neutron", "/v2.0/ports?device_owner=Octavia", "ports")
        return [*found, *(f"ports {one['id']}" for one in ports)]

    @override
    def load_balancer(self, name: str) -> BalancerFacts | None:
        tag = f"kubernetes-service-uid={name.rpartition(':')[2]}"
        found = self._listed("octavia", f"{_LBAAS}/loadbalancers?tags={tag}", "loadbalancers")
        if not found:
            return None
        listeners = self._listed("octavia", f"{_LBAAS}/listeners?loadbalancer_id={found[0]['id']}", "listeners")
        monitors = self._listed("octavia", f"{_LBAAS}/healthmonitors", "healthmonitors")
        servers = self._servers_by_address()
        ports, targets, ranges, check = set(), set(), set(), None
        for listener in listeners:
            ranges |= set(listener["allowed_cidrs"] or ["0.0.0.0/0"])
            pool = listener["default_pool_id"]
            members = self._listed("octavia", f"{_LBAAS}/pools/{pool}/members", "members") if pool else []
            protocol = "UDP" if listener["protocol"] == "UDP" else "TCP"
            # The node port stands with the members: in an end-to-end scenario there may be none.
            node_ports = {one["protocol_port"] for one in members} or {0}
            ports |= {(listener["protocol_port"], protocol, one) for one in node_ports}
            targets |= {f"openstack:///{servers[one['address']]}" for one in members}
            paths = [one["url_path"] for one in monitors if {"id": pool} in one["pools"] and one["url_path"]]
            if paths and members:
                check = (paths[0], members[0]["monitor_port"])
        return BalancerFacts(ports, targets, ranges, check)

    def server(self, node: V1Node) -> str:
        """The ID of the node's server."""
        return self.servers[self._key(node)]

    def _key(self, node: V1Node) -> str:
        of = str((node.spec.provider_id if node.spec else "") or "")
        return of if of in self.servers else node_name(node)

    def _listed(self, service: str, path: str, kind: str) -> list[dict[str, Any]]:
        return self.cloud.ask("GET", service, path)[kind]  # type: ignore[no-any-return]

    def _servers_by_address(self) -> Mapping[str, str]:
        ports = self._listed("neutron", "/v2.0/ports", "ports")
        return {ip["ip_address"]: one["device_id"] for one in ports for ip in one["fixed_ips"]}


class ServicesLab(CloudLab):
    """OpenStack's own services, where building takes its time."""

    cloud: OpenStack
    settle = 0.0
    poll = 0.5
    patience = 900.0
    batch = 50

    @override
    def config(self) -> CloudConfig:
        """With time for a load balancer's POST, which took 39 s on a busy machine."""
        return CloudConfig("", super().config().data + b"[Metadata]\nrequest-timeout = 180\n")

    @override
    def stop_machine(self, node: V1Node) -> None:
        self._act(node, "os-stop", "SHUTOFF")

    @override
    def start_machine(self, node: V1Node) -> None:
        self._act(node, "os-start", "ACTIVE")

    def _act(self, node: V1Node, action: str, state: str) -> None:
        path = f"/v2.1/servers/{self.server(node)}"
        self.cloud.ask("POST", "nova", f"{path}/action", {action: None})
        self.cloud.wait(lambda: self.cloud.ask("GET", "nova", path)["server"]["status"] == state, f"{action} of {path}")

    @override
    def rename_machine(self, node: V1Node, name: str) -> None:
        self.cloud.ask("PUT", "nova", f"/v2.1/servers/{self.server(node)}", {"server": {"name": name}})


class DoubleLab(CloudLab):
    """The double, which can do what no real cloud is made to do."""

    cloud: Double
    poll = 0.01
    deadline = 1.0
    page = 3
    states = ("BUILD", "ERROR", "PAUSED", "RESCUE", "REBOOT", "VERIFY_RESIZE", "MIGRATING")

    def __init__(self, cloud: Double) -> None:
        super().__init__(cloud)
        cloud.nova.page = self.page

    @override
    def stop_machine(self, node: V1Node) -> None:
        self.cloud.nova.set_state(self.server(node), "SHUTOFF")

    @override
    def start_machine(self, node: V1Node) -> None:
        self.cloud.nova.set_state(self.server(node), "ACTIVE")

    @override
    def set_state(self, node: V1Node, state: str) -> None:
        self.cloud.nova.set_state(self.server(node), state)

    @override
    def rename_machine(self, node: V1Node, name: str) -> None:
        self.cloud.nova.servers[self.server(node)]["name"] = name

    @override
    @contextmanager
    def unlisted(self, node: V1Node) -> Iterator[None]:
        self.cloud.nova.hidden.add(self.server(node))
        yield
        self.cloud.nova.hidden.discard(self.server(node))

    @override
    def end_tokens(self) -> None:
        self.cloud.end_tokens()

    @override
    @contextmanager
    def builds_slowly(self) -> Iterator[None]:
        self.cloud.octavia.held = True
        yield
        self.cloud.octavia.held = False
