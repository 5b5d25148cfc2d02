"""Routes, volumes' labels and clusters of the fake cloud (stage 5)."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider.errors import CloudProviderError, DiskNotFound
from cloudprovider.helpers.volumes import zones_to_label_value
from cloudprovider.interface import Clusters
from cloudprovider.routes import Route, Routes
from cloudprovider.testing.fake.config import FakeConfig
from cloudprovider.testing.fake.errors import BadRequest, QuotaExceeded
from cloudprovider.testing.fake.gate import Gate
from cloudprovider.testing.fake.records import CLUSTERS, ROUTES, VOLUMES, RouteRecord
from cloudprovider.testing.fake.store import Store
from cloudprovider.volumes import PVLabeler
from cloudprovider.wellknown import LABEL_TOPOLOGY_REGION, LABEL_TOPOLOGY_ZONE

if TYPE_CHECKING:
    from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume

__all__ = ["FakeClusters", "FakeRoutes", "FakeVolumes"]


class FakeRoutes(Routes):
    """Routes of one fake cloud: one table, in which other systems' routes stand too."""

    def __init__(self, config: FakeConfig, gate: Gate, store: Store) -> None:
        self._config = config
        self._gate = gate
        self._store = store

    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        def work(as_of: float | None) -> tuple[Route, ...]:
            with self._store.read(as_of) as view:
                return tuple(_route(one) for one in view.scan(ROUTES) if one.foreign or one.cluster == cluster_name)

        return self._gate.call("list_routes", [(cluster_name,)], work)

    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        name = f"{cluster_name}-{name_hint}"

        def work(_: float | None) -> None:
            try:
                ipaddress.ip_network(route.destination_cidr)
            except ValueError as error:
                raise BadRequest(f"destination {route.destination_cidr!r} is no CIDR: {error}") from error
            wanted = RouteRecord(
                name=name,
                cluster=cluster_name,
                destination_cidr=route.destination_cidr,
                target_node=route.target_node,
                target_addresses=[(one.type, one.address) for one in route.target_node_addresses],
                blackhole=route.blackhole,
            )
            with self._store.write() as change:
                there = change.find(ROUTES, route.destination_cidr)
                if there == wanted:
                    return
                if there is not None:
                    raise BadRequest(f"{route.destination_cidr} already leads to {there.target_node or 'nowhere'}")
                quota = self._config.routes.quota
                if quota is not None and len(change.scan(ROUTES)) >= quota:
                    raise QuotaExceeded(f"the quota of {quota} routes is used up")
                change.put(ROUTES, name, wanted)

        self._gate.call("create_route", [self._keys(name, route)], work, cluster=cluster_name)

    def delete_route(self, cluster_name: str, route: Route) -> None:
        def work(_: float | None) -> None:
            with self._store.write() as change:
                there = change.find(ROUTES, route.destination_cidr)
                if there is not None and route.name in ("", there.name):
                    change.delete(ROUTES, there.name)

        self._gate.call("delete_route", [self._keys(route.name, route)], work, cluster=cluster_name)

    @staticmethod
    def _keys(name: str, route: Route) -> tuple[str, ...]:
        return route.destination_cidr, name, route.target_node


def _route(record: RouteRecord) -> Route:
    return Route(
        name=record.name,
        target_node=record.target_node,
        destination_cidr=record.destination_cidr,
        target_node_addresses=tuple(V1NodeAddress(type=kind, address=value) for kind, value in record.target_addresses),
        blackhole=record.blackhole,
    )


class FakeVolumes(PVLabeler):
    """Labels of volumes: zones and region of the disk, and its own."""

    def __init__(self, gate: Gate, store: Store) -> None:
        self._gate = gate
        self._store = store

    def get_labels_for_volume(self, pv: V1PersistentVolume) -> Mapping[str, str]:
        assert pv.metadata is not None
        handle = pv.spec.csi.volume_handle if pv.spec is not None and pv.spec.csi is not None else None
        volume_id = handle or pv.metadata.name or ""

        def work(as_of: float | None) -> dict[str, str]:
            with self._store.read(as_of) as view:
                volume = view.get(VOLUMES, volume_id)
            if volume is None:
                raise DiskNotFound(f"no volume {volume_id}")
            labels = dict(volume.labels)
            if volume.zones:
                labels[LABEL_TOPOLOGY_ZONE] = zones_to_label_value(volume.zones)
            if volume.region:
                labels[LABEL_TOPOLOGY_REGION] = volume.region
            return labels

        keys = [(volume_id, pv.metadata.name or "")]
        return self._gate.call("get_labels_for_volume", keys, work, arguments=[pv])


class FakeClusters(Clusters):
    """The account's clusters."""

    def __init__(self, gate: Gate, store: Store) -> None:
        self._gate = gate
        self._store = store

    def list_clusters(self) -> Sequence[str]:
        def work(as_of: float | None) -> tuple[str, ...]:
            with self._store.read(as_of) as view:
                return tuple(one.name for one in view.scan(CLUSTERS))

        return self._gate.call("list_clusters", [], work)

    def master(self, cluster_name: str) -> str:
        def work(as_of: float | None) -> str:
            with self._store.read(as_of) as view:
                found = view.get(CLUSTERS, cluster_name)
            if found is None:
                raise CloudProviderError(f"no cluster {cluster_name}")
            return found.master

        return self._gate.call("master", [(cluster_name,)], work)
