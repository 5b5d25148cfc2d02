"""The fake cloud's metadata service: what the machine that this program runs on says of itself (stage 5)."""

from __future__ import annotations

import socket

from cloudprovider.instances import InstanceMetadata
from cloudprovider.localinstance import LocalInstance
from cloudprovider.testing.fake.gate import Gate
from cloudprovider.testing.fake.machines import Machines

__all__ = ["FakeLocalInstance"]


class FakeLocalInstance(LocalInstance):
    """The machine that the configuration names, or else the one with this host's name."""

    def __init__(self, machines: Machines, gate: Gate) -> None:
        self._machines = machines
        self._gate = gate
        self._name = machines.config.machine

    def local_metadata(self) -> InstanceMetadata:
        name = self._name or socket.gethostname().strip().lower()
        return self._machines.ask_name("local_metadata", name, self._machines.metadata)

    def local_node_name(self, hostname: str) -> str:
        return self._gate.read("local_node_name", [(hostname,)], lambda _: self._name or hostname)
