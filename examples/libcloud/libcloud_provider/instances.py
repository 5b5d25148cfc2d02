"""InstancesV2 and InstancesBatch: what a node's machine is, and whether it is still there.

One listing answers for all nodes of a call. A machine that it has is judged by its state. A machine
that it lacks is not gone by that: several drivers read one page only, and a listing in pages skips
a machine where another one is deleted meanwhile. So the cloud is asked about that one machine, and
only its own "not found" means gone. Where the driver has no such question, the configuration
decides (`absent`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from kubernetes.client.models.v1_node import V1Node
from typing_extensions import override

from cloudprovider import (
    CallInterrupted,
    CloudProviderError,
    InstanceMetadata,
    InstanceNotFound,
    InstancesBatch,
    InstanceState,
    InstancesV2,
)
from cloudprovider.helpers import addresses_of, node_name, parse_ip, provided_node_ip, provider_id_of
from libcloud_provider.cloud import Cloud
from libcloud_provider.machines import Machine, machine_of, metadata
from libcloud_provider.profiles import EXISTS, Parts, Profile
from libcloud_provider.providerids import ProviderIDs

T = TypeVar("T")

Found = Mapping[str, "Machine | CloudProviderError"]
"""By node name: the machine, or why there is none. `InstanceNotFound` is the cloud's word that it
is gone."""


class Machines:
    """Finds the machines of nodes. Remembers nothing. Thread-safe."""

    def __init__(
        self, cloud: Cloud, profile: Profile, ids: ProviderIDs, region: str, match: Sequence[str], absent: str
    ) -> None:
        self.ids = ids
        self._cloud = cloud
        self._profile = profile
        self._region = region
        self._match = match
        self._absent = absent

    def listed(self) -> Sequence[Machine]:
        """Every machine that the driver lists. Raises the contract's errors."""
        nodes = self._cloud.ask("list machines", lambda driver: _nodes(driver, self._profile))
        machines = [machine_of(node, self._profile, self._region) for node in nodes]
        # A listing in pages may have a machine twice.
        return list({self.ids.key(one.parts): one for one in machines}.values())

    def find(self, nodes: Sequence[V1Node]) -> Found:
        """The machine of each node, or an error in its place. Raises what concerns all of them."""
        answers: dict[str, Machine | CloudProviderError] = {}
        asked: dict[str, Parts | None] = {}
        for node in nodes:
            try:
                asked[node_name(node)] = self._parts(provider_id_of(node)) if provider_id_of(node) else None
            except CloudProviderError as error:
                answers[node_name(node)] = error
        if not asked:
            return answers
        listed = self.listed()
        by_key = {self.ids.key(machine.parts): machine for machine in listed}
        for node in nodes:
            name = node_name(node)
            if name in asked:
                parts = asked[name]
                if parts is None:
                    answers[name] = self._by_looks(node, listed)
                else:
                    answers[name] = by_key.get(self.ids.key(parts)) or self._single(parts)
        return answers

    def _parts(self, provider_id: str) -> Parts:
        """What the provider ID says. Raises for one of another region, where the cloud would answer
        that it does not know the machine."""
        parts = self.ids.read(provider_id)
        if parts.zone and self._region and self._profile.region_of_zone:
            found = re.fullmatch(self._profile.region_of_zone, parts.zone)
            if found is None or found[1] != self._region:
                raise CloudProviderError(f"{provider_id} does not lie in {self._region}, which this provider asks")
        return parts

    def is_ours(self, provider_id: str) -> bool:
        """Whether this is the provider ID of a machine that this provider can ask about, be it
        there or not."""
        try:
            self._parts(provider_id)
        except CloudProviderError:
            return False
        return True

    def _single(self, parts: Parts) -> Machine | CloudProviderError:
        """The answer about a machine that the listing lacks. An error of the cloud's is this
        machine's alone; running out of time is raised."""
        shown = about = parts.id or parts.name
        question = self._profile.question
        if question is None:
            if self._absent == "gone":
                return InstanceNotFound(f"the cloud's listing has no machine {shown}")
            return CloudProviderError(
                f"the cloud's listing lacks machine {shown}, and libcloud's driver {self._cloud.driver} cannot ask "
                "about one machine. If its listings are always complete, set `absent: gone`"
            )

        try:
            node = self._cloud.ask_about_one(
                f"ask for machine {shown}", about, lambda driver: question(driver, parts), gone=self._profile.gone
            )
        except CallInterrupted:
            raise
        except CloudProviderError as error:
            return error
        if node is None:
            return InstanceNotFound(f"the cloud says that there is no machine {shown}")
        if node is EXISTS:
            return CloudProviderError(f"machine {shown} exists, and the cloud's listing lacks it: asked again later")
        return machine_of(node, self._profile, self._region)

    def _by_looks(self, node: V1Node, listed: Sequence[Machine]) -> Machine | CloudProviderError:
        """The machine of a node without a provider ID: the only one with its name, or else with one
        of its addresses. Machines that are gone are not looked at."""
        name, alive = node_name(node), [one for one in listed if one.state is not InstanceState.GONE]
        wanted = {name.casefold(), name.partition(".")[0].casefold()}
        addresses = _addresses(node)
        for way in self._match:
            exact = [one for one in alive if name.casefold() in one.names] if way == "name" else []
            near = [one for one in alive if (wanted & one.names if way == "name" else addresses & one.addresses)]
            found = exact or near
            if len(found) == 1:
                return found[0]
            if found:
                ids = ", ".join(sorted(one.parts.id or one.parts.name for one in found))
                return CloudProviderError(f"{len(found)} machines have the {way} of node {name}: {ids}")
        way = " or ".join(self._match)
        return InstanceNotFound(
            f"no machine has the {way} of node {name} (machines that the cloud lists: {len(alive)})"
        )


