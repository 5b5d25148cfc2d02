"""Answers that are not asked for again: kept for one poll (row N14); type and zone of the older
Instances, asked for at a tenth of the refreshes' pace (row N23)."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import Zone
from controllers.cloudcalls import PRIORITY_NEW, PRIORITY_SWEEP
from controllers.cloudcalls.nodes import memory
from controllers.cloudcalls.nodes.memory import PACE, AnswerCache, Facts
from tests.unit.cloudcalls.support import Capability, Provider, node, world

ADDRESSES = [V1NodeAddress(type="InternalIP", address="10.0.0.1")]


@pytest.mark.row("N14")
def test_an_answer_serves_for_its_time_from_the_question_on_and_no_older_one_replaces_it() -> None:
    answers: AnswerCache[str] = AnswerCache(10.0)
    one = node("n1")
    answers.keep(one, "new", asked_at=105.0, now=106.0)
    answers.keep(one, "old", asked_at=100.0, now=107.0)
    assert answers.recall(one, 114.9) == "new"
    assert answers.recall(one, 115.0) is None


def test_old_answers_are_freed() -> None:
    for ttl in (10, 0):
        answers: AnswerCache[str] = AnswerCache(ttl)
        for i in range(100):
            answers.keep(node(f"n{i}"), "a", asked_at=float(i), now=float(i))
        assert len(answers) == ttl


@pytest.mark.parametrize(
    ("provider_id", "other", "same"),
    [
        ("test://1", {"provider_id": "test://1", "revision": "2"}, True),
        ("test://1", {"provider_id": "test://2"}, False),
        ("test://1", {"provider_id": "test://1", "uid": "another"}, False),
        ("", {}, True),
        ("", {"revision": "2"}, False),
    ],
)
def test_an_answer_is_about_the_instance_or_else_about_the_revision(
    provider_id: str, other: dict[str, Any], same: bool
) -> None:
    answers: AnswerCache[str] = AnswerCache(10.0)
    answers.keep(node("n1", provider_id=provider_id), "a", 0.0, 0.0)
    assert (answers.recall(node("n1", **other), 0.0) == "a") is same


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


def test_another_uid_or_provider_id_is_another_instance_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_LIMIT", 2)
    facts = Facts()
    one = node("n1", provider_id="test://1")
    facts.keep(one, "test://1", ("m5", Zone("z", "r")))
    facts.keep(one, "test://1", ("m5", Zone("z", "r")))
    assert facts.recall(one, "test://1") == ("m5", Zone("z", "r"))
    assert facts.recall(one, "test://2") is None
    assert facts.recall(node("n1", provider_id="test://1", uid="another"), "test://1") is None
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
