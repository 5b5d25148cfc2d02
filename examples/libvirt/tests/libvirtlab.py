"""What the conformance tests do to a real libvirtd."""

from __future__ import annotations

from contextlib import AbstractContextManager

from kubernetes.client.models import V1Node
from libvirtserver import Server
from typing_extensions import override

from cloudprovider import CloudConfig
from cloudprovider.testing.conformance import Lab, new_node


class LibvirtLab(Lab):
    """Every hook of instances."""

    deadline = 1.0  # the daemon is on this machine, and the provider's margin is small

    def __init__(self, server: Server) -> None:
        self.server = server

    @override
    def config(self) -> CloudConfig:
        return CloudConfig(path="", data=f"hosts: {{host-a: '{self.server.uri}'}}\nregion: lab\n".encode())

    @override
    def create_machine(self, name: str) -> V1Node:
        self.server.create(name)
        return new_node(name)

    @override
    def stop_machine(self, node: V1Node) -> None:
        self.server.stop(_name(node))

    @override
    def delete_machine(self, node: V1Node) -> None:
        self.server.delete(_name(node))

    @override
    def outage(self, after: int = 0) -> AbstractContextManager[None]:
        return self.server.relay.outage(after)

    @override
    def hang(self) -> AbstractContextManager[None]:
        return self.server.relay.hang()


def _name(node: V1Node) -> str:
    assert node.metadata is not None
    return str(node.metadata.name)
