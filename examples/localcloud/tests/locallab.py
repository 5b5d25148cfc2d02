"""The cloud's daemon in this process, over the kernel in memory, and what the conformance tests do
to it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen
from kubernetes.client.models import V1Node
from localcloud.api import ApiServer
from localcloud.cloud import Cloud
from localcloud.inputs import MachineBody
from localcloud.layout import Layout
from localcloud.memory import MemoryKernel
from localcloud.model import Machine
from localcloud.ratelimit import RateLimit
from localcloud.state import State, StateFile
from typing_extensions import override

from cloudprovider import CloudConfig
from cloudprovider.helpers import parse_provider_id, provider_id_of
from cloudprovider.testing.conformance import BalancerFacts, HTTPLab, new_node

TOKEN = "t0ken-of-the-tests-9f8e7d"
LOCAL = Machine(
    id="m1", name="this-machine", type="medium", region="local", zone="local-b", address="127.0.0.1",
    state="running", created_at="2026-01-02T03:04:05Z",
)  # fmt: skip
"""The machine that the tests' requests come from, by its address."""


@frozen
class Daemon:
    """A cloud that is served, and its inside."""

    cloud: Cloud
    kernel: MemoryKernel
    server: ApiServer

    @property
    def config(self) -> CloudConfig:
        """The cloud config of a provider for it."""
        return CloudConfig(path="", data=f"url: {self.server.url}\ntoken: {TOKEN}".encode())


@contextmanager
def daemon(folder: Path, *, limit: RateLimit | None = None, local: bool = False) -> Iterator[Daemon]:
    """A daemon on a free port of this machine; with `local`, this machine is one of the cloud's."""
    layout = Layout(folder=folder)
    if local:
        StateFile(layout.state_file).save(State(machines={LOCAL.id: LOCAL}, last_machine=1))
    kernel = MemoryKernel()
    cloud = Cloud(layout, kernel, check=lambda address, check: True)
    cloud.start()
    with ApiServer(("127.0.0.1", 0), cloud, TOKEN, limit) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="api", daemon=True)
        thread.start()
        try:
            yield Daemon(cloud, kernel, server)
        finally:
            server.shutdown()
            thread.join()
            cloud.close()


class LocalLab(HTTPLab):
    """Every hook but those of volumes, which this cloud has not."""

    deadline = 0.6  # its requests are quick, and the provider's margin is small
    secrets = (TOKEN,)

    def __init__(self, made: Daemon) -> None:
        self.made = made

    @override
    def config(self) -> CloudConfig:
        return self.made.config

    @override
    def create_machine(self, name: str) -> V1Node:
        marks = {
            "taints": ["localcloud.example/gpu=a100:PreferNoSchedule"],
            "annotations": {"localcloud.example/rack": "7"},
        }
        self.made.cloud.create_machine(
            MachineBody.model_validate({"name": name, "type": "large", "zone": "local-c", **marks})
        )
        return new_node(name)

    @override
    def stop_machine(self, node: V1Node) -> None:
        self.made.cloud.stop_machine(self._id(node))

    @override
    def start_machine(self, node: V1Node) -> None:
        self.made.cloud.start_machine(self._id(node))

    @override
    def refused_annotations(self) -> Mapping[str, str]:
        return {"localcloud.example/mode": "teleport"}

    @override
    def kept_annotations(self) -> Mapping[str, str]:
        return {"localcloud.example/keep": "load-balancer"}

    @override
    def adopting_annotations(self, name: str) -> Mapping[str, str]:
        return {"localcloud.example/adopt": name}

    @override
    def delete_machine(self, node: V1Node) -> None:
        self.made.cloud.delete_machine(self._id(node))

    @override
    def local_machine(self) -> V1Node:
        return new_node(LOCAL.name)

    @override
    def ssh_keys(self, node: V1Node, user: str) -> Collection[bytes]:
        path = self.made.cloud.layout.machine_disk(self._id(node)) / "ssh" / "authorized_keys"
        return [line for line in path.read_bytes().splitlines() if line.split()[2] == user.encode()]

    @override
    def resources(self) -> Collection[str]:
        return [one.name for one in self.made.cloud.load_balancers()]

    @override
    def load_balancer(self, name: str) -> BalancerFacts | None:
        for one in self.made.cloud.load_balancers():
            if one.name == name:
                return BalancerFacts(
                    ports=[(port.port, port.protocol, port.target_port) for port in one.ports],
                    targets=[f"localcloud://{target}" for target in one.targets],
                    source_ranges=one.source_ranges,
                )
        return None

    def _id(self, node: V1Node) -> str:
        if provider_id_of(node):
            return parse_provider_id(provider_id_of(node)).instance
        assert node.metadata is not None
        assert node.metadata.name is not None
        return self.made.cloud.machines(names=[node.metadata.name])[0].machine.id
