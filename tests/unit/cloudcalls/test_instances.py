"""How one node is asked about: the state by InstancesV2, and the older Instances with Zones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import (
    CallDeadlineExceeded,
    CloudProviderError,
    InstanceMetadata,
    InstanceNotFound,
    InstancesBatch,
    InstanceState,
    NotImplementedByProvider,
    RetryError,
    Throttled,
    Zone,
)
from cloudprovider.checks import olderinstances
from cloudprovider.checks.olderinstances import PACE, OlderInstances
from controllers.cloudcalls.answers import CallFailed, Contradiction, InvalidAnswer
from controllers.runtime.cache import key_of
from tests.unit.cloudcalls.support import Capability, Provider, metadata, node, world

ADDRESSES = (V1NodeAddress(type="InternalIP", address="10.0.0.1"),)
NOT_FOUND, NOT_IMPLEMENTED = InstanceNotFound("gone"), NotImplementedByProvider("no")
FAILED = OSError("api down")


class Cloud:
    """Answers by method name; notes (method, argument) of each call."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._answers = answers
        self.asked: list[tuple[str, Any]] = []

    def __getattr__(self, method: str) -> Any:
        if method not in self._answers:
            raise AttributeError(method)

        def call(*args: Any) -> Any:
            self.asked.append((method, args[0] if args else None))
            answer = self._answers[method]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def methods(self) -> list[str]:
        return [method for method, _ in self.asked]


def legacy_metadata(cloud: Cloud, provider_id: str = "", zones: bool = True) -> Any:
    """What the whole gateway says."""
    with world(Provider(instances=cloud, zones=cloud if zones else None)) as w:
        answer = w.fetch([node("n1", provider_id=provider_id)])["n1"]
    if isinstance(answer, Exception):
        raise answer
    return answer


GOOD: dict[str, Any] = {
    "instance_id": "i-1",
    "node_addresses_by_provider_id": ADDRESSES,
    "instance_type_by_provider_id": "m5",
    "get_zone_by_provider_id": Zone("z", "r"),
    "node_addresses": ADDRESSES,
    "instance_type": "m5-by-name",
    "get_zone_by_node_name": Zone("z2", "r2"),
    "instance_exists_by_provider_id": True,
    "instance_shutdown_by_provider_id": False,
}


# ---- InstancesV2


def v2_state(answers: Mapping[str, Any]) -> tuple[Any, list[str]]:
    cloud = Cloud(answers)
    with world(Provider(instances_v2=cloud)) as w:
        return w.fetch_state([node("n1")])["n1"], cloud.methods()


@pytest.mark.parametrize(
    ("exists", "shutdown", "state", "calls"),
    [
        (True, False, InstanceState.RUNNING, 2),
        (True, True, InstanceState.SHUTDOWN, 2),
        (True, NOT_IMPLEMENTED, InstanceState.RUNNING, 2),
        (False, None, InstanceState.GONE, 1),
        (NOT_FOUND, None, InstanceState.GONE, 1),
    ],
)
def test_state_of_v2(exists: Any, shutdown: Any, state: InstanceState, calls: int) -> None:
    found, methods = v2_state({"instance_exists": exists, "instance_shutdown": shutdown})
    assert found is state
    assert methods == ["instance_exists", "instance_shutdown"][:calls]


# ---- "gone" by every method


class Listing(InstancesBatch):
    """Calls the instance gone of every node whose name does not begin with "here"."""

    max_batch = 100

    def __init__(self) -> None:
        self.asked: list[int] = []

    def instances_metadata(self, nodes: Sequence[V1Node]) -> Mapping[str, Any]:
        return {}

    def instances_state(self, nodes: Sequence[V1Node]) -> Mapping[str, Any]:
        self.asked.append(len(nodes))
        return {
            key_of(one): InstanceState.RUNNING if key_of(one).startswith("here") else InstanceState.GONE
            for one in nodes
        }


