"""Scenarios P: the pod CIDRs that the cloud chose for its machines."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from kubernetes.client.models.v1_node import V1Node

from cloudprovider.checks import answers
from cloudprovider.errors import CloudProviderError
from cloudprovider.internal.readonly import read_only
from cloudprovider.ips import IPNetwork, parse_network
from cloudprovider.podcidrs import PodCIDRs
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.bench import name_of
from cloudprovider.testing.conformance.calls import attempt, right, unchanged
from cloudprovider.testing.conformance.features import Feature
from cloudprovider.testing.conformance.lab import new_node
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.trial import Trial, declared

_CIDRS = Feature.POD_CIDRS
_MACHINES = ("create_machine",)


def _pod_cidrs(trial: Trial) -> PodCIDRs:
    return declared(trial.provider.pod_cidrs(), "pod_cidrs")


def _chosen(answer: object, node: V1Node) -> list[IPNetwork]:
    """The ranges that an answer has for the node; none where it has no ranges."""
    value = answer.get(name_of(node)) if isinstance(answer, Mapping) else None
    found = []
    for text in value if isinstance(value, list | tuple) else ():
        with suppress(ValueError):  # P1 tells what is wrong with a range
            found.append(parse_network(str(text)))
    return found


def _ranges(trial: Trial, node: V1Node) -> list[IPNetwork]:
    answer = _pod_cidrs(trial).pod_cidrs([node])
    assert _chosen(answer, node), f"pod_cidrs has {answer.get(name_of(node))!r} for {name_of(node)}"
    return _chosen(answer, node)


class PodCIDRScenarios(ConformanceBase):
    """`PodCIDRs`."""

    @scenario("P1", _CIDRS, hooks=_MACHINES)
    def test_p1_a_machine_has_ranges(self, trial: Trial) -> None:
        """A machine has a range of each IP family at most, as the API server takes them, under the
        node's name."""
        found, node = _pod_cidrs(trial), trial.machine()

        def look() -> None:
            answer: Any = found.pod_cidrs([node])
            assert isinstance(answer, Mapping), f"pod_cidrs answered {answer!r}, not a mapping"
            assert name_of(node) in answer, f"pod_cidrs says nothing about {name_of(node)}; it has {sorted(answer)}"
            right(f"pod_cidrs of {name_of(node)}", answers.pod_cidrs, answer[name_of(node)])
            assert answer[name_of(node)], f"pod_cidrs has chosen nothing for {name_of(node)}"

        trial.eventually(look)

    @scenario("P2", _CIDRS, hooks=_MACHINES)
    def test_p2_ranges_never_change(self, trial: Trial) -> None:
        """What was answered for a machine is answered again, in the same order, also by a new
        provider."""
        node = trial.machine()
        first = trial.eventually(partial(_ranges, trial, node))
        # From a cache a provider answers as before; another one has to ask the cloud.
        renewed = trial.bench.another_provider().pod_cidrs()
        assert renewed is not None, "after a restart, pod_cidrs() returns None"
        for who, found in (("the same provider", _pod_cidrs(trial)), ("a new provider", renewed)):
            again = _chosen(found.pod_cidrs([node]), node)
            assert again == first, f"pod_cidrs has {first} for {name_of(node)}, and then {who} has {again}"

    @scenario("P3", _CIDRS, hooks=_MACHINES)
    def test_p3_ranges_do_not_overlap(self, trial: Trial) -> None:
        """No two machines have ranges that overlap."""
        nodes = trial.machines(2)
        ranges = [trial.eventually(partial(_ranges, trial, node)) for node in nodes]
        for one, other in itertools.product(*ranges):
            assert one.version != other.version or not one.overlaps(other), (
                f"pod_cidrs has {one} for {name_of(nodes[0])} and {other} for {name_of(nodes[1])}"
            )

    @scenario("P4", _CIDRS, hooks=("create_machine", "delete_machine"))
    def test_p4_a_deleted_machine_has_none(self, trial: Trial) -> None:
        """A deleted machine has no ranges, and the others in the call are answered."""
        found, running, deleted = _pod_cidrs(trial), trial.machine(), trial.deleted()

        def look() -> None:
            answer = found.pod_cidrs([deleted, running])
            assert not _chosen(answer, deleted), f"pod_cidrs has {answer[name_of(deleted)]!r} for a deleted machine"
            assert _chosen(answer, running), (
                f"beside a deleted machine, pod_cidrs has {answer.get(name_of(running))!r} for a running one"
            )

        trial.eventually(look)

    @scenario("P5", _CIDRS, hooks=_MACHINES)
    def test_p5_max_batch_is_served(self, trial: Trial) -> None:
        """`max_batch` is a number, at least 1, and a call about that many nodes is answered."""
        found, node = _pod_cidrs(trial), trial.machine()
        size = found.max_batch
        nodes = trial.full_batch(size, node)

        def look() -> None:
            outcome = attempt(partial(found.pod_cidrs, nodes))
            assert outcome.error is None, f"pod_cidrs of max_batch = {size} nodes {outcome}"
            assert _chosen(outcome.get(), node), f"pod_cidrs of max_batch = {size} nodes has none for the last of them"

        trial.eventually(look)

    @scenario("P6", _CIDRS)
    def test_p6_another_providers_machine_has_none(self, trial: Trial) -> None:
        """A node with another provider's ID has no ranges of this cloud."""
        trial.needs_ids()
        node = new_node(trial.bench.name("foreign"), provider_id="another-cloud://i-1")
        outcome = attempt(partial(_pod_cidrs(trial).pod_cidrs, [node]))
        assert not _chosen(outcome.value, node), f"pod_cidrs {outcome} for a node of another cloud"

    @scenario("P7", _CIDRS, hooks=("create_machine", "outage"))
    def test_p7_an_outage_is_unknown(self, trial: Trial) -> None:
        """While the cloud cannot answer, the call raises or has errors as values; "not chosen yet"
        is an answer."""
        found, node = _pod_cidrs(trial), trial.machine()
        with trial.outage():
            outcome = attempt(partial(found.pod_cidrs, [node]))
        value = (outcome.value or {}).get(name_of(node))
        assert outcome.error is not None or value is None or isinstance(value, CloudProviderError), (
            f"pod_cidrs {outcome} while the cloud could not answer"
        )

    @scenario("P8", _CIDRS, hooks=_MACHINES)
    def test_p8_the_nodes_are_read_only(self, trial: Trial) -> None:
        """Neither the Nodes that are handed over nor their list are changed."""
        nodes = [read_only(node) for node in trial.machines(2)]
        before = list(nodes)
        with unchanged("pod_cidrs"):
            _pod_cidrs(trial).pod_cidrs(nodes)
        assert nodes == before, "pod_cidrs changed the list of Nodes that it was given"

    @scenario("P9", _CIDRS, hooks=("create_machine", "hang"))
    def test_p9_a_hung_cloud_costs_the_deadline(self, trial: Trial) -> None:
        """While the cloud hangs, a call ends soon after its deadline."""
        node = trial.machine()
        outcome = trial.in_a_hang(partial(_pod_cidrs(trial).pod_cidrs, [node]))
        assert not _chosen(outcome.value, node), f"pod_cidrs {outcome} while the cloud hangs"
