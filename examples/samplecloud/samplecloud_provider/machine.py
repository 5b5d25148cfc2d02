"""LocalInstance: the machine that the program runs on, for `node-info` as it boots.

A real cloud answers from a metadata service at a fixed address of the machine; here it is the same
document.
"""

from __future__ import annotations

import socket

from typing_extensions import override

from cloudprovider import InstanceMetadata, LocalInstance
from cloudprovider.helpers import kubelet_hostname
from samplecloud_provider.instances import SampleInstances


class SampleMachine(LocalInstance):
    """The machine with the name that the configuration says, or else with this host's name."""

    def __init__(self, instances: SampleInstances, name: str) -> None:
        self._instances = instances
        self._name = name

    @override
    def local_metadata(self) -> InstanceMetadata:
        name = self._name or kubelet_hostname(socket.gethostname())
        return self._instances.metadata(self._instances.find("", name), name)

    @override
    def local_node_name(self, hostname: str) -> str:
        return self._name or hostname
