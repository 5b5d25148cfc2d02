"""The provider `fake`: a whole cloud in memory, or in an SQLite file that several processes share (stage 5).

Wires the parts: capabilities ask the gate, the gate applies latency and faults and works on the store. `console` is
what a person does to the cloud, `faults` what goes wrong with it, `calls` what its clients did.
"""

from __future__ import annotations

import logging
from hashlib import sha256
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cloudprovider.interface import Interface
from cloudprovider.testing.fake.calls import CallBook
from cloudprovider.testing.fake.clusters import FakeClusters
from cloudprovider.testing.fake.config import FakeConfig, OnDemand
from cloudprovider.testing.fake.configfile import read_config
from cloudprovider.testing.fake.console import Console
from cloudprovider.testing.fake.errors import FakeConfigError, FakeStateError
from cloudprovider.testing.fake.expand import World, expand
from cloudprovider.testing.fake.faultbook import FaultBook
from cloudprovider.testing.fake.gate import Gate, Latency
from cloudprovider.testing.fake.instances import (
    FakeInstances,
    FakeInstancesBatch,
    FakeInstancesV2,
    FakeKeyedInstancesBatch,
    FakeKeyedInstancesV2,
)
from cloudprovider.testing.fake.loadbalancers import FakeLoadBalancers, FakeOwningLoadBalancers
from cloudprovider.testing.fake.local import FakeLocalInstance
from cloudprovider.testing.fake.machines import Machines
from cloudprovider.testing.fake.podcidrs import FakePodCIDRs
from cloudprovider.testing.fake.records import CLUSTERS, INSTANCES, ROUTES, VOLUMES, Mark, record_kind
from cloudprovider.testing.fake.routes import FakeRoutes
from cloudprovider.testing.fake.store import MemoryStore, Store
from cloudprovider.testing.fake.store_sqlite import SQLiteStore
from cloudprovider.testing.fake.timing import SYSTEM_TIME, Clock, Waiting
from cloudprovider.testing.fake.volumes import FakePVLabeler
from cloudprovider.testing.fake.zones import FakeZones

if TYPE_CHECKING:
    from cloudprovider.cloudconfig import CloudConfig
    from cloudprovider.host import ClientBuilder, StopSignal

__all__ = ["Attached", "FakeCloud", "attach", "new_provider"]

_log = logging.getLogger(__name__)
_SETTINGS = record_kind("setting", Mark)


