"""The fake cloud's zones (stage 5), asked beside the older form of instances."""

from __future__ import annotations

from cloudprovider.errors import NotImplementedByProvider
from cloudprovider.testing.fake.gate import Gate
from cloudprovider.testing.fake.machines import Machines
from cloudprovider.testing.fake.records import Instance
from cloudprovider.testing.fake.store import View
from cloudprovider.zones import Zone, Zones

__all__ = ["FakeZones"]


def _zone(instance: Instance) -> Zone:
    return Zone(instance.zone, instance.region)


class FakeZones(Zones):
    """Where the machines stand, and, if the configuration says so, where this program does."""

    def __init__(self, machines: Machines, gate: Gate) -> None:
        self._machines = machines
        self._gate = gate

    def get_zone(self) -> Zone:
        def work(_: View) -> Zone:
            if not self._machines.config.zone:
                raise NotImplementedByProvider("this program does not run in the fake cloud")
            return Zone(self._machines.config.zone, self._machines.config.region)

        return self._gate.read("get_zone", [], work)

    def get_zone_by_provider_id(self, provider_id: str) -> Zone:
        return self._machines.ask_provider_id("get_zone_by_provider_id", provider_id, _zone)

    def get_zone_by_node_name(self, node_name: str) -> Zone:
        return self._machines.ask_name("get_zone_by_node_name", node_name, _zone)
