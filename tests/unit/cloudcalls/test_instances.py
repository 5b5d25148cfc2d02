"""How one node is asked about, driven by hand: which calls are made in which order, and what comes
of them."""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import (
    CloudProviderError,
    InstanceMetadata,
    InstanceNotFound,
    InstanceState,
    NotImplementedByProvider,
    RetryError,
    Throttled,
    Zone,
)
from cloudprovider.helpers import same_provider_id
from controllers.cloudcalls.errors import CallFailed, CallOverdue, InvalidAnswer
from controllers.cloudcalls.nodes.instances import (
    Program,
    Question,
    metadata_legacy,
    metadata_v2,
    state_legacy,
    state_v2,
)
from controllers.cloudcalls.nodes.memory import Facts
from tests.unit.cloudcalls.support import metadata, node

PREFIXES = ("test://",)
ADDRESSES = (V1NodeAddress(type="InternalIP", address="10.0.0.1"),)
NOT_FOUND, NOT_IMPLEMENTED = InstanceNotFound("gone"), NotImplementedByProvider("no")


class Cloud:
    """Answers by method name; notes (method, argument) of each call."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._answers = answers
        self.asked: list[tuple[str, Any]] = []

    def __getattr__(self, method: str) -> Any:
        def call(*args: Any) -> Any:
            self.asked.append((method, args[0] if args else None))
            answer = self._answers[method]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def methods(self) -> list[str]:
        return [method for method, _ in self.asked]


def drive(program: Program[Any]) -> Any:
    """Run a program, every call at once."""
    resume: Any = lambda: next(program)  # noqa: E731 - replaced below
    while True:
        try:
            ask = resume()
        except StopIteration as stop:
            return stop.value
        try:
            answer = ask.check(ask.fn(*ask.args))
        except Exception as error:  # noqa: BLE001 - thrown into the program
            resume = lambda error=error: program.throw(error)  # noqa: E731
        else:
            resume = lambda answer=answer: program.send(answer)  # noqa: E731


def question(provider_id: str = "") -> Question:
    return Question(node("n1", provider_id=provider_id), 10)


def legacy_metadata(cloud: Cloud, provider_id: str = "", zones: bool = True) -> Any:
    ask: Any = cloud
    return drive(metadata_legacy(ask, ask if zones else None, question(provider_id), "test", PREFIXES, Facts()))


GOOD = {
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
    cloud: Any = Cloud(answers)
    return drive(state_v2(cloud, question())), cloud.methods()


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


@pytest.mark.parametrize("answer", [None, 0, "", [], ValueError(), Throttled(), NOT_IMPLEMENTED, RetryError("x", 1)])
def test_nothing_else_is_ever_gone(answer: Any) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is, it is unknown
        v2_state({"instance_exists": answer})
    assert not isinstance(caught.value, InstanceNotFound)


def test_exists_and_then_not_found_is_unknown() -> None:
    with pytest.raises(InvalidAnswer):
        v2_state({"instance_exists": True, "instance_shutdown": NOT_FOUND})


def test_metadata_of_v2() -> None:
    cloud: Any = Cloud({"instance_metadata": metadata("n1", provider_id="")})
    found = drive(metadata_v2(cloud, question("test://own"), PREFIXES, same_provider_id))
    assert found.provider_id == "test://own"
    with pytest.raises(InvalidAnswer, match="neither has the node"):
        drive(metadata_v2(cloud, question(), PREFIXES, same_provider_id))


def test_every_call_carries_the_nodes_key_and_priority() -> None:
    cloud: Any = Cloud(GOOD)
    ask = next(state_legacy(cloud, question(), "test"))
    assert (ask.key, ask.priority, ask.mutating) == ("node/n1", 10, False)


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
    "error", [NOT_FOUND, CloudProviderError("api down"), CallFailed("x"), InvalidAnswer("m", ["x"])]
)
def test_other_failures_of_the_provider_id_are_the_answer(error: Exception) -> None:
    cloud = Cloud({**GOOD, "instance_id": error})
    with pytest.raises(type(error)):
        legacy_metadata(cloud)
    assert len(cloud.asked) == 1, "the node must not be initialised without its provider ID"


@pytest.mark.parametrize("error", [NOT_FOUND, NOT_IMPLEMENTED, CallFailed("x")])
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


@pytest.mark.parametrize("error", [Throttled("x", 3), RetryError("x", 3), CallOverdue("m", "node/n1", 60, Future())])
def test_a_throttled_or_overdue_question_is_not_asked_in_another_way(error: Exception) -> None:
    cloud = Cloud({**GOOD, "node_addresses_by_provider_id": error})
    with pytest.raises(type(error)):
        legacy_metadata(cloud, "test://own")
    assert len(cloud.asked) == 1


@pytest.mark.parametrize(
    ("by_id", "by_name", "kind"),
    [
        (NOT_FOUND, NOT_FOUND, InstanceNotFound),
        (CallFailed("x"), NOT_FOUND, CallFailed),
        (NOT_FOUND, CallFailed("x"), CallFailed),
        (NOT_IMPLEMENTED, NOT_FOUND, InstanceNotFound),
        (NOT_FOUND, NOT_IMPLEMENTED, InstanceNotFound),
        (CallFailed("x"), NOT_IMPLEMENTED, CallFailed),
        (NOT_IMPLEMENTED, NOT_IMPLEMENTED, NotImplementedByProvider),
        (CallFailed("x"), Throttled("y", 1), Throttled),
    ],
)
def test_when_both_ways_fail(by_id: Exception, by_name: Exception, kind: type[Exception]) -> None:
    cloud = Cloud({**GOOD, "node_addresses_by_provider_id": by_id, "node_addresses": by_name})
    with pytest.raises(kind) as caught:
        legacy_metadata(cloud, "test://own")
    assert type(caught.value) is kind
    if kind is CallFailed and not isinstance(by_name, NotImplementedByProvider):
        assert "neither by provider ID" in str(caught.value)


def test_no_zones_no_zone() -> None:
    assert legacy_metadata(Cloud(GOOD), "test://own", zones=False).zone == ""
    silent = Cloud({**GOOD, "get_zone_by_provider_id": NOT_IMPLEMENTED, "get_zone_by_node_name": NOT_IMPLEMENTED})
    assert legacy_metadata(silent, "test://own").zone == ""
    failing = Cloud({**GOOD, "get_zone_by_provider_id": CallFailed("x"), "get_zone_by_node_name": CallFailed("x")})
    with pytest.raises(CallFailed):
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
        with pytest.raises(InvalidAnswer, match=method):
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
    cloud: Any = Cloud({**GOOD, **answers})
    return drive(state_legacy(cloud, question(provider_id), "test")), cloud.methods()


def test_state_by_provider_id() -> None:
    exists, shutdown = "instance_exists_by_provider_id", "instance_shutdown_by_provider_id"
    assert legacy_state({}) == (InstanceState.RUNNING, [exists, shutdown])
    assert legacy_state({shutdown: True})[0] is InstanceState.SHUTDOWN
    assert legacy_state({shutdown: NOT_IMPLEMENTED})[0] is InstanceState.RUNNING
    assert legacy_state({exists: False}) == (InstanceState.GONE, [exists])
    assert legacy_state({exists: NOT_FOUND})[0] is InstanceState.GONE
    assert legacy_state({}, "")[1] == ["instance_id", exists, shutdown]
    assert legacy_state({"instance_id": NOT_FOUND}, "") == (InstanceState.GONE, ["instance_id"])
    for unknown in ({exists: None}, {exists: CallFailed("x")}, {shutdown: NOT_FOUND}, {shutdown: None}):
        with pytest.raises((CallFailed, InvalidAnswer)):
            legacy_state(unknown)
    with pytest.raises(NotImplementedByProvider):
        legacy_state({"instance_id": NOT_IMPLEMENTED}, "")