@pytest.mark.row("P6")
@pytest.mark.parametrize(
    ("exists", "expected"),
    [
        (False, InstanceState.GONE),
        (NOT_FOUND, InstanceState.GONE),
        (NOT_IMPLEMENTED, InstanceState.GONE),
        (True, Contradiction),
        (CloudProviderError("the cloud is away"), CloudProviderError),
    ],
)
def test_what_the_batch_calls_gone_is_asked_of_the_other_method(exists: Any, expected: Any) -> None:
    one, batch = Cloud({"instance_exists": exists}), Listing()
    nodes = [node("here"), node("n1"), node("n2")]
    with world(Provider(instances_v2=one, instances_batch=batch)) as w:
        found = w.fetch_state(nodes, confirm={"here", "n1"})
        assert one.methods() == ["instance_exists"]
        said = found["n1"]
        assert said is expected or isinstance(said, expected)
        if expected is Contradiction:
            assert "instances_state" in str(said)
            assert "instance_exists" in str(said)
    assert (found["here"], found["n2"]) == (InstanceState.RUNNING, InstanceState.GONE)
    assert batch.asked == [3]


@pytest.mark.row("P6")
def test_a_provider_of_one_capability_is_asked_as_ever() -> None:
    batch, one = Listing(), Cloud({"instance_exists": False})
    with world(Provider(instances_batch=batch)) as w:
        assert w.fetch_state([node("n1")], confirm={"n1"})["n1"] is InstanceState.GONE
    with world(Provider(instances_v2=one)) as w:
        assert w.fetch_state([node("n1")], confirm={"n1"})["n1"] is InstanceState.GONE
    assert one.methods() == ["instance_exists"]


@pytest.mark.row("P6")
def test_a_scale_in_costs_one_question_for_each_node_that_goes() -> None:
    one, batch = Cloud({"instance_exists": False}), Listing()
    gone, here = [node(f"n{i}") for i in range(900)], [node(f"here{i}") for i in range(30)]
    with world(Provider(instances_v2=one, instances_batch=batch)) as w:
        for confirm in (set(), {key_of(each) for each in gone}):
            w.fetch_state([*gone, *here], confirm=confirm)
    assert len(batch.asked) == 2 * 10
    assert len(one.methods()) == 900


@pytest.mark.parametrize("answer", [None, 0, "", [], ValueError(), Throttled(), NOT_IMPLEMENTED, RetryError("x", 1)])
def test_nothing_else_is_ever_gone(answer: Any) -> None:
    found, _ = v2_state({"instance_exists": answer})
    assert isinstance(found, Exception)
    assert not isinstance(found, InstanceNotFound)


def test_exists_and_then_not_found_is_unknown() -> None:
    assert isinstance(v2_state({"instance_exists": True, "instance_shutdown": NOT_FOUND})[0], InvalidAnswer)


def test_metadata_of_v2() -> None:
    v2 = Capability(instance_metadata=lambda n: metadata("n1", provider_id=""))
    with world(Provider(instances_v2=v2)) as w:
        assert w.fetch([node("n1", provider_id="test://own")])["n1"].provider_id == "test://own"
        wrong = w.fetch([node("n1")])["n1"]
    assert isinstance(wrong, InvalidAnswer)
    assert "neither has the node" in str(wrong)


# ---- Instances and Zones


def test_by_provider_id_first() -> None:
    cloud = Cloud(GOOD)
    found = legacy_metadata(cloud, "test://own")
    assert found == InstanceMetadata("test://own", "m5", ADDRESSES, "z", "r")
    assert cloud.asked == [
        ("node_addresses_by_provider_id", "test://own"),
        ("instance_type_by_provider_id", "test://own"),
        ("get_zone_by_provider_id", "test://own"),
    ]


def test_the_provider_id_is_asked_by_name_when_the_node_has_none() -> None:
    cloud = Cloud(GOOD)
    assert legacy_metadata(cloud).provider_id == "test://i-1"
    assert cloud.asked[0] == ("instance_id", "n1")
    assert cloud.asked[1] == ("node_addresses_by_provider_id", "test://i-1")


def test_providers_without_provider_ids_are_asked_by_name() -> None:
    cloud = Cloud({**GOOD, "instance_id": NOT_IMPLEMENTED})
    assert legacy_metadata(cloud) == InstanceMetadata("", "m5-by-name", ADDRESSES, "z2", "r2")
    assert cloud.asked == [
        ("instance_id", "n1"),
        ("node_addresses", "n1"),
        ("instance_type", "n1"),
        ("get_zone_by_node_name", "n1"),
    ]


