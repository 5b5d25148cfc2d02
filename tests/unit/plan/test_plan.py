"""Rows: what becomes of several writes, their order, their words, and the exit code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controllers.plan.describing import written
from controllers.plan.rows import ASSIGNED_LATER, Change, Kind, Outcome, Plan, Row, Subject, as_json, as_table

NODE = Subject("Node", "n1")
TAINT = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
SHUT = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}


def row(action: str = "label", *changes: Change, subject: Subject = NODE, controller: str = "c", **more: Any) -> Row:
    return Row(controller=controller, subject=subject, action=action, changes=changes, **more)


def outcome(*rows: Row, left: tuple[str, ...] = ()) -> Outcome:
    return Outcome(provider="acme", cluster="test", controllers=("c",), rows=rows, left=left)


def described(before: dict[str, Any] | None, after: dict[str, Any] | None, kind: str = "Node") -> dict[str, list[str]]:
    rows = written("c", Subject(kind, "n1"), before, after)
    return {one.action: [f"{c.field}: {c.before} -> {c.after}" for c in one.changes] for one in rows}


def test_writes_to_one_field_are_one_change_and_what_is_undone_is_none() -> None:
    plan = Plan()
    plan.record(row("label", Change("tier", "a", "b")))
    plan.record(row("label", Change("tier", "b", "c"), Change("zone", None, "z")))
    assert plan.rows() == [row("label", Change("tier", "a", "c"), Change("zone", None, "z"))]
    plan.record(row("label", Change("tier", "c", "a")))
    assert plan.rows() == [row("label", Change("zone", None, "z"))]
    plan.record(row("label", Change("zone", "z", None)))
    assert plan.rows() == []
    plan.record(row("delete"))
    plan.record(row("delete", note="evidence"))
    assert plan.rows() == [row("delete", note="evidence")]


def test_the_order_is_that_of_the_controllers_then_of_the_objects_whatever_came_first() -> None:
    first = row("label", subject=Subject("Node", "a"), controller="first")
    second = row("label", subject=Subject("Node", "b"), controller="first")
    third = row("label", subject=Subject("Node", "a"), controller="second")
    vendors = row("label", subject=Subject("Node", "a"), controller="acme")
    held = row("delete", kind=Kind.HELD_BACK, controller="first")
    for recorded in ([first, second, third, vendors, held], [held, vendors, third, second, first]):
        plan = Plan(["first", "second"])
        plan.record(*recorded)
        assert plan.rows() == [first, second, third, vendors, held]


def test_the_rows_of_one_object_are_in_the_order_in_which_they_are_done() -> None:
    """A cloud has one route for a destination: the old one goes before the new one comes."""
    route, service = Subject("Route", "10.244.1.0/24"), Subject("Service", "web", "default")
    wanted = [
        row("delete route", subject=route),
        row("create route", subject=route),
        row("delete load balancer", subject=service),
        row("annotate", subject=service),
        row("remove finalizer", subject=service),
    ]
    for recorded in (wanted, wanted[::-1]):
        plan = Plan()
        plan.record(*recorded)
        assert plan.rows() == wanted


def test_each_part_of_an_object_has_its_action() -> None:
    before = {
        "metadata": {"labels": {"tier": "gold"}, "finalizers": ["a"], "resourceVersion": "1"},
        "spec": {"taints": [SHUT], "podCIDR": "10.0.0.0/24"},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "then"}]},
    }
    after = {
        "metadata": {
            "labels": {"tier": "silver"},
            "finalizers": ["b"],
            "annotations": {"k": "v"},
            "resourceVersion": "2",
        },
        "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "unschedulable": True, "x": {"y": [{"z": 1}]}},
        "status": {
            "conditions": [
                {"type": "Ready", "status": "True", "lastHeartbeatTime": "now"},
                {"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated"},
            ],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]},
        },
    }
    assert described(before, after) == {
        "annotate": ["k: None -> v"],
        "remove finalizer": ["a: set -> None"],
        "add finalizer": ["b: None -> set"],
        "label": ["tier: gold -> silver"],
        "patch": ["spec.unschedulable: None -> true", 'spec.x.y: None -> [{"z": 1}]'],
        "set addresses": ["addresses: None -> ('InternalIP=10.0.0.1',)"],
        "set condition": ["NetworkUnavailable: None -> False (RouteCreated)"],
        "set pod CIDR": ["podCIDRs: None -> ('10.0.0.0/24',)"],
        "set status": ["load balancer: None -> ('192.0.2.1',)"],
        "untaint": [f"{SHUT['key']}:NoSchedule: set -> None"],
    }


def test_the_end_of_an_initialisation_is_one_row() -> None:
    before = {"metadata": {}, "spec": {"taints": [TAINT]}}
    after = {"metadata": {"labels": {"zone": "a"}}, "spec": {"providerID": "acme://1"}}
    assert described(before, after) == {
        "initialise": [
            "zone: None -> a",
            "spec.providerID: None -> acme://1",
            f"taint {TAINT['key']}:NoSchedule: true -> None",
        ]
    }


def test_a_volume_a_secret_and_what_comes_and_goes() -> None:
    labelled = {"metadata": {"labels": {"zone": "a"}}, "spec": {"nodeAffinity": {"required": {"x": ["a"]}}}}
    assert described({"metadata": {}, "spec": {}}, labelled, "PersistentVolume") == {
        "label volume": ["zone: None -> a", "spec.nodeAffinity.required.x: None -> ('a',)"]
    }
    assert described({"data": {"key": "aGk="}}, {"data": {"key": "c2VjcmV0"}}, "Secret") == {
        "patch": ["data: None -> (hidden)"]
    }
    assert described(None, {"data": {"a": "b"}}, "ConfigMap") == {"create": []}
    assert described({"data": {"a": "b"}}, None, "ConfigMap") == {"delete": []}
    assert described({"spec": {"a": 1}}, {"spec": {"a": 1}}) == {}


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (outcome(), 0),
        (outcome(row(kind=Kind.WARNING)), 0),
        (outcome(row()), 3),
        (outcome(row(kind=Kind.HELD_BACK)), 3),
        (outcome(row(), row("x", kind=Kind.UNKNOWN)), 1),
        (outcome(row(), left=("queue Nodes: n1",)), 1),
    ],
)
def test_the_exit_code(found: Outcome, code: int) -> None:
    assert found.code == code
    assert json.loads(as_json(found))["exitCode"] == code
    assert ("INCOMPLETE" in as_table(found)) is (code == 1)


def test_table_and_json_show_the_same_rows() -> None:
    web = Subject("Service", "web", "default")
    found = outcome(
        row("retarget load balancer", Change("targets", ("a", "b"), ("b", "c")), subject=web),
        row("set status", Change("load balancer", None, (ASSIGNED_LATER,)), subject=web),
        row("label", Change("tier", "gold", None), Change("long", "x" * 500, "y" * 500)),
        row("delete", kind=Kind.HELD_BACK, note="held back: why"),
    )
    table = as_table(found)
    assert "targets: +c -a\n" in table
    assert "load balancer: (assigned by the cloud)\n" in table
    assert "tier: gold -> (none); long: changed (--dry-run-output=json shows how)\n" in table
    assert "HELD BACK" in table
    assert table.endswith("\n\nPlan: 3 changes to 2 objects, 1 held back. Nothing was written.\n")
    rows = json.loads(as_json(found))["rows"]
    assert [one["action"] for one in rows] == [one.action for one in found.rows]
    assert rows[0]["object"] == {"kind": "Service", "namespace": "default", "name": "web"}
    assert rows[0]["changes"] == [{"field": "targets", "before": ["a", "b"], "after": ["b", "c"]}]
    assert rows[1]["changes"][0]["after"] == ["(assigned by the cloud)"]
    assert rows[2]["changes"][1]["after"] == "y" * 500
    assert as_table(outcome()) == "Nothing to do. Nothing was written.\n"
