"""Our manager over the in-memory cloud of the benchmarks, the counterpart of `goccm/main.go`: same
answers and latency.

`python -m tests.lab.bench.ccm --cloud-provider=bench --cloud-config=FILE ...`; the file is JSON:
`latencyMs`, `batch`, `gonePrefix`, `zones` (so many in place of one), `goneZone`: a file that names
the zone that is gone as soon as there is such a file, `balancers`: a folder that processes share,
with a file for each load balancer, and `journal`: a file in which every call is written down as it
ends, which `witness.py` reads.
"""

from __future__ import annotations

import json
import os
import string
import sys
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cloudprovider import (
    CloudConfig,
    CloudProviderError,
    InstanceMetadata,
    InstancesBatch,
    InstanceState,
    InstancesV2,
    Interface,
    LoadBalancer,
    Route,
    Routes,
    register_cloud_provider,
)

if TYPE_CHECKING:
    from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_service import V1Service

R = TypeVar("R")

NAME = "bench"


class BenchCloud(Interface, InstancesV2, InstancesBatch, LoadBalancer, Routes):
    """Knows every node name, after `latency` seconds; nodes whose names begin with `gone_prefix`
    are gone."""

    def __init__(
        self,
        latency: float,
        batch: bool,
        *,
        gone_prefix: str = "",
        zones: int = 1,
        gone_zone: str = "",
        balancers: str = "",
        journal: str = "",
    ) -> None:
        self._latency = latency
        self._batch = batch
        self._gone_prefix = gone_prefix
        self._zones = zones
        self._gone_zone = Path(gone_zone) if gone_zone else None
        self._shared = Path(balancers) if balancers else None
        self._journal = os.open(journal, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600) if journal else None
        self._lock = threading.Lock()
        self._balancers: set[str] = set()
        self._routes: dict[str, Route] = {}

    def provider_name(self) -> str:
        return NAME

    def instances_v2(self) -> InstancesV2:
        return self

    def instances_batch(self) -> InstancesBatch | None:
        return self if self._batch else None

    def load_balancer(self) -> LoadBalancer:
        return self

    def routes(self) -> Routes:
        return self

    # ---- machines

    def instance_exists(self, node: V1Node) -> bool:
        name = _name(node)
        return self._call("instance_exists", [name], lambda: not self._gone(name), gone=self._all_gone([name]))

    def instance_shutdown(self, node: V1Node) -> bool:
        return self._call("instance_shutdown", [_name(node)], lambda: False)

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        found = metadata_of(_name(node), self._zones)
        return self._call("instance_metadata", [_name(node)], lambda: found)

    def instances_metadata(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceMetadata | CloudProviderError]:
        found = {name: metadata_of(name, self._zones) for name in map(_name, nodes)}
        return self._call("instances_metadata", list(found), lambda: found)

    def instances_state(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceState | CloudProviderError]:
        names = list(map(_name, nodes))
        gone = self._all_gone(names)
        states = dict.fromkeys(names, InstanceState.RUNNING) | dict.fromkeys(gone, InstanceState.GONE)
        return self._call("instances_state", names, lambda: states, gone=gone)

    def _gone(self, name: str) -> bool:
        return bool(self._all_gone([name]))

    def _all_gone(self, names: Sequence[str]) -> list[str]:
        file, prefix = self._gone_zone, self._gone_prefix
        zone = file.read_text() if file is not None and file.exists() else None
        return [name for name in names if (prefix and name.startswith(prefix)) or zone_of(name, self._zones) == zone]

    # ---- load balancers

    def get_load_balancer(self, cluster_name: str, service: V1Service) -> V1LoadBalancerStatus | None:
        name = self.get_load_balancer_name(cluster_name, service)

        def answer() -> V1LoadBalancerStatus | None:
            there = name in self._balancers or (self._shared is not None and (self._shared / name).exists())
            return _status(name) if there else None

        return self._call("get_load_balancer", [_key(service)], answer)

    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        name = self.get_load_balancer_name(cluster_name, service)

        def build() -> V1LoadBalancerStatus:
            self._balancers.add(name)
            if self._shared is not None:
                (self._shared / name).touch()
            return _status(name)

        return self._call("ensure_load_balancer", [_key(service)], build, nodes=len(nodes))

    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        self._call("update_load_balancer", [_key(service)], lambda: None, nodes=len(nodes))

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        name = self.get_load_balancer_name(cluster_name, service)

        def delete() -> None:
            self._balancers.discard(name)
            if self._shared is not None:
                (self._shared / name).unlink(missing_ok=True)

        self._call("ensure_load_balancer_deleted", [_key(service)], delete)

    # ---- routes

    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        return self._call("list_routes", [cluster_name], lambda: list(self._routes.values()))

    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        cidr = route.destination_cidr
        stored = Route(f"{name_hint}-{cidr}", route.target_node, cidr)
        self._call("create_route", [cidr], lambda: self._routes.update({cidr: stored}))

    def delete_route(self, cluster_name: str, route: Route) -> None:
        cidr = route.destination_cidr
        self._call("delete_route", [cidr], lambda: self._routes.pop(cidr, None))

    # ---- every call

    def _call(
        self, method: str, keys: list[str], answer: Callable[[], R], *, nodes: int = 0, gone: Sequence[str] = ()
    ) -> R:
        began = time.time()
        if self._latency:
            time.sleep(self._latency)  # the cloud's answer is on its way: this is the work that is measured
        with self._lock:
            found = answer()
        if self._journal is not None:
            entry = {"method": method, "began": began, "ended": time.time(), "keys": keys}
            entry |= {"gone": gone} if gone else {}
            entry |= {"nodes": nodes} if nodes else {}
            os.write(self._journal, json.dumps(entry).encode() + b"\n")  # one write a line: threads cannot mix
        return found


def zone_of(name: str, zones: int = 1) -> str:
    """The zone of a machine, of so many."""
    return f"zone-{string.ascii_lowercase[zlib.crc32(name.encode()) % zones]}"


def metadata_of(name: str, zones: int = 1) -> InstanceMetadata:
    """What both clouds of the benchmark answer for a node."""
    from kubernetes.client.models.v1_node_address import V1NodeAddress

    address = _address(10, name)
    return InstanceMetadata(
        provider_id=f"{NAME}://{name}",
        instance_type="standard-4",
        node_addresses=(
            V1NodeAddress(type="InternalIP", address=address),
            V1NodeAddress(type="Hostname", address=name),
        ),
        zone=zone_of(name, zones),
        region="region-1",
    )


def new_provider(config: CloudConfig | None) -> BenchCloud:
    """The factory behind the name `bench`."""
    settings = json.loads(config.data) if config else {}
    return BenchCloud(
        settings.get("latencyMs", 0) / 1000,
        settings.get("batch", True),
        gone_prefix=settings.get("gonePrefix", ""),
        zones=settings.get("zones", 1),
        gone_zone=settings.get("goneZone", ""),
        balancers=settings.get("balancers", ""),
        journal=settings.get("journal", ""),
    )


def _address(network: int, name: str) -> str:
    number = zlib.crc32(name.encode())
    return f"{network}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def _status(name: str) -> V1LoadBalancerStatus:
    from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
    from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus

    return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip=_address(172, name))])


def _name(node: V1Node) -> str:
    assert node.metadata is not None
    return node.metadata.name or ""


def _key(service: V1Service) -> str:
    assert service.metadata is not None
    return f"{service.metadata.namespace}/{service.metadata.name}"


if __name__ == "__main__":
    from controllers.app import main

    register_cloud_provider(NAME, new_provider)
    sys.exit(main(default_provider=NAME))
