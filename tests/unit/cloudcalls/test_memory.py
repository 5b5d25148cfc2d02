"""Answers that are not asked for again: joined while they are asked for, kept for one poll; type
and zone of the older Instances, asked for at a tenth of the refreshes' pace (row N23)."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import Zone
from controllers.cloudcalls import PRIORITY_NEW, PRIORITY_SWEEP
from controllers.cloudcalls.nodes.memory import PACE, AnswerCache, Facts, identity
from tests.unit.cloudcalls.support import Capability, Provider, node, world

ADDRESSES = [V1NodeAddress(type="InternalIP", address="10.0.0.1")]


def test_identity_is_the_instance_or_else_the_revision() -> None:
    known = node("n1", provider_id="test://1")
    assert identity(known) == identity(node("n1", provider_id="test://1", revision="2"))
    assert identity(known) != identity(node("n1", provider_id="test://2"))
    assert identity(node("n1")) == identity(node("n1"))
    assert identity(node("n1")) != identity(node("n1", revision="2"))
    recreated = node("n1", provider_id="test://1")
    assert recreated.metadata is not None
    recreated.metadata.uid = "another"
    assert identity(known) != identity(recreated)


@pytest.mark.row("N14")
def test_kept_for_its_time_counted_from_the_question() -> None:
    answers: AnswerCache[str] = AnswerCache(10.0)
    answers.settle("k", None, "a", asked_at=100.0, now=105.0)
    assert answers.recall("k", 109.9) == "a"
    assert answers.recall("k", 110.0) is None
    assert answers.recall("other", 105.0) is None


def test_nothing_is_kept_without_a_time_and_errors_never() -> None:
    answers: AnswerCache[str] = AnswerCache(0.0)
    answers.settle("k", None, "a", 100.0, 100.0)
    assert answers.recall("k", 100.0) is None
    assert len(answers) == 0
    keeping: AnswerCache[str] = AnswerCache(10.0)
    keeping.settle("k", None, ValueError(), 100.0, 100.0)
    assert len(keeping) == 0


def test_an_older_answer_does_not_replace_a_newer_one() -> None:
    answers: AnswerCache[str] = AnswerCache(10.0)
    answers.settle("k", None, "new", asked_at=105.0, now=106.0)
    answers.settle("k", None, "old", asked_at=100.0, now=107.0)
    assert answers.recall("k", 108.0) == "new"


def test_old_answers_are_freed() -> None:
    answers: AnswerCache[str] = AnswerCache(10.0)
    for i in range(100):
        answers.settle(i, None, "a", asked_at=float(i), now=float(i))
    assert len(answers) == 10


def test_joining() -> None:
    answers: AnswerCache[str] = AnswerCache(0.0)
    told: list[Any] = []
    first, second, third = object(), object(), object()
    assert not answers.join("k", first, 0, told.append)
    assert answers.join("k", second, 0, told.append)
    assert answers.join("k", third, -10, told.append)
    answers.settle("k", second, "not the one who asks", 0.0, 0.0)
    assert told == []
    answers.settle("k", first, "answer", 0.0, 0.0)
    assert told == ["answer", "answer"]
    assert not answers.join("k", second, 0, told.append), "nobody is asking any more"


def older() -> tuple[Capability, Provider]:
    """A provider that has Instances and Zones alone; the capability notes the calls."""
    cloud = Capability(
        node_addresses_by_provider_id=lambda _: ADDRESSES,
        instance_type_by_provider_id=lambda _: "m5",
        get_zone_by_provider_id=lambda _: Zone("z", "r"),
        node_addresses=lambda _: ADDRESSES,
        instance_type=lambda _: "m5",
        get_zone_by_node_name=lambda _: Zone("z", "r"),
    )
    return cloud, Provider(instances=cloud, zones=cloud)


@pytest.mark.row("N23")
def test_a_refresh_asks_for_addresses_and_seldom_for_type_and_zone() -> None:
    cloud, provider = older()
    fleet = [node(f"n{number}", provider_id=f"test://n{number}") for number in range(20)]
    with world(provider, cache_ttl=0) as w:
        for answer in w.fetch(fleet, priority=PRIORITY_NEW).values():
            assert (answer.instance_type, answer.zone, answer.region) == ("m5", "z", "r")
        assert len(cloud.calls) == 60, "nodes that join get everything"
        rounds = []
        for _ in range(3 * PACE):
            before = len(cloud.calls)
            for answer in w.fetch(fleet, priority=PRIORITY_SWEEP).values():
                assert (answer.instance_type, answer.zone, answer.region) == ("m5", "z", "r")
            rounds.append(len(cloud.calls) - before)
    assert cloud.count("node_addresses_by_provider_id") == 20 * (3 * PACE + 1)
    assert sum(rounds) <= 20 * 3 * PACE + 2 * 20 * 4, "a tenth of the pace, and once more at the first"
    assert max(rounds) < 60, "nodes that joined together are not asked about together"


def test_a_change_of_type_is_seen_within_ten_refreshes() -> None:
    cloud, provider = older()
    one = node("n1", provider_id="test://n1")
    with world(provider, cache_ttl=0) as w:
        w.fetch([one], priority=PRIORITY_NEW)
        cloud.instance_type_by_provider_id = lambda _: "huge"  # type: ignore[attr-defined]
        types = [w.fetch([one], priority=PRIORITY_SWEEP)["n1"].instance_type for _ in range(PACE)]
        assert types[-1] == "huge"
        assert w.fetch([one], priority=PRIORITY_NEW)["n1"].instance_type == "huge"


def test_another_uid_or_provider_id_is_another_instance_and_memory_is_bounded() -> None:
    facts = Facts(limit=2)
    one = node("n1", provider_id="test://1")
    facts.keep(one, "test://1", ("m5", Zone("z", "r")))
    facts.keep(one, "test://1", ("m5", Zone("z", "r")))
    assert facts.recall(one, "test://1") == ("m5", Zone("z", "r"))
    assert facts.recall(one, "test://2") is None
    other = node("n1", provider_id="test://1")
    assert other.metadata is not None
    other.metadata.uid = "another"
    assert facts.recall(other, "test://1") is None
    for name in ("n2", "n3", "n4"):
        facts.keep(node(name), "", ("m5", Zone()))
    assert len(facts) == 2
    facts.forget("n4")
    facts.forget("n4")
    assert len(facts) == 1


def test_what_is_kept_of_a_node_goes_with_it() -> None:
    cloud, provider = older()
    one = node("n1", provider_id="test://n1")
    with world(provider, cache_ttl=0) as w:
        w.fetch([one], priority=PRIORITY_NEW)
        w.calls.forget_node("n1")
        w.fetch([one], priority=PRIORITY_SWEEP)
    assert cloud.count("instance_type_by_provider_id") == 2
