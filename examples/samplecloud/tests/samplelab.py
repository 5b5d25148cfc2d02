"""What the conformance tests do to the cloud, which is one JSON file: make and stop machines, break
it, look inside."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import evolve
from kubernetes.client.models import (
    V1FlexPersistentVolumeSource,
    V1Node,
    V1ObjectMeta,
    V1PersistentVolume,
    V1PersistentVolumeSpec,
)
from samplecloud_provider.cloud import Cloud, Disk, Instance
from samplecloud_provider.volumes import DRIVER
from typing_extensions import override

from cloudprovider import CloudConfig
from cloudprovider.helpers import parse_provider_id, provider_id_of
from cloudprovider.testing.conformance import BalancerFacts, Lab, new_node

MACHINE = "this-machine"
"""The machine that the provider runs on, by its configuration."""


class SampleLab(Lab):
    """Every hook that this cloud can serve."""

    deadline = 0.3  # its requests are quick
    secrets = ("vpc-0123456789",)  # as an API key would be

    def __init__(self, state: Path) -> None:
        self.state = state
        self.cloud = Cloud(state_file=str(state), clusters={"conformance": "10.0.0.10"})

    @override
    def config(self) -> CloudConfig:
        text = json.dumps({"state_file": str(self.state), "vpc": self.secrets[0], "machine": MACHINE})
        return CloudConfig(path="", data=text.encode())

    @override
    def create_machine(self, name: str) -> V1Node:
        with self.cloud.document() as document:
            number = len(document.instances)
            document.instances[f"i-{name}"] = Instance(
                f"i-{name}", name, "north-1", "north", "small", ["10.0.0.1"], pod_cidrs=[f"10.240.{number}.0/24"]
            )
        return new_node(name)

    @override
    def local_machine(self) -> V1Node:
        return self.create_machine(MACHINE)

    @override
    def rename_machine(self, node: V1Node, name: str) -> None:
        with self.cloud.document() as document:
            key = _instance(node)
            document.instances[key] = evolve(document.instances[key], name=name)

    @override
    def stop_machine(self, node: V1Node) -> None:
        with self.cloud.document() as document:
            key = _instance(node)
            document.instances[key] = evolve(document.instances[key], running=False)

    @override
    def start_machine(self, node: V1Node) -> None:
        with self.cloud.document() as document:
            key = _instance(node)
            document.instances[key] = evolve(document.instances[key], running=True)

    @override
    def refused_annotations(self) -> Mapping[str, str]:
        return {"samplecloud.example/algorithm": "by-the-moon"}

    @override
    def delete_machine(self, node: V1Node) -> None:
        with self.cloud.document() as document:
            del document.instances[_instance(node)]

    @override
    def ssh_keys(self, node: V1Node, user: str) -> Collection[bytes]:
        with self.cloud.document() as document:
            entries = [entry.split(maxsplit=1) for entry in document.instances[_instance(node)].ssh_keys]
        return [line.encode() for owner, line in entries if owner == user]

    @override
    @contextmanager
    def outage(self, after: int = 0) -> Iterator[None]:
        if after:  # every call of this provider is one request
            yield
            return
        kept = self.state.read_text()
        self.state.write_text("no JSON")
        try:
            yield
        finally:
            self.state.write_text(kept)

    @override
    @contextmanager
    def hang(self) -> Iterator[None]:
        with self.state.with_name(f"{self.state.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @override
    def create_volume(self) -> V1PersistentVolume:
        with self.cloud.document() as document:
            document.disks["d-1"] = Disk("d-1", ["north-1", "north-2"], "north")
        source = V1FlexPersistentVolumeSource(driver=DRIVER, options={"disk": "d-1"})
        return V1PersistentVolume(metadata=V1ObjectMeta(name="pv-1"), spec=V1PersistentVolumeSpec(flex_volume=source))

    @override
    def delete_volume(self, volume: V1PersistentVolume) -> None:
        with self.cloud.document() as document:
            del document.disks["d-1"]

    @override
    def resources(self) -> Collection[str]:
        with self.cloud.document() as document:
            return list(document.balancers)

    @override
    def load_balancer(self, name: str) -> BalancerFacts | None:
        found = self.cloud.balancer(name)
        if found is None:
            return None
        ports = [port.replace("->", "/").split("/") for port in found.ports]
        return BalancerFacts(
            ports=[(int(port), protocol, int(node_port)) for port, protocol, node_port in ports],
            targets=[f"samplecloud://{target}" for target in found.targets],
            source_ranges=found.allowed,
        )


def _instance(node: V1Node) -> str:
    if provider_id_of(node):
        return parse_provider_id(provider_id_of(node)).instance
    assert node.metadata is not None
    return f"i-{node.metadata.name}"