@pytest.mark.parametrize(
    ("error", "kind"),
    [(NOT_FOUND, InstanceNotFound), (CloudProviderError("down"), CloudProviderError), (FAILED, CallFailed)],
)
def test_other_failures_of_the_provider_id_are_the_answer(error: Exception, kind: type[Exception]) -> None:
    cloud = Cloud({**GOOD, "instance_id": error})
    with pytest.raises(kind):
        legacy_metadata(cloud)
    assert len(cloud.asked) == 1, "the node must not be initialised without its provider ID"


@pytest.mark.parametrize("error", [NOT_FOUND, NOT_IMPLEMENTED, FAILED])
def test_what_fails_by_provider_id_is_asked_by_name(error: Exception) -> None:
    cloud = Cloud({**GOOD, "node_addresses_by_provider_id": error, "get_zone_by_provider_id": error})
    found = legacy_metadata(cloud, "test://own")
    assert found == InstanceMetadata("test://own", "m5", ADDRESSES, "z2", "r2")
    assert cloud.methods() == [
        "node_addresses_by_provider_id",
        "node_addresses",
        "instance_type_by_provider_id",
        "get_zone_by_provider_id",
        "get_zone_by_node_name",
    ]


class VendorError(Exception):
    """A vendor's own, raised from what the contract knows."""

    def __init__(self, cause: Exception) -> None:
        self.__cause__ = cause


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Throttled("x", 3), Throttled),
        (RetryError("x", 3), RetryError),
        (VendorError(Throttled("x", 3)), Throttled),
        (CallDeadlineExceeded("late"), CallDeadlineExceeded),
    ],
)
def test_a_throttled_question_is_not_asked_in_another_way(error: Exception, kind: type[Exception]) -> None:
    cloud = Cloud({**GOOD, "node_addresses_by_provider_id": error})
    with pytest.raises(kind):
        legacy_metadata(cloud, "test://own")
    assert len(cloud.asked) == 1


@pytest.mark.parametrize(
    ("by_id", "by_name", "kind"),
    [
        (NOT_FOUND, NOT_FOUND, InstanceNotFound),
        (FAILED, NOT_FOUND, CloudProviderError),
        (NOT_FOUND, FAILED, CloudProviderError),
        (NOT_IMPLEMENTED, NOT_FOUND, InstanceNotFound),
        (NOT_FOUND, NOT_IMPLEMENTED, InstanceNotFound),
        (FAILED, NOT_IMPLEMENTED, CallFailed),
        (NOT_IMPLEMENTED, NOT_IMPLEMENTED, NotImplementedByProvider),
        (FAILED, Throttled("y", 1), Throttled),
    ],
)
def test_when_both_ways_fail(by_id: Exception, by_name: Exception, kind: type[Exception]) -> None:
    cloud = Cloud({**GOOD, "node_addresses_by_provider_id": by_id, "node_addresses": by_name})
    with pytest.raises(kind) as caught:
        legacy_metadata(cloud, "test://own")
    assert type(caught.value) is kind
    if kind is CloudProviderError:
        assert "neither by provider ID" in str(caught.value)


def test_no_zones_no_zone() -> None:
    assert legacy_metadata(Cloud(GOOD), "test://own", zones=False).zone == ""
    silent = Cloud({**GOOD, "get_zone_by_provider_id": NOT_IMPLEMENTED, "get_zone_by_node_name": NOT_IMPLEMENTED})
    assert legacy_metadata(silent, "test://own").zone == ""
    failing = Cloud({**GOOD, "get_zone_by_provider_id": FAILED, "get_zone_by_node_name": FAILED})
    with pytest.raises(CloudProviderError):
        legacy_metadata(failing, "test://own")


@pytest.mark.row("N8")
def test_junk_from_the_older_interface_is_named_by_its_method() -> None:
    for method, junk in (
        ("instance_id", ""),
        ("node_addresses_by_provider_id", None),
        ("instance_type_by_provider_id", None),
        ("get_zone_by_provider_id", ("z", "r")),
    ):
        by_name = {
            "node_addresses": NOT_IMPLEMENTED,
            "instance_type": NOT_IMPLEMENTED,
            "get_zone_by_node_name": NOT_IMPLEMENTED,
        }
        with pytest.raises(CloudProviderError, match=f"{method} gave an unusable answer"):
            legacy_metadata(Cloud({**GOOD, **by_name, method: junk}))


