"""InstancesV2 and InstancesBatch: what a node's virtual machine is, and whether it is still there.

Every question is one listing of every host. A machine is gone when all hosts answered, and none has
it. While one does not answer, a machine that is nowhere else may be there: that is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from attrs import frozen
from kubernetes.client.models.v1_node import V1Node
from typing_extensions import override

from cloudprovider import (
    CloudProviderError,
    InstanceMetadata,
    InstanceNotFound,
    InstancesBatch,
    InstanceState,
    InstancesV2,
)
from cloudprovider.helpers import node_name, parse_provider_id, provider_id_of
from libvirt_provider.config import Config
from libvirt_provider.hosts import Hosts
from libvirt_provider.machines import PROVIDER, Details, Machine, details, machines, metadata

T = TypeVar("T")

_UUID = re.compile(r"/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


@frozen
class Place:
    """A machine and the host that has it."""

    host: str
    machine: Machine


class LibvirtInstances(InstancesV2, InstancesBatch):
    """Virtual machines, found by UUID, or by name while a node has no provider ID yet."""

    max_batch = 100

    def __init__(self, hosts: Hosts, config: Config) -> None:
        self._hosts = hosts
        self._config = config

    @override
    def instance_exists(self, node: V1Node) -> bool:
        try:
            _only(self.instances_state([node]))
        except InstanceNotFound:
            return False
        except _ElsewherePerhaps:
            return True
        return True

    @override
    def instance_shutdown(self, node: V1Node) -> bool:
        return _only(self.instances_state([node])) is InstanceState.SHUTDOWN

    @override
    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        return _only(self.instances_metadata([node]))

    @override
    def instances_state(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceState | CloudProviderError]:
        answers = self._hosts.ask(machines)
        failed = [one for one in answers.values() if isinstance(one, CloudProviderError)]
        listed = {host: one for host, one in answers.items() if not isinstance(one, CloudProviderError)}

        return self._each(nodes, listed, failed, lambda _, place: place.machine.state)

    @override
    def instances_metadata(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceMetadata | CloudProviderError]:
        config = self._config
        asked = {name for node in nodes for name in (node_name(node), _uuid_or_empty(node)) if name}
        answers = self._hosts.ask(partial(details, asked=asked, sources=config.address_sources))
        failed = [one for one in answers.values() if isinstance(one, CloudProviderError)]
        found = {host: one for host, one in answers.items() if not isinstance(one, CloudProviderError)}

        def told(node: str, place: Place) -> InstanceMetadata | CloudProviderError:
            answer: Details | CloudProviderError | None = found[place.host][1].get(place.machine.uuid)
            if answer is None:
                return CloudProviderError(f"virtual machine {place.machine.name} went while it was looked at")
            if isinstance(answer, CloudProviderError):
                return answer
            return metadata(node, answer, place.host, config.region)

        return self._each(nodes, {host: listed for host, (listed, _) in found.items()}, failed, told)

    def _each(
        self,
        nodes: Sequence[V1Node],
        listed: Mapping[str, Sequence[Machine]],
        failed: Sequence[CloudProviderError],
        answer: Callable[[str, Place], T | CloudProviderError],
    ) -> Mapping[str, T | CloudProviderError]:
        """The answers by node name. What concerns one node alone is its value."""
        places = [Place(host, machine) for host, machines in listed.items() for machine in machines]
        answers: dict[str, T | CloudProviderError] = {}
        for node in nodes:
            name = node_name(node)
            try:
                answers[name] = answer(name, _find(node, places, failed))
            except CloudProviderError as error:
                answers[name] = error
        return answers


class _ElsewherePerhaps(CloudProviderError):
    """The machine is there, and whether it runs on another host is not known."""


def uuid_of(provider_id: str) -> str:
    """The UUID in a provider ID. Raises `CloudProviderError` for what this provider never gives:
    that is unknown to us, which is not "gone"."""
    try:
        parsed = parse_provider_id(provider_id)
    except ValueError as exc:
        raise CloudProviderError(f"cannot read the provider ID: {exc}") from exc
    found = _UUID.fullmatch(parsed.instance)
    if parsed.provider != PROVIDER or found is None:
        raise CloudProviderError(f"{provider_id} is no virtual machine of libvirt's: {PROVIDER}:///UUID")
    return found[1]


def _find(node: V1Node, places: Sequence[Place], failed: Sequence[CloudProviderError]) -> Place:
    """The node's machine. Raises `InstanceNotFound`, or `CloudProviderError` where that is not
    certain."""
    name, given = node_name(node), provider_id_of(node)
    uuid = uuid_of(given) if given else ""
    found = [one for one in places if (one.machine.uuid == uuid if uuid else one.machine.name == name)]
    if len({one.machine.uuid for one in found}) > 1:
        hosts = ", ".join(sorted(one.host for one in found))
        raise CloudProviderError(f"several virtual machines are named {name}, on the hosts {hosts}: rename all but one")
    if found:
        # After a migration the old host may still know it, switched off: the one that runs counts,
        # which may be on the host that is silent.
        best = min(found, key=lambda one: one.machine.state is not InstanceState.RUNNING)
        if failed and best.machine.state is not InstanceState.RUNNING:
            raise _ElsewherePerhaps(*failed[0].args)
        return best
    if failed:
        raise failed[0]
    raise InstanceNotFound(
        f"no host of libvirt's has a virtual machine with the {'UUID ' + uuid if uuid else 'name ' + name}"
    )


def _uuid_or_empty(node: V1Node) -> str:
    try:
        return uuid_of(provider_id_of(node))
    except CloudProviderError:
        return ""


def _only(answers: Mapping[str, T | CloudProviderError]) -> T:
    [answer] = answers.values()
    if isinstance(answer, CloudProviderError):
        raise answer
    return answer
