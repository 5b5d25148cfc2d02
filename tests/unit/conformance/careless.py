"""A small provider, right in all, as the text of a module: `test_mistakes.py` makes each mistake by
one replacement."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes.client.models.v1_node import V1Node

from cloudprovider.testing.conformance import SCENARIOS, BalancerFacts, Feature, Lab, Trial, new_node
from cloudprovider.testing.conformance.bench import Bench, name_of

__all__ = ["GOOD", "FEATURES", "CarelessLab", "said_by"]

FEATURES = (
    Feature.INSTANCES_V2 | Feature.INSTANCES_BATCH | Feature.LOAD_BALANCER | Feature.SOURCE_RANGES | Feature.ROUTES
)
SECRET = "hunter2-hunter2"

GOOD = """
import threading

from kubernetes.client.models import V1LoadBalancerIngress, V1LoadBalancerStatus, V1NodeAddress

from cloudprovider import (
    CloudProviderError, InstanceMetadata, InstanceNotFound, InstancesBatch, InstanceState, InstancesV2, Interface,
    LoadBalancer, Route, Routes, Taint,
)
from cloudprovider.config import ProviderConfig
from cloudprovider.helpers import (
    load_balancer_source_ranges, node_name, parse_provider_id, ports_of, provider_id_of, time_limit,
)


class Config(ProviderConfig):
    token: str = "hunter2-hunter2"


class Cloud:
    def __init__(self):
        self.machines, self.balancers, self.routes, self.down, self.over = {}, {}, {}, False, None

    def ask(self):
        if self.over is not None:
            self.over.wait(time_limit(least=0.01, margin=0.0))
            raise CloudProviderError("no answer in time")
        if self.down:
            raise CloudProviderError("connection refused")
        return self


class Machines(InstancesV2, InstancesBatch):
    def __init__(self, cloud):
        self.cloud = cloud

    def instance_exists(self, node):
        return self.find(node) in self.cloud.ask().machines

    def instance_shutdown(self, node):
        return not self.machine(node)

    def instance_metadata(self, node):
        self.machine(node)
        address = V1NodeAddress(type="InternalIP", address="10.0.0.1")
        return InstanceMetadata(f"acme://{self.find(node)}", "small", [address], "zone-1", "region-1")

    def instances_metadata(self, nodes):
        answers = {}
        for node in nodes:
            try:
                answers[node_name(node)] = self.instance_metadata(node)
            except InstanceNotFound as error:
                answers[node_name(node)] = error
        return answers

    def instances_state(self, nodes):
        answers = {}
        for node in nodes:
            gone = not self.instance_exists(node)
            answers[node_name(node)] = InstanceState.GONE if gone else InstanceState.RUNNING
        return answers

    def find(self, node):
        if provider_id_of(node):
            parsed = parse_provider_id(provider_id_of(node))
            if parsed.provider != "acme":
                raise CloudProviderError("another provider's")
            return parsed.instance
        return node_name(node)

    def machine(self, node):
        if self.find(node) not in self.cloud.ask().machines:
            raise InstanceNotFound(f"no machine {self.find(node)}")
        return self.cloud.machines[self.find(node)]


class Balancers(LoadBalancer):
    def __init__(self, cloud):
        self.cloud = cloud

    def get_load_balancer(self, cluster_name, service):
        name = self.get_load_balancer_name(cluster_name, service)
        return self.status() if name in self.cloud.ask().balancers else None

    def ensure_load_balancer(self, cluster_name, service, nodes):
        name = self.get_load_balancer_name(cluster_name, service)
        ports = [(each.port, each.protocol, each.node_port) for each in ports_of(service)]
        ranges = [str(each) for each in load_balancer_source_ranges(service)]
        self.cloud.ask().balancers[name] = ports, [provider_id_of(node) for node in nodes], ranges
        return self.status()

    def update_load_balancer(self, cluster_name, service, nodes):
        name = self.get_load_balancer_name(cluster_name, service)
        if name not in self.cloud.ask().balancers:
            raise CloudProviderError("there is none")
        self.ensure_load_balancer(cluster_name, service, nodes)

    def ensure_load_balancer_deleted(self, cluster_name, service):
        self.cloud.ask().balancers.pop(self.get_load_balancer_name(cluster_name, service), None)

    def status(self):
        return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip="192.0.2.1")])


class Ways(Routes):
    def __init__(self, cloud):
        self.cloud = cloud

    def list_routes(self, cluster_name):
        return [Route(cidr, node, cidr) for cidr, node in self.cloud.ask().routes.items()]

    def create_route(self, cluster_name, name_hint, route):
        self.cloud.ask().routes[route.destination_cidr] = route.target_node

    def delete_route(self, cluster_name, route):
        self.cloud.ask().routes.pop(route.destination_cidr, None)


class AcmeCloud(Interface):
    def __init__(self, cloud):
        self.cloud = cloud
        self.machines, self.balancers, self.ways = Machines(cloud), Balancers(cloud), Ways(cloud)

    def provider_name(self):
        return "acme"

    def initialize(self, client_builder, stop):
        print("hello")

    def instances_v2(self) -> InstancesV2:
        return self.machines

    def instances_batch(self) -> InstancesBatch:
        return self.machines

    def load_balancer(self) -> LoadBalancer:
        return self.balancers

    def routes(self) -> Routes:
        return self.ways


CLOUD = Cloud()
CLOUD.machines["node-1"] = True


def new_provider(config):
    Config.load(config, environ={})
    return AcmeCloud(CLOUD)
"""


class CarelessLab(Lab):
    """Over the cloud of one provider's module."""

    deadline, grace, patience, poll = 0.1, 1.0, 0.2, 0.01
    secrets = (SECRET,)

    def __init__(self, module: dict[str, Any]) -> None:
        self.cloud = module["CLOUD"]

    def create_machine(self, name: str) -> V1Node:
        self.cloud.machines[name] = True
        return new_node(name)

    def delete_machine(self, node: V1Node) -> None:
        self.cloud.machines.pop(name_of(node), None)

    def resources(self) -> Collection[str]:
        return set(self.cloud.balancers)

    def load_balancer(self, name: str) -> BalancerFacts | None:
        found = self.cloud.balancers.get(name)
        return BalancerFacts(*found) if found else None

    @contextmanager
    def outage(self, after: int = 0) -> Iterator[None]:
        self.cloud.down = True
        yield
        self.cloud.down = False

    @contextmanager
    def hang(self) -> Iterator[None]:
        self.cloud.over = threading.Event()
        yield
        self.cloud.over.set()
        self.cloud.over = None


def said_by(text: str, *scenarios: str) -> str:
    """What the last of the scenarios says about the provider of this text, after the others have
    run.

    "" where it passes, "skipped: ..." where it is."""
    module: dict[str, Any] = {"__name__": "careless"}
    exec(compile(text, "careless.py", "exec"), module)
    lab = CarelessLab(module)
    bench = Bench(lab, FEATURES, lambda: module["AcmeCloud"](module["CLOUD"]), "acme")
    try:
        return [_said(bench, scenario) for scenario in scenarios][-1]
    finally:
        bench.close()


def _said(bench: Bench, scenario: str) -> str:
    try:
        with Trial(bench) as trial:
            SCENARIOS[scenario].function(None, trial)
    except pytest.skip.Exception as skipped:
        return f"skipped: {skipped}"
    except Exception as error:  # noqa: BLE001 - whatever a scenario raises is what it says
        return str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
    return ""
