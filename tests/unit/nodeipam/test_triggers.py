"""What makes a node be looked at: its coming and going, its ranges, never a heartbeat."""

from __future__ import annotations

import copy
from typing import Any

from controllers.nodeipam.assigner import WAITING
from controllers.nodeipam.controller import NodeTriggers
from controllers.nodeipam.guards import facts_of, facts_of_raw
from controllers.runtime.cache import NODES, version_of
from tests.unit.nodeipam.objects import Server


class Queue:
    def __init__(self) -> None:
        self.added: list[tuple[str, int]] = []

    def add(self, key: str, priority: int = 0) -> None:
        self.added.append((key, priority))


def test_only_what_matters_brings_a_node_back() -> None:
    raw = Server().create("a")
    queue: Any = Queue()
    lacking: list[Any] = []
    triggers = NodeTriggers(queue, lambda node: lacking.append(version_of(node)))
    old = NODES.parse(copy.deepcopy(raw))
    triggers.on_add(old, True)
    assert queue.added == [("a", WAITING)]
    raw["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    beat = NODES.parse(copy.deepcopy(raw))
    triggers.on_update(old, beat)
    triggers.on_update(beat, beat)
    assert len(queue.added) == 1, "a heartbeat must not bypass the back-off"
    raw["spec"] = {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]}
    served = NODES.parse(copy.deepcopy(raw))
    triggers.on_update(beat, served)
    raw["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    leaving = NODES.parse(copy.deepcopy(raw))
    triggers.on_update(served, leaving)
    triggers.on_delete(leaving)
    assert queue.added[1:] == [("a", 0), ("a", 0), ("a", WAITING)]
    assert lacking == ["1"]


def test_facts_are_the_same_of_the_cache_and_of_the_wire_and_junk_is_told() -> None:
    raw = Server().create("a", "10.0.0.0/24", "fd00::/64")
    found = facts_of_raw(raw)
    assert facts_of(NODES.parse(copy.deepcopy(raw))) == found
    assert [str(net) for net in found.ranges] == ["10.0.0.0/24", "fd00::/64"]
    assert not found.waits
    raw["spec"] = {"podCIDR": "010.0.1.0/24"}
    assert [str(net) for net in facts_of_raw(raw).ranges] == ["10.0.1.0/24"], "as Kubernetes reads it"
    raw["spec"] = {"podCIDRs": ["no range"]}
    junk = facts_of_raw(raw)
    assert (junk.ranges, junk.waits) == ((), False)
    assert "'no range' is not an IP range" in junk.problem
