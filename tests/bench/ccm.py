"""Our manager over the in-memory cloud of the benchmarks, the counterpart of `goccm/main.go`: same answers and latency.

`python -m tests.bench.ccm --cloud-provider=bench --cloud-config=FILE ...`; the file is JSON: `latencyMs`, `batch`.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cloudprovider import (
    CloudConfig,
    CloudProviderError,
    InstanceMetadata,
    InstancesBatch,
    InstanceState,
    InstancesV2,
    Interface,
    register_cloud_provider,
)

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

NAME = "bench"


class BenchCloud(Interface, InstancesV2, InstancesBatch):
    """Knows every node name at once, after `latency` seconds."""

    def __init__(self, latency: float, batch: bool) -> None:
        self._latency = latency
        self._batch = batch

    def provider_name(self) -> str:
        return NAME

    def instances_v2(self) -> InstancesV2:
        return self

    def instances_batch(self) -> InstancesBatch | None:
        return self if self._batch else None

    def instance_exists(self, node: V1Node) -> bool:
        self._wait()
        return True

    def instance_shutdown(self, node: V1Node) -> bool:
        self._wait()
        return False

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        self._wait()
        return metadata_of(_name(node))

    def instances_metadata(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceMetadata | CloudProviderError]:
        self._wait()
        return {name: metadata_of(name) for name in map(_name, nodes)}

    def instances_state(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceState | CloudProviderError]:
        self._wait()
        return dict.fromkeys(map(_name, nodes), InstanceState.RUNNING)

    def _wait(self) -> None:
        if self._latency:
            time.sleep(self._latency)  # the cloud's answer is on its way: this is the work that is measured


def metadata_of(name: str) -> InstanceMetadata:
    """What both clouds of the benchmark answer for a node."""
    from kubernetes.client.models.v1_node_address import V1NodeAddress

    number = zlib.crc32(name.encode())
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return InstanceMetadata(
        provider_id=f"{NAME}://{name}",
        instance_type="standard-4",
        node_addresses=(
            V1NodeAddress(type="InternalIP", address=address),
            V1NodeAddress(type="Hostname", address=name),
        ),
        zone="zone-a",
        region="region-1",
    )


def new_provider(config: CloudConfig | None) -> BenchCloud:
    """The factory behind the name `bench`."""
    settings = json.loads(config.data) if config else {}
    return BenchCloud(settings.get("latencyMs", 0) / 1000, settings.get("batch", True))


def _name(node: V1Node) -> str:
    assert node.metadata is not None
    return node.metadata.name or ""


if __name__ == "__main__":
    from controllers.app import main

    register_cloud_provider(NAME, new_provider)
    sys.exit(main(default_provider=NAME))
