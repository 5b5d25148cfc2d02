"""The judge of the faults: each verdict is seen to fail."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from cloudprovider.testing.fake import Caller, CallRecord
from tests.lab.faults.judge import Problem, emptied, overlaps, unproved
from tests.support.failover.audit import Request

OURS = ["manager"]


def request(verb: str, resource: str, name: str, at: float, who: str = "admin", **fields: Any) -> Request:
    namespace = "default" if resource == "services" else ""
    return Request(who, verb, resource, name, namespace, fields.pop("code", 200), at, at + 0.01)


def call(method: str, *keys: str, at: float, effect: str = "deleted", caller: str = "ours-0") -> CallRecord:
    return CallRecord(1, method, keys, Caller(0, caller), "c", at, at, at + 1, 2, effect)


def texts(found: list[Problem]) -> list[str]:
    return [one.text for one in found]


def test_a_node_is_deleted_only_after_its_machine() -> None:
    deletion = request("delete", "nodes", "n", 5.0, "manager")
    gone = call("console.remove_instance", "n", at=4.0)
    assert unproved([deletion], [gone], OURS, {}) == []
    problem = "Node n was deleted, although its machine was there"
    assert texts(unproved([deletion], [], OURS, {})) == [problem]
    assert texts(unproved([deletion], [evolve(gone, time=6.0)], OURS, {})) == [problem]
    twice = [deletion, request("delete", "nodes", "n", 7.0, "manager")]
    assert texts(unproved(twice, [gone], OURS, {})) == [problem]  # each needs a removal of its own
    assert unproved([request("delete", "nodes", "n", 5.0)], [], OURS, {}) == []
    assert unproved([request("delete", "nodes", "n", 5.0, "manager", code=409)], [], OURS, {}) == []


def test_a_load_balancer_is_deleted_only_after_its_service_was_given_up() -> None:
    made = request("create", "services", "s", 1.0)
    deletion = request("delete", "services", "s", 3.0)
    removed = call("ensure_load_balancer_deleted", "lb", "default/s", at=4.0)
    problem = "the load balancer of default/s was deleted, although its Service was there"
    assert unproved([made, deletion], [removed], OURS, {}) == []
    assert texts(unproved([made], [removed], OURS, {})) == [problem]
    assert texts(unproved([made, deletion, request("create", "services", "s", 3.5)], [removed], OURS, {})) == [problem]
    assert texts(unproved([made, evolve(deletion, who="manager")], [removed], OURS, {})) == [problem]
    assert unproved([made], [removed], OURS, {"default/s": 2.0}) == []
    assert texts(unproved([made], [removed], OURS, {"default/s": 5.0})) == [problem]
    again = [made, deletion, request("create", "services", "s", 3.5)]
    former = call("ensure_load_balancer", "lb", "default/s", at=2.0, effect="created")
    assert unproved(again, [former, removed], OURS, {}) == []
    assert texts(unproved(again, [evolve(former, time=3.6), removed], OURS, {})) == [problem]
    assert unproved([made], [evolve(removed, effect="absent")], OURS, {}) == []


def test_a_route_is_deleted_only_after_its_node_or_machine() -> None:
    made = call("create_route", "10.0.0.0/24", "name", "n", at=1.0, effect="created")
    removed = call("delete_route", "10.0.0.0/24", "name", at=4.0)
    problem = "the route 10.0.0.0/24 was deleted, although its Node and machine were there"
    assert texts(unproved([], [made, removed], OURS, {})) == [problem]
    assert unproved([], [made, call("console.remove_instance", "n", at=3.0), removed], OURS, {}) == []
    assert unproved([request("delete", "nodes", "n", 3.0)], [made, removed], OURS, {}) == []
    assert texts(unproved([request("delete", "nodes", "n", 5.0)], [made, removed], OURS, {})) == [problem]


def test_load_balancers_keep_targets_while_there_are_nodes() -> None:
    assert emptied([("default/s", 3)], nodes=3) == []
    assert texts(emptied([("default/s", 3), ("default/s", 0)], nodes=3)) == [
        "the load balancer of default/s was left without targets"
    ]
    assert emptied([("default/s", 0)], nodes=0) == []


def test_only_one_managers_own_operations_must_not_overlap() -> None:
    one = call("ensure_load_balancer", "lb", at=1.0)
    assert texts(overlaps([(one, evolve(one, method="update_load_balancer"))])) == [
        "update_load_balancer of lb began while ensure_load_balancer was under way"
    ]
    assert overlaps([(one, evolve(one, caller=Caller(0, "ours-1")))]) == []
