"""The provider `fake`: a whole cloud in memory.

Wires the parts: capabilities ask the gate, the gate applies latency and faults and works on the
world. `console` is what a person does to the cloud, `faults` what goes wrong with it, `calls` what
its clients did.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from typing_extensions import override

from cloudprovider.interface import Interface
from cloudprovider.internal.output import write_whole
from cloudprovider.loading.diagnostics import ACCESSORS
from cloudprovider.testing.fake.calls import CallBook, Caller
from cloudprovider.testing.fake.config import FakeConfig, OnDemand
from cloudprovider.testing.fake.console import Console
from cloudprovider.testing.fake.faults import Faults
from cloudprovider.testing.fake.gate import Gate
from cloudprovider.testing.fake.instances import (
    FakeInstances,
    FakeInstancesBatch,
    FakeInstancesV2,
    FakeKeyedInstancesBatch,
    FakeKeyedInstancesV2,
    FakePodCIDRs,
)
from cloudprovider.testing.fake.loadbalancers import FakeLoadBalancers, FakeOwningLoadBalancers
from cloudprovider.testing.fake.machines import Machines
from cloudprovider.testing.fake.others import (
    FakeClusters,
    FakeLocalInstance,
    FakeOwnedResources,
    FakePVLabeler,
    FakeRoutes,
    FakeZones,
)
from cloudprovider.testing.fake.records import Cluster, RouteRecord, Volume, World
from cloudprovider.testing.fake.sharing import CloudClient, CloudServer

if TYPE_CHECKING:
    from cloudprovider.cloudconfig import CloudConfig
    from cloudprovider.host import ClientBuilder, StopSignal


class FakeCloud(Interface):
    """A cloud for tests and demonstrations, with every capability that `config.capabilities` names.

    Without a configuration it is empty. Thread-safe. As a context manager it closes itself.
    """

    console: Console
    """What people do to the cloud, and see there."""
    faults: Faults
    """What goes wrong with it."""
    calls: CallBook
    """What its clients asked for."""

    def __init__(self, config: FakeConfig | None = None) -> None:
        self.config = config = config or FakeConfig()
        world = _world(config)
        self.calls = CallBook(config.caller)
        self.console = Console(world, self.calls)
        self.faults = Faults(self.console)
        self._server: CloudServer | None = None
        self._remote = CloudClient(config.server, config.server_key) if config.server else None
        self._gate = gate = Gate(
            world,
            self.calls,
            self.faults,
            latency=config.latency,
            log_reads=config.log == "all",
            remote=self._remote,
        )
        machines = Machines(config, world)
        keyed = config.has("ssh_keys")
        v2 = FakeKeyedInstancesV2 if keyed else FakeInstancesV2
        batch = FakeKeyedInstancesBatch if keyed else FakeInstancesBatch
        balancers = FakeOwningLoadBalancers if config.has("owned_load_balancers") else FakeLoadBalancers
        self._instances = FakeInstances(machines, gate) if config.has("instances") else None
        self._instances_v2 = v2(machines, gate) if config.has("instances_v2") else None
        self._instances_batch = batch(machines, gate) if config.has("instances_batch") else None
        self._zones = FakeZones(machines, gate) if config.has("zones") else None
        self._balancers = balancers(machines, gate) if config.has("load_balancer") else None
        self._routes = FakeRoutes(machines, gate) if config.has("routes") else None
        self._pod_cidrs = FakePodCIDRs(machines, gate) if config.has("pod_cidrs") else None
        self._pv_labeler = FakePVLabeler(machines, gate) if config.has("pv_labeler") else None
        self._clusters = FakeClusters(machines, gate) if config.has("clusters") else None
        self._resources = FakeOwnedResources(machines, gate) if config.has("owned_resources") else None
        self._local = FakeLocalInstance(machines, gate) if config.has("local_instance") else None

    def share(self, path: Path, **fields: Any) -> Path:
        """Write a configuration file with which other processes work on this cloud: `--cloud-config`
        of `--cloud-provider=fake`.

        From now on this process answers their calls, until `close`. `fields` take the place of the
        configuration's own, as `caller` or `capabilities`, which can only be fewer. Only the user
        of this process can read the file. Returns `path`.
        """
        # One server for all files: several processes may work on the cloud.
        if self._server is None:
            self._server = CloudServer(self._answer)
        # What is left at its default stays so there: the file says what somebody chose.
        config = self.config.model_dump(mode="json", exclude_unset=True) | fields
        # Machines, routes and latency are this process's.
        for own in ("instances", "generate", "on_demand", "latency", "volumes", "clusters"):
            config.pop(own, None)
        config |= {"server": self._server.address, "server_key": self._server.key}
        # Who has the key is believed, pickles and all.
        write_whole(path, json.dumps(config, indent=2).encode(), 0o600)
        return path

    def close(self) -> None:
        """End the calls that hang, with `FakeCloudClosed`, and serve no other process any more. May
        be called twice."""
        self.faults.close()
        for part in (self._server, self._remote):
            if part is not None:
                part.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @override
    def provider_name(self) -> str:
        return self.config.provider

    @override
    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        """Counted, and open to faults: a fault on "initialize" keeps the manager from starting."""
        self._gate.carry("initialize")

    @override
    def has_cluster_id(self) -> bool:
        return self.config.has_cluster_id

    @override
    def provider_id_prefixes(self) -> tuple[str, ...]:
        return (f"{self.config.provider}://",) if self.config.provider_ids else ()

    @override
    def instances(self) -> FakeInstances | None:
        return self._instances

    @override
    def instances_v2(self) -> FakeInstancesV2 | None:
        return self._instances_v2

    @override
    def instances_batch(self) -> FakeInstancesBatch | None:
        return self._instances_batch

    @override
    def zones(self) -> FakeZones | None:
        return self._zones

    @override
    def load_balancer(self) -> FakeLoadBalancers | None:
        return self._balancers

    @override
    def routes(self) -> FakeRoutes | None:
        return self._routes

    @override
    def pod_cidrs(self) -> FakePodCIDRs | None:
        return self._pod_cidrs

    @override
    def pv_labeler(self) -> FakePVLabeler | None:
        return self._pv_labeler

    @override
    def clusters(self) -> FakeClusters | None:
        return self._clusters

    @override
    def local_instance(self) -> FakeLocalInstance | None:
        return self._local

    @override
    def owned_resources(self) -> FakeOwnedResources | None:
        return self._resources

    def _answer(self, method: str, arguments: Sequence[Any], caller: Caller) -> Any:
        """Carry out a call of another process."""
        with self.calls.calling_for(caller):
            # Of the provider itself, so that no capability has it.
            if method == "initialize":
                return self._gate.carry(method)
            # Asked here, not at construction: a subclass may answer them with what it makes later.
            parts = (getattr(self, accessor)() for accessor in ACCESSORS)
            part = next((part for part in parts if hasattr(part, method)), None)
            return getattr(part, method)(*arguments)


def _world(config: FakeConfig) -> World:
    """What is there at the beginning."""
    world = World()
    for instance in config.machines():
        world.put_instance(instance)
    world.routes = {one.name: RouteRecord(**one.model_dump()) for one in config.routes.existing}
    world.volumes = {one.id: Volume(**one.model_dump()) for one in config.volumes}
    world.clusters = {one.name: Cluster(one.name, one.master) for one in config.clusters}
    return world


def new_provider(config: CloudConfig | None) -> FakeCloud:
    """The factory behind the entry point `fake`. Raises `InvalidConfig` with every
    problem of the file.

    Without a configuration file instances appear for whatever node is asked about, so that trying
    it out on a cluster never makes a node look gone.
    """
    if config is None:
        return FakeCloud(FakeConfig(on_demand=OnDemand()))
    return FakeCloud(FakeConfig.load(config, environ={}))
