"""The provider, and the factory that the entry point names: read the config, open the cloud, offer
capabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from typing_extensions import override

from cloudprovider import (
    ClientBuilder,
    CloudConfig,
    Clusters,
    InstancesBatch,
    InstancesV2,
    Interface,
    Listers,
    LoadBalancer,
    LocalInstance,
    PodCIDRs,
    PVLabeler,  # pyright: ignore[reportDeprecated]
    Routes,
    StopSignal,
    Zones,  # pyright: ignore[reportDeprecated]
)
from samplecloud_provider import config as settings
from samplecloud_provider.cloud import Cloud
from samplecloud_provider.clusters import SampleClusters
from samplecloud_provider.instances import PROVIDER, SampleInstances, answered
from samplecloud_provider.loadbalancer import SampleLoadBalancers
from samplecloud_provider.localtargets import LocalTargets
from samplecloud_provider.machine import SampleMachine
from samplecloud_provider.options import SampleCloudOptions
from samplecloud_provider.podcidrs import SamplePodCIDRs
from samplecloud_provider.routes import SampleRoutes
from samplecloud_provider.volumes import SampleVolumes


class SampleCloud(Interface):
    """Every accessor returns the same object each time, as the contract asks."""

    def __init__(self, config: settings.Config) -> None:
        self.cloud = Cloud(config.machines(), config.state_file, config.clusters, config.volumes())
        self.machines = SampleInstances(self.cloud)
        self._local = LocalTargets(self.cloud, self.machines, config) if config.local_targets else None
        self._load_balancers = self._local or SampleLoadBalancers(self.cloud, self.machines, config)
        self._routes = SampleRoutes(self.cloud, self.machines)
        self._clusters = SampleClusters(self.cloud)
        self._machine = SampleMachine(self.machines, config.machine)
        self._pod_cidrs = SamplePodCIDRs(self.machines)
        self._volumes = SampleVolumes(self.cloud)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """The provider as VPC_ID, SUBNET_ID and STATE_FILE say. Raises `InvalidConfig`."""
        return cls(settings.from_environment(environ))

    @override
    def provider_name(self) -> str:
        return PROVIDER

    @override
    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        """A cloud that cannot be read keeps the manager from starting."""
        with answered(), self.cloud.document():
            pass

    def set_informers(self, informers: Listers) -> None:
        """Asked for here, or the host reads no EndpointSlices."""
        if self._local is not None:
            self._local.slices = informers.endpoint_slices

    @override
    def instances_v2(self) -> InstancesV2:
        return self.machines

    @override
    def instances_batch(self) -> InstancesBatch:
        return self.machines

    @override
    def zones(self) -> Zones:  # pyright: ignore[reportDeprecated]
        return self.machines

    @override
    def load_balancer(self) -> LoadBalancer:
        return self._load_balancers

    @override
    def routes(self) -> Routes:
        return self._routes

    @override
    def clusters(self) -> Clusters:
        return self._clusters

    @override
    def local_instance(self) -> LocalInstance:
        return self._machine

    @override
    def pod_cidrs(self) -> PodCIDRs:
        return self._pod_cidrs

    @override
    def pv_labeler(self) -> PVLabeler:  # pyright: ignore[reportDeprecated]
        return self._volumes


def new_provider(config: CloudConfig | None) -> Interface:
    """The factory that the entry point names. Raises `InvalidConfig` for a bad file."""
    found = settings.Config.load(config)
    state_file = config.of(SampleCloudOptions).state_file if config else ""
    return SampleCloud(found.model_copy(update={"state_file": state_file}) if state_file else found)
