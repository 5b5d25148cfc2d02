"""The provider, and the factory that the entry point names: read the config, make the client, offer
capabilities."""

from __future__ import annotations

from typing_extensions import override

from cloudprovider import (
    ClientBuilder,
    CloudConfig,
    InstancesBatch,
    InstancesV2,
    Interface,
    Listers,
    LoadBalancer,
    LocalInstance,
    Routes,
    StopSignal,
)
from cloudprovider.errors import InvalidConfig
from localcloud_provider.client import Client, path_of
from localcloud_provider.config import Config
from localcloud_provider.instances import PROVIDER, LocalInstances
from localcloud_provider.loadbalancer import LocalLoadBalancers
from localcloud_provider.localtargets import LocalTargets
from localcloud_provider.machine import LocalMachine
from localcloud_provider.resources import Machines
from localcloud_provider.routes import LocalRoutes


class LocalCloud(Interface):
    """Every accessor returns the same object each time, as the contract asks."""

    def __init__(self, config: Config) -> None:
        token = config.token.get_secret_value()
        self.client = Client(config.url, token)
        self._has_token = bool(token)
        self._instances = LocalInstances(self.client)
        self._local = LocalTargets(self.client, self._instances) if config.local_targets else None
        self._load_balancers = self._local or LocalLoadBalancers(self.client, self._instances)
        self._routes = LocalRoutes(self.client, self._instances)
        self._machine = LocalMachine(self.client)

    @override
    def provider_name(self) -> str:
        return PROVIDER

    @override
    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        """Without a token, or a cloud that takes it, the manager does not start."""
        if not self._has_token:
            raise InvalidConfig("token is not set: give token in the cloud config, or LOCALCLOUD_TOKEN_FILE")
        self.client.get(Machines, path_of("machines"))

    def set_informers(self, informers: Listers) -> None:
        """Asked for here, or the host reads no EndpointSlices."""
        if self._local is not None:
            self._local.slices = informers.endpoint_slices

    @override
    def instances_v2(self) -> InstancesV2:
        return self._instances

    @override
    def instances_batch(self) -> InstancesBatch:
        return self._instances

    @override
    def load_balancer(self) -> LoadBalancer:
        return self._load_balancers

    @override
    def routes(self) -> Routes:
        return self._routes

    @override
    def local_instance(self) -> LocalInstance:
        return self._machine


def new_provider(config: CloudConfig | None) -> Interface:
    """The factory that the entry point names. Raises `InvalidConfig`; asks the cloud nothing."""
    return LocalCloud(Config.load(config))