class FakeCloud(Interface):
    """A cloud for tests and demonstrations, with every capability that `config.capabilities` names.

    Without a configuration it is empty. `caller` names this process in the log, before the configuration's name;
    `clock` drives latency, hangs, and the windows of faults. Raises `FakeConfigError` with every problem, before
    anything is built, and `FakeStateError`. Thread-safe. As a context manager it closes itself.
    """

    def __init__(
        self, config: FakeConfig | None = None, *, caller: str | None = None, clock: Clock = SYSTEM_TIME
    ) -> None:
        self.config = config = config or FakeConfig()
        world = expand(config)
        if world.problems:
            raise FakeConfigError(world.problems)
        self._store: Store = (
            SQLiteStore(config.state, clock.time, busy_timeout=config.busy_timeout)
            if config.state
            else MemoryStore(clock.time)
        )
        self._waiting = Waiting(clock, polls=self._store.shared)
        self.calls = CallBook(self._store, clock, config.caller if caller is None else caller)
        self.faults = FaultBook(self._store, clock, self._waiting, config.seed)
        self.console = Console(config, self._store, self.calls)
        self._gate = Gate(
            self._store,
            self.calls,
            self.faults,
            self._waiting,
            latency=Latency([(method, *span) for method, span in config.latency.items()]),
            seed=config.seed,
            log_reads=config.log == "all",
        )
        try:
            self._fill(world)
        except BaseException:
            self._store.close()
            raise
        machines = Machines(config, self._gate)
        balancers = FakeOwningLoadBalancers if config.has("owned_load_balancers") else FakeLoadBalancers
        self._instances = FakeInstances(machines, self._gate) if config.has("instances") else None
        self._instances_v2: FakeInstancesV2 | None = None
        self._instances_batch: FakeInstancesBatch | None = None
        keyed = config.has("ssh_keys")
        if config.has("instances_v2"):
            self._instances_v2 = FakeKeyedInstancesV2(machines, self._gate) if keyed else FakeInstancesV2(machines)
        if config.has("instances_batch"):
            batch = FakeKeyedInstancesBatch(machines, self._gate) if keyed else FakeInstancesBatch(machines)
            self._instances_batch = batch
        self._zones = FakeZones(machines, self._gate) if config.has("zones") else None
        self._balancers = balancers(machines, self._gate, clock.time) if config.has("load_balancer") else None
        self._routes = FakeRoutes(machines, self._gate) if config.has("routes") else None
        self._pod_cidrs = FakePodCIDRs(machines) if config.has("pod_cidrs") else None
        self._pv_labeler = FakePVLabeler(self._gate) if config.has("pv_labeler") else None
        self._clusters = FakeClusters(self._gate) if config.has("clusters") else None
        self._local = FakeLocalInstance(machines, self._gate) if config.has("local_instance") else None

    @property
    def asleep(self) -> int:
        """How many calls of this process hang or wait out a latency (by a test's clock) now."""
        return self._waiting.asleep

    def close(self) -> None:
        """End the calls that hang, with `FakeCloudClosed`, and let go of the file. May be called twice."""
        self._waiting.close()
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def provider_name(self) -> str:
        return self.config.provider

    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        """Counted, and open to faults: a fault on "initialize" keeps the manager from starting."""
        self._gate.read("initialize", [], lambda _: None)

    def has_cluster_id(self) -> bool:
        return self.config.has_cluster_id

    def provider_id_prefixes(self) -> tuple[str, ...]:
        return (f"{self.config.provider}://",) if self.config.provider_ids else ()

    def instances(self) -> FakeInstances | None:
        return self._instances

    def instances_v2(self) -> FakeInstancesV2 | None:
        return self._instances_v2

    def instances_batch(self) -> FakeInstancesBatch | None:
        return self._instances_batch

    def zones(self) -> FakeZones | None:
        return self._zones

    def load_balancer(self) -> FakeLoadBalancers | None:
        return self._balancers

    def routes(self) -> FakeRoutes | None:
        return self._routes

    def pod_cidrs(self) -> FakePodCIDRs | None:
        return self._pod_cidrs

    def pv_labeler(self) -> FakePVLabeler | None:
        return self._pv_labeler

    def clusters(self) -> FakeClusters | None:
        return self._clusters

    def local_instance(self) -> FakeLocalInstance | None:
        return self._local

    def _fill(self, world: World) -> None:
        """Put in what the configuration says is there; in a shared file only the first process that opens it does."""
        described = sha256(repr((world, self.config.faults)).encode()).hexdigest()
        with self._store.write(settled=True) as tx:
            known = tx.get(_SETTINGS, "world")
            if known is None:
                tx.put(_SETTINGS, "world", Mark(described))
                for instance in world.instances:
                    tx.put(INSTANCES, instance.name, instance)
                for route in world.routes:
                    tx.put(ROUTES, route.name, route)
                for volume in world.volumes:
                    tx.put(VOLUMES, volume.id, volume)
                for cluster in world.clusters:
                    tx.put(CLUSTERS, cluster.name, cluster)
                for fault in self.config.faults:
                    self.faults.put(tx, fault)
        if known is not None and known.value != described:
            _log.warning(
                "the fake cloud in %s began with another configuration, and stays; delete the file to begin anew",
                self.config.state,
            )


class Attached:
    """The console, the faults and the call log of a cloud that lives in a file and belongs to other processes."""

    def __init__(self, store: Store, clock: Clock, caller: str) -> None:
        self._store = store
        config = FakeConfig()
        self.calls = CallBook(store, clock, caller)
        self.faults = FaultBook(store, clock, Waiting(clock, polls=True), config.seed)
        self.console = Console(config, store, self.calls)

    def close(self) -> None:
        """Let go of the file."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def attach(path: str | PathLike[str], *, caller: str = "console", clock: Clock = SYSTEM_TIME) -> Attached:
    """Reach into a cloud in a file while other processes use it: to break it, mend it, or see what it was asked.

    Raises `FakeStateError` when there is none.
    """
    if not Path(path).is_file():
        raise FakeStateError(f"there is no fake cloud at {path}: a process whose configuration names it makes it")
    return Attached(SQLiteStore(path, clock.time), clock, caller)


def new_provider(config: CloudConfig | None) -> FakeCloud:
    """The factory behind the entry point `fake`. Raises `FakeConfigError` and `FakeStateError`.

    Without a configuration file instances appear for whatever node is asked about, so that trying it out on a cluster
    never makes a node look gone.
    """
    if config is None:
        return FakeCloud(FakeConfig(on_demand=OnDemand()))
    settings = read_config(config.data, config.path)
    if settings.state:
        beside = Path(config.path).parent if config.path else Path()
        settings = settings.model_copy(update={"state": str(beside / settings.state)})
    return FakeCloud(settings)
