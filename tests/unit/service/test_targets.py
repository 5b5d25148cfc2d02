"""Which nodes load balancers have, and by what they are told apart: rows S1 and S13."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models.v1_node import V1Node

from cloudprovider.helpers import is_ready
from cloudprovider.wellknown import LABEL_EXCLUDE_BALANCERS, TAINT_TO_BE_DELETED
from controllers.service.targets import NO_TARGETS, TargetSet, describe, targets
from tests.support.controllers import Lister
from tests.unit.service.objects import node

ips = st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1"]), unique=True, max_size=4)
nodes = st.lists(st.tuples(st.sampled_from("abcdef"), ips), unique_by=lambda pair: pair[0], max_size=5)


def _names(found: tuple[V1Node, ...]) -> list[str]:
    return [str(one.metadata.name) for one in found if one.metadata is not None]


def _digest(*found: V1Node, ready_only: bool = False) -> str:
    return targets(found, ready_only).digest


@pytest.mark.row("S1")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"deleted": True}, False),
        ({"labels": {LABEL_EXCLUDE_BALANCERS: ""}}, False),
        ({"labels": {LABEL_EXCLUDE_BALANCERS: "true"}}, False),
        ({"labels": {LABEL_EXCLUDE_BALANCERS: "false"}}, True),
        ({"labels": {"other": "true"}}, True),
        ({"taints": [TAINT_TO_BE_DELETED]}, False),
        ({"taints": ["other", TAINT_TO_BE_DELETED]}, False),
        ({"taints": ["node.kubernetes.io/unschedulable"]}, True),
        ({"ready": "False"}, True),
    ],
)
def test_which_nodes_are_targets(fields: dict[str, Any], expected: bool) -> None:
    assert targets([node(**fields)], False).nodes == ((node(**fields),) if expected else ())


@pytest.mark.row("S32")
def test_no_targets_are_explained_by_counts() -> None:
    left_out = {LABEL_EXCLUDE_BALANCERS: ""}
    found = targets(
        [
            node("a", labels=left_out),
            node("b", labels=left_out),
            node("c", deleted=True, labels=left_out),
            node("d", taints=[TAINT_TO_BE_DELETED]),
        ],
        False,
    )
    assert found.nodes == ()
    assert found.why_none == (
        "1 about to be removed by the cluster autoscaler, 1 being deleted, "
        "2 left out by the label node.kubernetes.io/exclude-from-external-load-balancers"
    )
    assert targets([], False).why_none == "the cluster has no nodes"
    assert targets([node("a", labels=left_out), node("b")], False).why_none == ""


def test_a_bare_node_is_one() -> None:
    bare = V1Node.from_dict({"metadata": {"name": "n1", "resourceVersion": "1"}})
    assert bare is not None
    assert targets([bare], False).nodes == (bare,)
    assert not is_ready(bare)
    assert describe(bare) == "n1 -"


def test_asked_for_ready_nodes_only_others_are_left_out_unless_none_is_ready() -> None:
    some = [node("b", ready="False"), node("a"), node("c", ready="Unknown")]
    assert _names(targets(some, True).nodes) == ["a"]
    assert _names(targets(some, False).nodes) == ["a", "b", "c"]
    none = [some[0], some[2]]
    assert targets(none, True) == targets(none, False)
    assert _names(targets(none, True).nodes) == ["b", "c"]


@pytest.mark.row("S13")
@given(nodes, st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_addresses_does_not_matter(made: list[tuple[str, list[str]]], random: Any) -> None:
    one = targets([node(name, *addresses) for name, addresses in made], False)
    shuffled = [(name, random.sample(addresses, len(addresses))) for name, addresses in made]
    random.shuffle(shuffled)
    other = targets([node(name, *addresses) for name, addresses in shuffled], False)
    assert other.digest == one.digest
    assert _names(other.nodes) == _names(one.nodes) == sorted(name for name, _ in made)


@pytest.mark.row("S1")
@given(nodes, nodes)
def test_names_and_addresses_do(one: list[tuple[str, list[str]]], other: list[tuple[str, list[str]]]) -> None:
    def content(made: list[tuple[str, list[str]]]) -> set[tuple[str, frozenset[str]]]:
        return {(name, frozenset(addresses)) for name, addresses in made}

    digests = [_digest(*(node(name, *addresses) for name, addresses in made)) for made in (one, other)]
    assert (digests[0] == digests[1]) is (content(one) == content(other))


@pytest.mark.row("S1")
def test_so_do_provider_ids_and_the_addresses_types_and_nothing_else_does() -> None:
    plain = node("a", "10.0.0.1")
    external = node("a", "10.0.0.1")
    assert external.status is not None
    assert external.status.addresses
    external.status.addresses[0].type = "ExternalIP"
    assert len({_digest(plain), _digest(external), _digest(node("a", "10.0.0.1", provider_id="fake://other"))}) == 3
    same = {"labels": {"pool": "x"}, "taints": ["other"], "ready": "False", "version": "9"}
    assert _digest(node("a", "10.0.0.1", **same)) == _digest(plain)
    assert _digest() == _digest(node("a", deleted=True)) == NO_TARGETS == "none", "a note can hold it"


def test_the_digest_never_changes_its_form() -> None:
    # It is remembered on users' Services: another value here means that an upgrade updates every
    # load balancer.
    assert _digest(node("b", "10.0.0.2", "fd00::2"), node("a", "10.0.0.1")) == "9fedd8450a82a0db"


def _set(*made: V1Node, ready_only: bool = False) -> tuple[TargetSet, dict[str, V1Node]]:
    lister: Lister[V1Node] = Lister(dict(zip(_names(made), made, strict=True)))
    return TargetSet(cast(Any, lister), ready_only), lister.objects


def test_the_set_is_worked_out_anew_when_told_and_only_then() -> None:
    present, cached = _set(node("a"))
    first = present.current()
    cached["b"] = node("b")
    assert present.current() is first
    present.invalidate()
    assert _names(present.current().nodes) == ["a", "b"]


@pytest.mark.row("S1")
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, node("a"), True),
        (node("a"), None, True),
        (None, node("a", deleted=True), False),
        (node("a", deleted=True), None, False),
        (node("a"), node("a", deleted=True), True),
        (node("a"), node("a", labels={LABEL_EXCLUDE_BALANCERS: ""}), True),
        (node("a", "10.0.0.1"), node("a", "10.0.0.2"), True),
        (node("a"), node("a", provider_id="fake://other"), True),
        (node("a"), node("a", version="2", labels={"x": "y"}), False),
        (node("a"), node("a", ready="False"), False),
        (node("a"), node("a", taints=[TAINT_TO_BE_DELETED]), False),
        (node("a", taints=[TAINT_TO_BE_DELETED]), node("a"), True),
        (node("a", taints=[TAINT_TO_BE_DELETED]), None, True),
    ],
)
def test_which_changes_of_a_node_may_change_the_set(old: V1Node | None, new: V1Node | None, expected: bool) -> None:
    assert _set()[0].differs(old, new) is expected


@pytest.mark.row("S1")
def test_readiness_counts_where_it_is_asked_for() -> None:
    ready, broken = node("a"), node("a", ready="False")
    assert _set(ready_only=True)[0].differs(ready, broken)
    assert _digest(ready, node("b", ready="False"), ready_only=True) != _digest(ready, node("b"), ready_only=True)
