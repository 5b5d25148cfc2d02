"""Routes: the server's bridge sends a pod network to the network device of its node's instance.

A route is an entry of `ipv4.routes` or `ipv6.routes` of that device. Which of them are ours stands
in the instance's configuration, by cluster. Both are changed in one request, and only if nobody
changed the instance meanwhile. With the instance its routes are gone.

The bridge asks "who has this pod's address?", and the node must answer: see README.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from cloudprovider import CloudProviderError, InstanceNotFound, Route, Routes, current_call
from cloudprovider.helpers import parse_network
from incus_provider.client import Client, NotFound, Outdated, path_of
from incus_provider.config import Config
from incus_provider.instances import listed
from incus_provider.machine import nics, provider_id, uuid_of
from incus_provider.resources import Instance

OWNED = "user.kubernetes-routes."
"""Before the cluster's name: which routes of the instance are the cluster's. Must never change."""

_TRIES = 8
_PAUSE = 0.05  # seconds, after the first of them; longer each time


class IncusRoutes(Routes):
    """The routes that carry the cluster's mark; those of others are never listed."""

    def __init__(self, client: Client, config: Config) -> None:
        self._client = client
        self._network = config.network

    @override
    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        return [
            Route(
                name=cidr,
                target_node="" if instance.uuid else instance.name,
                destination_cidr=cidr,
                owned=True,
                target_provider_id=provider_id(self._client.project, instance) if instance.uuid else "",
            )
            for instance in listed(self._client)
            for cidr in _texts(instance.config.get(OWNED + cluster_name))
            if cidr in _texts(instance.expanded_devices.get(self._device(instance), {}).get(_key(cidr)))
        ]

    @override
    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        self._change(cluster_name, self._target(route), add=route.destination_cidr)

    @override
    def delete_route(self, cluster_name: str, route: Route) -> None:
        try:
            self._change(cluster_name, self._target(route), remove=route.destination_cidr)
        except InstanceNotFound:  # and the route with it
            return

    def _target(self, route: Route) -> str:
        """The name that the instance has today. Raises `InstanceNotFound`."""
        if not route.target_provider_id:
            return route.target_node
        uuid = uuid_of(route.target_provider_id, self._client.project)
        for instance in listed(self._client, calls=3):
            if instance.uuid == uuid:
                return instance.name
        self._client.check_project()
        raise InstanceNotFound(f"the project {self._client.project} has no instance with the UUID {uuid}")

    def _change(self, cluster: str, name: str, *, add: str = "", remove: str = "") -> None:
        """Bring one route in line. Raises `InstanceNotFound` where the server has no such
        instance."""
        path = path_of("instances", name)
        for number in range(1, _TRIES + 1):
            try:
                instance, state = self._client.read(Instance, path, calls=2)
            except NotFound as exc:
                self._client.check_project()
                raise InstanceNotFound(f"the project {self._client.project} has no instance {name}: {exc}") from exc
            body = self._document(instance, OWNED + cluster, add, remove)
            if body is None:
                return
            try:
                self._client.change("PATCH", path, body, state=state)
            except Outdated:
                current_call().pause(number * _PAUSE)
                continue
            return
        raise CloudProviderError(f"instance {name} was changed by others {_TRIES} times while its routes were changed")

    def _document(self, instance: Instance, mark: str, add: str, remove: str) -> Mapping[str, object] | None:
        """The change of the instance; None where there is nothing to change."""
        device, cidr = self._device(instance), add or remove
        if not device:
            if remove:
                return None
            raise CloudProviderError(f"instance {instance.name} has no device in the network {self._network}")
        settings = dict(instance.expanded_devices[device])  # a profile's, too: its own copy takes the route
        owned, present = _texts(instance.config.get(mark)), _texts(settings.get(_key(cidr)))
        wanted = [text for text in owned if text != remove], [text for text in present if text != remove]
        for texts in wanted if add else ():
            if add not in texts:
                texts.append(add)
        if wanted == (owned, present):
            return None
        settings[_key(cidr)] = ",".join(wanted[1])
        return {"config": {mark: ",".join(wanted[0])}, "devices": {device: settings}}

    def _device(self, instance: Instance) -> str:
        return next((nic.device for nic in nics(instance) if nic.network == self._network), "")


def _key(cidr: str) -> str:
    return "ipv4.routes" if parse_network(cidr).version == 4 else "ipv6.routes"


def _texts(value: str | None) -> list[str]:
    return [text.strip() for text in (value or "").split(",") if text.strip()]
