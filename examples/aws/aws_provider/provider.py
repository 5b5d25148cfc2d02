"""The provider, and the factory that the entry point names: read the configuration, offer the
capabilities."""

from __future__ import annotations

import logging

from typing_extensions import override

from aws_provider.clients import Clients
from aws_provider.config import Config
from aws_provider.errors import answered
from aws_provider.finder import PROVIDER, InstanceFinder
from aws_provider.instances import AWSInstances, ZoneIDs
from aws_provider.leftovers import AWSLeftovers
from aws_provider.loadbalancer import AWSLoadBalancers
from aws_provider.machine import AWSMachine
from aws_provider.nodeinstances import NodeInstances
from aws_provider.routes import AWSRoutes
from aws_provider.securitygroups import NodeSecurityGroups
from cloudprovider import (
    ClientBuilder,
    CloudConfig,
    CloudProviderError,
    InstancesBatch,
    InstancesV2,
    Interface,
    Listers,
    LoadBalancer,
    LocalInstance,
    OwnedResources,
    Routes,
    StopSignal,
)
from cloudprovider.errors import InvalidConfig

logger = logging.getLogger(__name__)


class AWS(Interface):
    """One cluster in one region of AWS. Every accessor returns the same object each time, as the
    contract asks."""

    def __init__(self, config: Config, clients: Clients) -> None:
        finder = InstanceFinder(clients, config.cluster)
        self.clients = clients
        self._cluster = config.cluster
        self._zone_ids = ZoneIDs(clients)
        self._instances = AWSInstances(finder, self._zone_ids)
        self._load_balancers = AWSLoadBalancers(clients, finder, config)
        self._leftovers = AWSLeftovers(NodeSecurityGroups(clients)) if config.manage_security_groups else None
        self._machine = AWSMachine(clients.metadata_endpoint)
        self._nodes = NodeInstances()
        self._routes = AWSRoutes(clients, finder, self._nodes)

    @override
    def provider_name(self) -> str:
        return PROVIDER

    @override
    @answered()
    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        """Asks AWS for the region's zones: without credentials, a right or a way to AWS the manager
        does not start. Nor where two names are given for one cluster: nodes would be looked up
        under one, load balancers built under the other."""
        asked = client_builder.cluster_name()
        if asked not in ("", self._cluster):
            raise CloudProviderError(
                f"the cluster is {asked!r} by --cluster-name and {self._cluster!r} by the cloud config (cluster, or "
                "AWS_CLUSTER): give it one name, that of the tags in AWS"
            )
        self._zone_ids.load()
        logger.info("AWS answers in region %s", self.clients.region)

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
    def owned_resources(self) -> OwnedResources | None:
        return self._leftovers

    @override
    def local_instance(self) -> LocalInstance:
        return self._machine

    def set_informers(self, informers: Listers) -> None:
        """The host's nodes tell which node an instance is, whatever its name."""
        self._nodes.use(informers)


def new_provider(config: CloudConfig | None) -> Interface:
    """The factory that the entry point names. Raises `InvalidConfig`; asks AWS nothing."""
    settings = Config.load(config)
    clients = Clients(settings.region)
    if not clients.region:
        raise InvalidConfig("the region is not set: give region in the configuration, or AWS_REGION")
    return AWS(settings, clients)
