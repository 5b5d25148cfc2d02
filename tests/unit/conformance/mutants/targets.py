"""Mutants of L42 to L46: targets, and what would be refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import InvalidService
from cloudprovider.helpers import uid_of
from cloudprovider.testing.fake.loadbalancers import FakeOwningLoadBalancers
from cloudprovider.testing.fake.machines import node_key
from cloudprovider.testing.fake.records import Instance
from tests.unit.conformance.fakelab import UNLISTED
from tests.unit.conformance.mutants.bench import breaks


class _OnlySome(FakeOwningLoadBalancers):
    """Targets are only those machines that are good enough now."""

    def _is_good(self, machine: Instance) -> bool:
        raise NotImplementedError

    def _backends(self, nodes: Sequence[V1Node]) -> tuple[str, ...]:
        found = [(node, self._machines.by_key(*node_key(node))) for node in nodes]
        return super()._backends([node for node, one in found if not isinstance(one, Instance) or self._is_good(one)])


@breaks("L42")
class ChecksBeforeItUpdates(FakeOwningLoadBalancers):
    """The Service is checked before its targets are set, as it is before it is built."""

    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        if service.spec is not None and service.spec.session_affinity == "ClientIP":
            raise InvalidService("session affinity is not supported")
        super().update_load_balancer(cluster_name, service, nodes)


@breaks("L43")
class LeavesOutWhatIsOff(_OnlySome):
    """A machine that is switched off is left out, without a word."""

    def _is_good(self, machine: Instance) -> bool:
        return not machine.shutdown


@breaks("L44")
class BelievesOneListing(_OnlySome):
    """A machine that a listing lacks is taken out."""

    def _is_good(self, machine: Instance) -> bool:
        return UNLISTED not in machine.labels


@breaks("L45")
class FirstOutThenIn(FakeOwningLoadBalancers):
    """Old targets go out before new ones are added."""

    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        present: Any = self.__dict__.setdefault("_present", {})
        stay = [node for node in nodes if node_key(node) in present.get(uid_of(service), ())]
        super().update_load_balancer(cluster_name, service, stay)
        super().update_load_balancer(cluster_name, service, nodes)
        present[uid_of(service)] = {node_key(node) for node in nodes}


@breaks("L46")
class RefusesWhatItBuilds(FakeOwningLoadBalancers):
    """`check_service` refuses session affinity, which is built."""

    def check_service(self, service: V1Service) -> None:
        if service.spec is not None and service.spec.session_affinity == "ClientIP":
            raise InvalidService("session affinity is not supported")
