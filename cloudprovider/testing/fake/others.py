"""The fake cloud's smaller capabilities: zones, the machine that the program runs on, volumes'
labels, the account's clusters and what else was made for them, and routes, in one table for all
clusters and other systems."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from cloudprovider.errors import DiskNotFound, NotImplementedByProvider
from cloudprovider.helpers.labels import zones_to_label_value
from cloudprovider.helpers.objects import key_of
from cloudprovider.instances import InstanceMetadata
from cloudprovider.interface import Clusters
from cloudprovider.localinstance import LocalInstance
from cloudprovider.ownedresources import OwnedResource, OwnedResources
from cloudprovider.routes import Route, Routes
from cloudprovider.testing.fake.faults import Key
from cloudprovider.testing.fake.gate import Part, carried
from cloudprovider.testing.fake.machines import BadRequest, node_addresses
from cloudprovider.testing.fake.records import Instance, RouteRecord
from cloudprovider.volumes import PVLabeler
from cloudprovider.wellknown import LABEL_TOPOLOGY_REGION, LABEL_TOPOLOGY_ZONE
from cloudprovider.zones import Zone, Zones

if TYPE_CHECKING:
    from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume


class FakeZones(Part, Zones):
    """Where the machines stand, and, if the configuration says so, where this program does."""

    @override
    @carried()
    def get_zone(self) -> Zone:
        if not self._config.zone:
            raise NotImplementedByProvider("this program does not run in the fake cloud")
        return Zone(self._config.zone, self._config.region)

    @override
    @carried()
    def get_zone_by_provider_id(self, provider_id: str) -> Zone:
        found = self._machines.by_provider_id(provider_id)
        return Zone(found.zone, found.region)

    @override
    @carried()
    def get_zone_by_node_name(self, node_name: str) -> Zone:
        found = self._machines.by_name(node_name)
        return Zone(found.zone, found.region)


class FakeLocalInstance(Part, LocalInstance):
    """The machine that the configuration names, or else the one with this host's name."""

    @override
    @carried(lambda self: [(self._name,)])
    def local_metadata(self) -> InstanceMetadata:
        return self._machines.metadata(self._machines.by_name(self._name))

    @override
    @carried()
    def local_node_name(self, hostname: str) -> str:
        return self._config.machine or hostname

    @property
    def _name(self) -> str:
        return self._config.machine or socket.gethostname().strip().lower()


def _volume_id(pv: V1PersistentVolume) -> str:
    csi = pv.spec.csi if pv.spec is not None else None
    return csi.volume_handle if csi is not None else key_of(pv)


def _volume(_: Any, pv: V1PersistentVolume) -> list[Key]:
    return [(_volume_id(pv), key_of(pv))]


class FakePVLabeler(Part, PVLabeler):
    """Labels of disks: their zones and region, and what the configuration adds.

    A disk is found by the volume's CSI handle, or its name. A volume that it has no disk for, and
    whose source no cloud has (NFS, iSCSI, a path of the machine), is not one of ours.
    """

    @override
    @carried(_volume)
    def get_labels_for_volume(self, pv: V1PersistentVolume) -> Mapping[str, str]:
        volume, spec = self._world.volumes.get(_volume_id(pv)), pv.spec
        if volume is None:
            # No cloud's disk: it has no zone, and nothing is missing.
            if spec is not None and any((spec.nfs, spec.iscsi, spec.fc, spec.host_path, spec.local)):
                return {}
            raise DiskNotFound(f"no volume {_volume_id(pv)}")
        labels = dict(volume.labels)
        if volume.zones:
            labels[LABEL_TOPOLOGY_ZONE] = zones_to_label_value(volume.zones)
        if volume.region:
            labels[LABEL_TOPOLOGY_REGION] = volume.region
        return labels


class FakeClusters(Part, Clusters):
    """What the configuration and the console say there is."""

    @override
    @carried()
    def list_clusters(self) -> Sequence[str]:
        return tuple(sorted(self._world.clusters))

    @override
    @carried()
    def master(self, cluster_name: str) -> str:
        cluster = self._world.clusters.get(cluster_name)
        if cluster is None:
            raise BadRequest(f"there is no cluster {cluster_name}")
        return cluster.master


