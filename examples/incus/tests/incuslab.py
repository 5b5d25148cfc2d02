"""What the conformance tests do to a real server."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from incus_provider.forwards import NAME
from incusserver import NETWORK, POOL, Server
from kubernetes.client.models import V1Node
from typing_extensions import override

from cloudprovider import CloudConfig
from cloudprovider.testing.conformance import BalancerFacts, HTTPLab, new_node


def config_of(server: Server, **settings: str) -> CloudConfig:
    """The cloud config of a provider for the server."""
    fields = {"url": f"unix://{server.socket}", "network": NETWORK, **settings}
    text = "".join(f"{key}: {value}\n" for key, value in fields.items())
    return CloudConfig(path="", data=f"{text}load_balancer_addresses: [{POOL}]\nroutes: true\n".encode())


class IncusLab(HTTPLab):
    """Every hook of instances, load balancers and routes."""

    deadline = 1.0  # the server is on this machine, and the provider's margin is small
    cloud_hosts = ("incus",)

    def __init__(self, server: Server) -> None:
        self.server = server

    @override
    def config(self) -> CloudConfig:
        return config_of(self.server)

    @override
    def create_machine(self, name: str) -> V1Node:
        self.server.create(name)
        self.server.address(name)
        return new_node(name)

    @override
    def stop_machine(self, node: V1Node) -> None:
        self.server.state(_name(node), "stop")

    @override
    def start_machine(self, node: V1Node) -> None:
        self.server.state(_name(node), "start")
        self.server.address(_name(node))

    @override
    def delete_machine(self, node: V1Node) -> None:
        self.server.delete(_name(node))

    @override
    def resources(self) -> Collection[str]:
        return [str(one["listen_address"]) for one in self._forwards()]

    @override
    def load_balancer(self, name: str) -> BalancerFacts | None:
        for one in self._forwards():
            if one["config"].get(NAME) == name:
                ports = [
                    (int(port["listen_port"]), port["protocol"].upper(), int(port["target_port"]))
                    for port in one["ports"]
                ]
                return BalancerFacts(ports=ports, targets=self._ids({port["target_address"] for port in one["ports"]}))
        return None

    def _forwards(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.server.ask("GET", f"/1.0/networks/{NETWORK}/forwards?recursion=1")
        return listed

    def _ids(self, addresses: set[str]) -> list[str]:
        """The provider IDs of the instances with these addresses."""
        found = []
        for one in self.server.ask("GET", "/1.0/instances?recursion=2") if addresses else ():
            network = (one["state"] or {}).get("network") or {}
            if addresses & {each["address"] for each in network.get("eth0", {}).get("addresses", ())}:
                found.append(f"incus://default/{one['config']['volatile.uuid']}")
        return found


def _name(node: V1Node) -> str:
    assert node.metadata is not None
    return str(node.metadata.name)
