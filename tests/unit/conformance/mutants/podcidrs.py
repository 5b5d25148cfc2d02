"""Mutants of P: clouds that choose pod CIDRs, and answer wrongly about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubernetes.client.models.v1_node import V1Node

from cloudprovider import CloudProviderError, InstanceNotFound
from cloudprovider.helpers import provider_id_of
from cloudprovider.testing.conformance.bench import name_of
from cloudprovider.testing.fake.instances import FakePodCIDRs
from tests.unit.conformance.mutants.bench import breaks, broken
from tests.unit.conformance.mutants.ways import answering_each, in_an_outage, unlimited

Answers = Mapping[str, Sequence[str] | CloudProviderError]


broken(
    "P1", FakePodCIDRs, "pod_cidrs",
    answering_each(tuple, lambda found: [text.replace(".0/", ".1/").replace("::/", "::1/") for text in found]),
    "The ranges have host bits, which the API server does not take.",
)  # fmt: skip


@breaks("P2")
class Shuffles(FakePodCIDRs):
    """The order of a machine's ranges is another one each time."""

    asked = 0

    def pod_cidrs(self, nodes: Sequence[V1Node]) -> Answers:
        self.asked += 1
        found = super().pod_cidrs(nodes).items()
        turned = self.asked % 2 == 0
        return {name: one[::-1] if turned and isinstance(one, tuple) else one for name, one in found}


broken(
    "P3", FakePodCIDRs, "pod_cidrs", answering_each(tuple, lambda _: ["10.240.0.0/24"]),
    "Every machine has the same range.",
)  # fmt: skip


broken(
    "P4", FakePodCIDRs, "pod_cidrs", answering_each(InstanceNotFound, lambda _: ["10.250.0.0/24"]),
    "A machine that was deleted has a range still.",
)  # fmt: skip


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


broken(
    "P7", FakePodCIDRs, "pod_cidrs", in_an_outage(lambda nodes: {name_of(node): () for node in nodes}),
    'An error of the cloud is taken for "not chosen yet".',
)  # fmt: skip


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


broken("P9", FakePodCIDRs, "pod_cidrs", unlimited, "Requests have no time limit.")