def _resource(_: FakeOwnedResources, __: str, resource: OwnedResource) -> list[Key]:
    return [(resource.id,)]


class FakeOwnedResources(Part, OwnedResources):
    """Security groups and their like of one fake cloud."""

    @override
    @carried()
    def list_owned_resources(self, cluster_name: str) -> Sequence[OwnedResource]:
        return [
            OwnedResource(one.kind, one.id, one.name)
            for _, one in sorted(self._world.resources.items())
            if one.cluster == cluster_name
        ]

    @override
    @carried(_resource, changes=True)
    def delete_owned_resource(self, cluster_name: str, resource: OwnedResource) -> None:
        found = self._world.resources.get(resource.id)
        # Another cluster's is none of this one's, whatever ID is given.
        if found is None or found.cluster != cluster_name:
            self._gate.calls.effect("absent")
            return
        del self._world.resources[resource.id]
        self._gate.calls.effect("deleted")


def _created(_: Any, cluster_name: str, name_hint: str, route: Route) -> list[Key]:
    return [(route.destination_cidr, _name(cluster_name, name_hint, route.destination_cidr), route.target_node)]


def _deleted(_: Any, cluster_name: str, route: Route) -> list[Key]:
    return [(route.destination_cidr, route.name, route.target_node)]


class FakeRoutes(Part, Routes):
    """Routes of one fake cloud. There is one rule for a destination, no matter who made it."""

    @override
    @carried()
    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        rules = sorted(self._world.routes.values(), key=lambda one: one.name)
        return tuple(self._route(rule) for rule in rules if rule.foreign or rule.cluster == cluster_name)

    @override
    @carried(_created, changes=True)
    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        destination = _destination(route)
        wanted = RouteRecord(
            name=_name(cluster_name, name_hint, route.destination_cidr),
            cluster=cluster_name,
            destination_cidr=destination,
            target_node=self._target(route),
            target_addresses=[(address.type, address.address) for address in route.target_node_addresses],
            blackhole=route.blackhole,
        )
        present = self._world.route_to(destination)
        # One rule for a destination, as in real tables: whose it is must not change silently.
        if present is not None and present != wanted:
            raise BadRequest(f"{destination} has a rule already: {present.name}")
        self._world.routes[wanted.name] = wanted
        self._gate.calls.effect("created" if present is None else "unchanged")

    @override
    @carried(_deleted, changes=True)
    def delete_route(self, cluster_name: str, route: Route) -> None:
        # By name where it was listed: two rules may have had the destination one after the other.
        present = self._world.routes.get(route.name) if route.name else self._world.route_to(route.destination_cidr)
        # The name was used again for another rule meanwhile.
        if present is None or present.destination_cidr != route.destination_cidr:
            self._gate.calls.effect("absent")
        else:
            del self._world.routes[present.name]
            self._gate.calls.effect("deleted")

    def _target(self, route: Route) -> str:
        """The name of the machine, by its provider ID first."""
        machine = self._machines.by_key(route.target_node, route.target_provider_id)
        if isinstance(machine, Instance):
            return machine.name
        # Most clouds take a name that they do not know, and the traffic goes nowhere.
        if self._config.routes.strict_targets and not route.blackhole:
            raise machine
        return route.target_node

    def _route(self, record: RouteRecord) -> Route:
        known = self._config.routes.node_addresses
        machine = self._world.instances.get(record.target_node)
        return Route(
            name=record.name,
            target_node=record.target_node,
            destination_cidr=record.destination_cidr,
            enable_node_addresses=known,
            target_node_addresses=node_addresses(record.target_addresses) if known else (),
            blackhole=record.blackhole,
            target_provider_id=self._machines.provider_id(machine) if machine is not None else "",
        )


def _name(cluster_name: str, hint: str, destination: str) -> str:
    """Letters, digits and dashes; with the destination in it, as a node may have several."""
    return "-".join(re.sub(r"[^A-Za-z0-9]+", "-", part).strip("-") for part in (cluster_name, hint, destination))


def _destination(route: Route) -> str:
    try:
        return str(ip_network(route.destination_cidr))
    except ValueError as error:
        raise BadRequest(f"the destination {route.destination_cidr!r} is no CIDR: {error}") from error
