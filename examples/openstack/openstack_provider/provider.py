"""The provider, and the factory that the entry point names: read the configuration, log in, offer
the capabilities."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from typing_extensions import override

from cloudprovider import (
    ClientBuilder,
    CloudConfig,
    InstancesBatch,
    InstancesV2,
    Interface,
    Listers,
    LocalInstance,
    Routes,
    StopSignal,
)
from cloudprovider.config import ConfigWatcher
from cloudprovider.errors import InvalidConfig
from openstack_provider.cloud import Cloud, clouds_file
from openstack_provider.config import Config
from openstack_provider.instances import OpenStackInstances
from openstack_provider.loadbalancer import OpenStackLoadBalancers
from openstack_provider.machine import OpenStackMachine
from openstack_provider.preflight import problems
from openstack_provider.rest import answered
from openstack_provider.routes import OpenStackRoutes
from openstack_provider.servers import PROVIDER, Servers

logger = logging.getLogger(__name__)


class OpenStack(Interface):
    """One cluster in one project. Every accessor returns the same object each time, as the contract
    asks."""

    def __init__(self, clouds: Mapping[str, Cloud], source: CloudConfig | None) -> None:
        self.clouds = clouds
        """By region. The first has the load balancers and the router."""
        self.cloud = next(iter(clouds.values()))
        self._source = source
        self._load_balancers = OpenStackLoadBalancers(self.cloud)
        regional = len(clouds) > 1 or os.environ.get("OS_CCM_REGIONAL", "").lower() == "true"
        servers = Servers(clouds)
        self._instances = OpenStackInstances(servers, regional=regional)
        self._machine = OpenStackMachine(self.cloud.config, self.cloud.region if regional else "")
        router = self.cloud.config.route.router_id
        self._routes = OpenStackRoutes(self.cloud, servers, self._instances.provider_id) if router else None

    @override
    def provider_name(self) -> str:
        return PROVIDER

    @override
    @answered()
    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        """Logs in and looks up what the configuration names: with a wrong login, network or router
        the manager does not start, and is told all that is wrong."""
        found = [one for cloud in self.clouds.values() for one in problems(cloud, home=cloud is self.cloud)]
        if found:
            raise InvalidConfig(*found)
        self._load_balancers.start(client_builder.cluster_identity())
        logger.info("OpenStack answers in %s", ", ".join(region or "its only region" for region in self.clouds))
        self._watcher().start(stop)

    @override
    def load_balancer(self) -> OpenStackLoadBalancers | None:
        return self._load_balancers if self.cloud.config.loadbalancer.enabled else None

    @override
    def instances_v2(self) -> InstancesV2:
        return self._instances

    @override
    def instances_batch(self) -> InstancesBatch:
        return self._instances

    @override
    def routes(self) -> Routes | None:
        return self._routes

    @override
    def local_instance(self) -> LocalInstance:
        return self._machine

    def set_informers(self, informers: Listers) -> None:
        """The host's nodes tell which routes lead to the cluster, and which servers left it."""
        self._load_balancers.use(informers)
        if self._routes is not None:
            self._routes.use(informers)

    def _watcher(self) -> ConfigWatcher[tuple[Config, bytes]]:
        """Logs in again when the cloud config or clouds.yaml changes."""
        source = self._source or CloudConfig("", b"")
        file = clouds_file(self.cloud.config)
        logins = CloudConfig(file, b"")

        def load() -> tuple[Config, bytes]:
            config = Config.load(source.read_again() if source.path else source)
            return config, logins.read_again().data if file else b""

        def use(value: tuple[Config, bytes]) -> None:
            for cloud in self.clouds.values():
                cloud.use(value[0])

        now = self.cloud.config, logins.read_again().data if file else b""
        return ConfigWatcher(now, [path for path in (source.path, file) if path], load, use)


def new_provider(config: CloudConfig | None) -> Interface:
    """The factory that the entry point names. Raises `InvalidConfig`; asks OpenStack nothing."""
    settings = Config.load(config)
    home = Cloud.of(settings)
    clouds = {home.region: home}
    for region in settings.regions:
        if region not in clouds:
            clouds[region] = Cloud.of(settings, region)
    return OpenStack(clouds, config)
