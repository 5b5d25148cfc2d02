"""The provider, and the factory that the entry point names: read the config, offer
capabilities."""

from __future__ import annotations

import logging

from typing_extensions import override

from cloudprovider import (
    ClientBuilder,
    CloudConfig,
    CloudProviderError,
    InstancesBatch,
    InstancesV2,
    Interface,
    StopSignal,
)
from libvirt_provider.config import Config
from libvirt_provider.hosts import Hosts
from libvirt_provider.instances import LibvirtInstances
from libvirt_provider.machines import PROVIDER

logger = logging.getLogger(__name__)


class Libvirt(Interface):
    """The virtual machines of one or several hosts. Every accessor returns the same object each
    time, as the contract asks."""

    def __init__(self, config: Config) -> None:
        self._hosts = Hosts(config)
        self._instances = LibvirtInstances(self._hosts, config)

    @override
    def provider_name(self) -> str:
        return PROVIDER

    @override
    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        """The manager does not start when no host answers. With some of them it does: the nodes of
        the others are unknown, not gone."""
        answers = self._hosts.ask(lambda connection: connection.getLibVersion())
        failed = [one for one in answers.values() if isinstance(one, CloudProviderError)]
        if len(failed) == len(answers):
            raise CloudProviderError("; ".join(map(str, failed)))
        for name, answer in answers.items():
            if isinstance(answer, CloudProviderError):
                logger.warning("%s", answer)
            else:
                major, rest = divmod(answer, 10**6)
                logger.info("libvirt %d.%d.%d answers on host %s", major, rest // 1000, rest % 1000, name)

    @override
    def instances_v2(self) -> InstancesV2:
        return self._instances

    @override
    def instances_batch(self) -> InstancesBatch:
        return self._instances


def new_provider(config: CloudConfig | None) -> Interface:
    """The factory that the entry point names. Raises `InvalidConfig`; asks libvirt nothing."""
    return Libvirt(Config.load(config))
