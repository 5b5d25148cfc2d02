"""The provider, and the factory that the entry point names: read the configuration, choose the
driver, offer what it can do."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from typing_extensions import override

from cloudprovider import (
    ClientBuilder,
    CloudConfig,
    InstancesBatch,
    InstancesV2,
    Interface,
    LoadBalancer,
    StopSignal,
)
from cloudprovider.errors import InvalidConfig
from libcloud_provider.arguments import argument_names, balancer_drivers, compute_drivers, driver_class
from libcloud_provider.balancers import balancer_profile_of
from libcloud_provider.cloud import Cloud
from libcloud_provider.config import BalancerConfig, Config
from libcloud_provider.instances import LibcloudInstances, Machines
from libcloud_provider.loadbalancer import LibcloudLoadBalancers
from libcloud_provider.profiles import LIBCLOUD_ID, profile_of
from libcloud_provider.providerids import ProviderIDs

PROVIDER = "libcloud"
"""As in --cloud-provider. Provider IDs begin as the driver's cloud has them."""

RETRY_VARIABLE = "LIBCLOUD_RETRY_FAILED_HTTP_REQUESTS"

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Libcloud(Interface):
    """One driver of libcloud's, and one for load balancers if the configuration has one. Every
    accessor returns the same object each time, as the contract asks."""

    def __init__(self, config: Config) -> None:
        profile = profile_of(config.driver)
        arguments = {**profile.defaults, **config.arguments}
        if config.region and profile.region_argument:
            arguments.setdefault(profile.region_argument, config.region)
        self.ids = _provider_ids(config)
        self._driver = config.driver
        self._cloud = Cloud(config.driver, compute_drivers()[config.driver], arguments, config.credentials)
        self.machines = Machines(self._cloud, profile, self.ids, config.region_or_argument, config.match, config.absent)
        self._instances = LibcloudInstances(self.machines)
        self._load_balancers = self._balancers(config.load_balancer, arguments, config.credentials)

    @override
    def provider_name(self) -> str:
        return PROVIDER

    @override
    def provider_id_prefixes(self) -> tuple[str, ...]:
        return (self.ids.prefix,)

    @override
    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        """Lists the machines once: without credentials, a right or a way to the cloud the manager
        does not start."""
        if os.environ.get(RETRY_VARIABLE):
            raise InvalidConfig(f"{RETRY_VARIABLE} is set: unset it, because the host retries, and knows how long")
        found = self.machines.listed()
        if found:
            logger.info("libcloud's driver %s lists %d machines", self._driver, len(found))
        else:
            logger.warning(
                "libcloud's driver %s lists no machines: if there are some, check region, project and rights in the "
                "cloud config",
                self._driver,
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

    def _balancers(
        self, config: BalancerConfig | None, arguments: Mapping[str, Any], credentials: Mapping[str, str]
    ) -> LoadBalancer | None:
        if config is None:
            return None
        place = balancer_drivers()[config.driver]
        if not config.arguments and not config.credentials:  # those of the machines, as far as it takes them
            known = argument_names(driver_class(place))
            names = {"key": "access_id"} if "access_id" in known else {}
            arguments = _renamed(arguments, names, known)
            credentials = _renamed(credentials, names, known)
        else:
            arguments, credentials = config.arguments, config.credentials
        cloud = Cloud(config.driver, place, arguments, credentials)
        return LibcloudLoadBalancers(cloud, balancer_profile_of(config.driver), self.machines, config.options)


def new_provider(config: CloudConfig | None) -> Interface:
    """The factory that the entry point names. Raises `InvalidConfig`; asks the cloud nothing."""
    return Libcloud(Config.load(config))


def _renamed(given: Mapping[str, T], names: Mapping[str, str], known: Collection[str]) -> dict[str, T]:
    return {names.get(name, name): value for name, value in given.items() if names.get(name, name) in known}


def _provider_ids(config: Config) -> ProviderIDs:
    template = config.provider_id or profile_of(config.driver).provider_id or LIBCLOUD_ID
    fixed = {
        "driver": config.driver,
        "region": config.region_or_argument,
        "project": str(config.arguments.get("project", "")),
    }
    try:
        return ProviderIDs.of(template, fixed)
    except ValueError as exc:
        raise InvalidConfig(f"provider_id: {exc}") from exc