@pytest.mark.row("N35")
def test_a_bad_label_value_of_the_older_interface_costs_that_label() -> None:
    for junk in ({"instance_type_by_provider_id": "a b"}, {"get_zone_by_provider_id": Zone("a b", "r")}):
        with pytest.raises(InvalidAnswer, match="'a b'") as invalid:
            legacy_metadata(Cloud({**GOOD, **junk}))
        usable = invalid.value.usable
        assert isinstance(usable, InstanceMetadata)
        assert usable.node_addresses
        assert "" in (usable.instance_type, usable.zone)


def legacy_state(answers: Mapping[str, Any], provider_id: str = "test://own") -> tuple[Any, list[str]]:
    cloud = Cloud({**GOOD, **answers})
    with world(Provider(instances=cloud)) as w:
        return w.fetch_state([node("n1", provider_id=provider_id)])["n1"], cloud.methods()


def test_state_by_provider_id() -> None:
    exists, shutdown = "instance_exists_by_provider_id", "instance_shutdown_by_provider_id"
    assert legacy_state({}) == (InstanceState.RUNNING, [exists, shutdown])
    assert legacy_state({shutdown: True})[0] is InstanceState.SHUTDOWN
    assert legacy_state({shutdown: NOT_IMPLEMENTED})[0] is InstanceState.RUNNING
    assert legacy_state({exists: False}) == (InstanceState.GONE, [exists])
    assert legacy_state({exists: NOT_FOUND})[0] is InstanceState.GONE
    assert legacy_state({}, "")[1] == ["instance_id", exists, "instance_id", shutdown]
    assert legacy_state({"instance_id": NOT_FOUND}, "") == (InstanceState.GONE, ["instance_id"])
    for unknown in ({exists: None}, {exists: FAILED}, {shutdown: NOT_FOUND}, {shutdown: None}):
        assert isinstance(legacy_state(unknown)[0], CallFailed | InvalidAnswer)
    assert isinstance(legacy_state({"instance_id": NOT_IMPLEMENTED}, "")[0], NotImplementedByProvider)


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
    with world(provider) as w:
        for answer in w.fetch(fleet).values():
            assert (answer.instance_type, answer.zone, answer.region) == ("m5", "z", "r")
        assert len(cloud.calls) == 60, "nodes that join get everything"
        rounds = []
        for _ in range(3 * PACE):
            before = len(cloud.calls)
            for answer in w.fetch(fleet).values():
                assert (answer.instance_type, answer.zone, answer.region) == ("m5", "z", "r")
            rounds.append(len(cloud.calls) - before)
    assert cloud.count("node_addresses_by_provider_id") == 20 * (3 * PACE + 1)
    assert sum(rounds) <= 20 * 3 * PACE + 2 * 20 * 4, "a tenth of the pace, and once more at the first"
    assert max(rounds) < 60, "nodes that joined together are not asked about together"


def test_a_change_of_type_is_seen_within_ten_refreshes() -> None:
    cloud, provider = older()
    one = node("n1", provider_id="test://n1")
    with world(provider) as w:
        w.fetch([one])
        cloud.instance_type_by_provider_id = lambda _: "huge"  # type: ignore[attr-defined]
        types = [w.fetch([one])["n1"].instance_type for _ in range(PACE)]
        assert types[-1] == "huge"


def test_another_uid_or_provider_id_is_another_instance_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(olderinstances, "_MOST", 2)
    cloud, _ = older()
    adapter = OlderInstances("test", cloud, cloud)  # type: ignore[arg-type]  # it has what is asked for
    for one in (
        node("n5", provider_id="test://1"),
        node("n5", provider_id="test://2"),
        node("n5", provider_id="test://1", uid="another"),
        node("n5", provider_id="test://1"),
    ):
        adapter.instance_metadata(one)
    assert cloud.count("instance_type_by_provider_id") == 4, "the first one was dropped"