class LibcloudInstances(InstancesV2, InstancesBatch):
    """Machines, found by provider ID, or by name or address while a node has none."""

    max_batch = 100

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    @override
    def instance_exists(self, node: V1Node) -> bool:
        try:
            return _only(self.instances_state([node])) is not InstanceState.GONE
        except InstanceNotFound:
            return False

    @override
    def instance_shutdown(self, node: V1Node) -> bool:
        found = _only(self.instances_state([node]))
        if found is InstanceState.GONE:
            raise InstanceNotFound(f"the machine of node {node_name(node)} is terminated")
        return found is InstanceState.SHUTDOWN

    @override
    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        return _only(self.instances_metadata([node]))

    @override
    def instances_state(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceState | CloudProviderError]:
        return {
            name: found if isinstance(found, CloudProviderError) else found.state or _unclear(found)
            for name, found in self._machines.find(nodes).items()
        }

    @override
    def instances_metadata(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceMetadata | CloudProviderError]:
        result: dict[str, InstanceMetadata | CloudProviderError] = {}
        for name, found in self._machines.find(nodes).items():
            if isinstance(found, CloudProviderError):
                result[name] = found
            elif found.state is InstanceState.GONE:
                result[name] = InstanceNotFound(f"the machine {found.parts.id} is terminated")
            else:
                try:
                    result[name] = metadata(name, found, self._machines.ids)
                except CloudProviderError as error:
                    result[name] = error
        return result


def targets(machines: Machines, nodes: Sequence[V1Node]) -> tuple[Sequence[Machine], Mapping[str, CloudProviderError]]:
    """The machines behind those nodes that have a provider ID of ours; other nodes, and machines
    that are gone, are left out: a forged provider ID spoils nothing. And, by the node's name, why
    one is not known now."""
    ours = [node for node in nodes if machines.is_ours(provider_id_of(node))]
    result: dict[str, Machine] = {}
    unknown: dict[str, CloudProviderError] = {}
    for name, found in machines.find(ours).items():
        if isinstance(found, Machine) and found.state is not InstanceState.GONE:
            result[found.parts.id] = found
        elif isinstance(found, CloudProviderError) and not isinstance(found, InstanceNotFound):
            unknown[name] = found
    return [result[one] for one in sorted(result)], unknown


def _nodes(driver: Any, profile: Profile) -> Sequence[Any]:
    nodes = profile.nodes(driver)
    listed = list(nodes) if isinstance(nodes, list | tuple) else None
    if listed is None or not all(hasattr(one, "private_ips") for one in listed):
        raise TypeError("the listing is no list of machines")
    return listed


def _addresses(node: V1Node) -> frozenset[str]:
    """The node's IP addresses: what its kubelet asks for, and what its status has."""
    texts = [*(provided_node_ip(node) or "").split(","), *(one.address for one in addresses_of(node))]
    return frozenset(str(ip) for text in texts if (ip := parse_ip(text)) is not None)


def _unclear(machine: Machine) -> CloudProviderError:
    return CloudProviderError(
        f"libcloud says that machine {machine.parts.id} is terminated, which with this driver may also mean that it is "
        "switched off"
    )


def _only(answers: Mapping[str, T | CloudProviderError]) -> T:
    [answer] = answers.values()
    if isinstance(answer, CloudProviderError):
        raise answer
    return answer


__all__ = ["LibcloudInstances", "Machines", "Parts", "targets"]
