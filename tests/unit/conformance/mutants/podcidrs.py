"""Mutants of P: clouds that choose pod CIDRs, and answer wrongly about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kubernetes.client.models.v1_node import V1Node

from cloudprovider import Call, CloudProviderError, InstanceNotFound, call_scope
from cloudprovider.helpers import provider_id_of
from cloudprovider.testing.conformance.trial import name_of
from cloudprovider.testing.fake.instances import FakePodCIDRs
from tests.unit.conformance.mutants.bench import breaks
from tests.unit.conformance.mutants.nodes import is_outage

Answers = Mapping[str, Sequence[str] | CloudProviderError]


def _changed(answers: Answers, change: Callable[[Sequence[str]], Sequence[str]]) -> Answers:
    """The answers with other ranges; errors stay."""
    return {name: one if isinstance(one, CloudProviderError) else change(one) for name, one in answers.items()}


@breaks("P1")
class HostBits(FakePodCIDRs):
    """The ranges have host bits, which the API server does not take."""

    def pod_cidrs(self, nodes: Sequence[V1Node]) -> Answers:
        return _changed(
            super().pod_cidrs(nodes),
            lambda found: [text.replace(".0/", ".1/").replace("::/", "::1/") for text in found],
        )


@breaks("P2")
class Shuffles(FakePodCIDRs):
    """The order of a machine's ranges is another one each time."""

    asked = 0

    def pod_cidrs(self, nodes: Sequence[V1Node]) -> Answers:
        self.asked += 1
        return _changed(super().pod_cidrs(nodes), lambda found: found if self.asked % 2 else found[::-1])


@breaks("P3")
class OneForAll(FakePodCIDRs):
    """Every machine has the same range."""

    def pod_cidrs(self, nodes: Sequence[V1Node]) -> Answers:
        return _changed(super().pod_cidrs(nodes), lambda _: ["10.240.0.0/24"])


@breaks("P4")
class RangesOutliveMachines(FakePodCIDRs):
    """A machine that was deleted has a range still."""

    def pod_cidrs(self, nodes: Sequence[V1Node]) -> Answers:
        found = super().pod_cidrs(nodes)
        return {name: ["10.250.0.0/24"] if isinstance(one, InstanceNotFound) else one for name, one in found.items()}


@breaks("P5")
class PromisesTooMuch(FakePodCIDRs):
    """`max_batch` is more than the cloud takes in one request."""

    @property
    def max_batch(self) -> int:
        return super().max_batch + 1

    def pod_cidrs(self, nodes: Sequence[V1Node]) -> Answers:
        if len(nodes) >= self.max_batch:
            raise CloudProviderError(f"{len(nodes)} nodes are too many")
        return super().pod_cidrs(nodes)


@breaks("P6")
class TakesAnyNode(FakePodCIDRs):
    """A node with another cloud's provider ID gets a range."""

    def pod_cidrs(self, nodes: Sequence[V1Node]) -> Answers:
        foreign = [name_of(node) for node in nodes if provider_id_of(node).startswith("another-cloud://")]
        return {**super().pod_cidrs(nodes), **{name: ["10.250.0.0/24"] for name in foreign}}


@breaks("P7")
class NotChosenInAnOutage(FakePodCIDRs):
    """An error of the cloud is taken for "not chosen yet"."""

    def pod_cidrs(self, nodes: Sequence[V1Node]) -> Answers:
        try:
            return super().pod_cidrs(nodes)
        except CloudProviderError as error:
            if not is_outage(error):
                raise
            return {name_of(node): () for node in nodes}


@breaks("P8")
class WritesItself(FakePodCIDRs):
    """The range is written on the Node that was handed over."""

    def pod_cidrs(self, nodes: Sequence[V1Node]) -> Answers:
        found = super().pod_cidrs(nodes)
        for node in nodes:
            ranges = found.get(name_of(node))
            if node.spec is not None and ranges and not isinstance(ranges, CloudProviderError):
                node.spec.pod_cidr = ranges[0]
        return found


@breaks("P9")
class NoTimeLimit(FakePodCIDRs):
    """Requests have no time limit."""

    def pod_cidrs(self, nodes: Sequence[V1Node]) -> Answers:
        with call_scope(Call()):
            return super().pod_cidrs(nodes)
