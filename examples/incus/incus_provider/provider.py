"""The provider, and the factory that the entry point names: read the config, make the client, offer
capabilities."""

from __future__ import annotations

import logging

from typing_extensions import override

from cloudprovider import (
    ClientBuilder,
    CloudConfig,
    InstancesBatch,
    InstancesV2,
    Interface,
    LoadBalancer,
    Routes,
    StopSignal,
)
from cloudprovider.errors import InvalidConfig
from incus_provider.client import Client, NotFound, ProjectNotFound, path_of
from incus_provider.config import Config
from incus_provider.instances import IncusInstances
from incus_provider.loadbalancer import IncusLoadBalancers
from incus_provider.machine import PROVIDER
from incus_provider.resources import Network, ServerInfo
from incus_provider.routes import IncusRoutes

logger = logging.getLogger(__name__)


class Incus(Interface):
    """One project of one server, or cluster of servers. Every accessor returns the same object each
    time, as the contract asks."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.client = Client(config)
        self._instances = IncusInstances(self.client, config)
        self._load_balancers = IncusLoadBalancers(self.client, config) if config.load_balancer_addresses else None
        self._routes = IncusRoutes(self.client, config) if config.routes else None

    @override
    def provider_name(self) -> str:
        return PROVIDER

    @override
    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        """Without a server that trusts us, the project or the network, the manager does not
        start."""
        server = self.client.get(ServerInfo, "/1.0", calls=3)
        if server.auth != "trusted" or server.environment is None:
            raise InvalidConfig(
                "the server does not trust client_certificate: add it with `incus config trust add-certificate FILE`"
            )
        try:
            self.client.check_project(calls=2)
        except ProjectNotFound as exc:
            raise InvalidConfig(str(exc)) from exc
        if self._config.network:
            self._check_network(clustered=server.environment.server_clustered)
        found = server.environment
        logger.info(
            "%s %s answers at %s, project %s", found.server, found.server_version, self.client.url, self.client.project
        )

    def _check_network(self, *, clustered: bool) -> None:
        try:
            network = self.client.get(Network, path_of("networks", self._config.network))
        except NotFound as exc:
            raise InvalidConfig(f"network: the server has no {self._config.network!r}: {exc}") from exc
        if network.type != "bridge" or not network.managed:
            raise InvalidConfig(f"network: {network.name!r} must be a bridge that the server manages")
        if clustered and self._load_balancers is not None:
            raise InvalidConfig(
                "load_balancer_addresses: the forwards of a bridge belong to one member of a cluster; not supported"
            )

    @override
    def instances_v2(self) -> InstancesV2:
        return self._instances

    @override
    def instances_batch(self) -> InstancesBatch:
        return self._instances

    @override
    def load_balancer(self) -> LoadBalancer | None:
        return self._load_balancers

    @override
    def routes(self) -> Routes | None:
        return self._routes


def new_provider(config: CloudConfig | None) -> Interface:
    """The factory that the entry point names. Raises `InvalidConfig`; asks the server nothing."""
    return Incus(Config.load(config))
