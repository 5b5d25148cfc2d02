"""The provider `fake`: a whole cloud in memory, or in an SQLite file that several processes share (stage 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudprovider.interface import Clusters, Interface
from cloudprovider.registry import CloudConfig
from cloudprovider.testing.fake.config import FakeConfig, read_config
from cloudprovider.testing.fake.console import Console
from cloudprovider.testing.fake.gate import Faults, Gate
from cloudprovider.testing.fake.instances import FakeInstances, FakeInstancesV2, FakeZones, Machines
from cloudprovider.testing.fake.loadbalancers import FakeLoadBalancers
from cloudprovider.testing.fake.records import CLUSTERS, INSTANCES, ROUTES, VOLUMES
from cloudprovider.testing.fake.routes import FakeClusters, FakeRoutes, FakeVolumes
from cloudprovider.testing.fake.store import MemoryStore, Store
from cloudprovider.testing.fake.store_sqlite import SQLiteStore
from cloudprovider.testing.fake.timing import SYSTEM_TIME, Clock

if TYPE_CHECKING:
    from cloudprovider.host import ClientBuilder, StopSignal
    from cloudprovider.instances import Instances, InstancesBatch, InstancesV2
    from cloudprovider.loadbalancer import LoadBalancer
    from cloudprovider.routes import Routes
    from cloudprovider.volumes import PVLabeler
    from cloudprovider.zones import Zones

__all__ = ["FakeCloud", "new_provider"]


class FakeCloud(Interface):
    """A cloud for tests and demos, with every capability that `config.capabilities` names.

    `console` is for the test, `faults` can be changed while calls are under way. Thread-safe. `close` ends every call
    that hangs in it.
    """

    def __init__(self, config: FakeConfig | None = None, *, clock: Clock = SYSTEM_TIME) -> None:
        self.config = config or FakeConfig()
        self._store: Store = (
            SQLiteStore(self.config.state, clock.time) if self.config.state else MemoryStore(clock.time)
        )
        self._gate = Gate(self.config, self._store, clock)
        self.console = Console(self._store)
        machines = Machines(self.config, self._store)
        self._v2 = FakeInstancesV2(self._gate, machines)
        self._instances = FakeInstances(self._gate, machines, self._store)
        self._zones = FakeZones(self._gate, machines)
        self._load_balancers = FakeLoadBalancers(self.config, self._gate, self._store, clock.time)
        self._routes = FakeRoutes(self.config, self._gate, self._store)
        self._volumes = FakeVolumes(self._gate, self._store)
        self._clusters = FakeClusters(self._gate, self._store)
        self._fill()

    @property
    def faults(self) -> Faults:
        """The faults in force in this process."""
        return self._gate.faults

    @property
    def asleep(self) -> int:
        """How many calls hang or wait out their latency now."""
        return self._gate.waiting.asleep

    def close(self) -> None:
        """End the calls that hang, and let go of the file. May be called twice."""
        self._gate.waiting.close()
        self._store.close()

    def provider_name(self) -> str:
        return self.config.provider

    def has_cluster_id(self) -> bool:
        return self.config.has_cluster_id

    def provider_id_prefixes(self) -> tuple[str, ...]:
        return (f"{self.config.provider}://",) if self.config.provider_ids else ()

    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        self._gate.call("initialize", [], lambda _: None)

    def instances_v2(self) -> InstancesV2 | None:
        return self._v2 if self._has("instances_v2") else None

    def instances_batch(self) -> InstancesBatch | None:
        return self._v2 if self._has("instances_batch") else None

    def instances(self) -> Instances | None:
        return self._instances if self._has("instances") else None

    def zones(self) -> Zones | None:
        return self._zones if self._has("zones") else None

    def load_balancer(self) -> LoadBalancer | None:
        return self._load_balancers if self._has("load_balancer") else None

    def routes(self) -> Routes | None:
        return self._routes if self._has("routes") else None

    def pv_labeler(self) -> PVLabeler | None:
        return self._volumes if self._has("pv_labeler") else None

    def clusters(self) -> Clusters | None:
        return self._clusters if self._has("clusters") else None

    def _has(self, capability: str) -> bool:
        return capability in self.config.capabilities

    def _fill(self) -> None:
        """What the configuration says is there; in a shared file only by the first process that opens it."""
        with self._store.write(settled=True) as change:
            if change.add("opened") > 1:
                return
            for instance in self.config.all_instances():
                change.put(INSTANCES, instance.name, instance)
            for route in self.config.routes.existing:
                change.put(ROUTES, route.name, route.record())
            for volume in self.config.volumes:
                change.put(VOLUMES, volume.id, volume.record())
            for cluster in self.config.clusters:
                change.put(CLUSTERS, cluster.name, cluster.record())


def new_provider(config: CloudConfig | None) -> FakeCloud:
    """The factory behind the entry point `fake`. Raises FakeConfigError with every problem of the file."""
    return FakeCloud(read_config(config.data, config.path) if config is not None else None)
