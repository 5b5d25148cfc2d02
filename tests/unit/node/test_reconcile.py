"""A patch that was applied but not answered: the node still gets its Event, once, whichever way that is found out."""

from __future__ import annotations

from typing import Any, cast

import pytest
from kubernetes.client.models.v1_node import V1Node

from controllers.node.memory import NodeMemory
from controllers.node.metrics import NodeMetrics
from controllers.node.reconcile import NodeReconciler
from controllers.runtime.api import Conflict, Response, Unreachable
from controllers.runtime.metrics import Metrics
from tests.support.clock import FakeClock
from tests.unit.node.test_changes import TAINT, instance

TAINTED: dict[str, Any] = {"metadata": {"name": "n1", "uid": "u1", "resourceVersion": "7"}, "spec": {"taints": [TAINT]}}
READY: dict[str, Any] = {
    "metadata": {"name": "n1", "uid": "u1", "resourceVersion": "9"},
    "spec": {"providerID": "fake://i-1"},
}
RECREATED: dict[str, Any] = {"metadata": {"name": "n1", "uid": "u2", "resourceVersion": "9"}, "spec": {}}


class Server:
    """Stands for client, lister and recorder: what is cached, what a GET says, how PATCHes end, which Events came."""

    provider_name = "fake"

    def __init__(self) -> None:
        self.cached, self.stored = TAINTED, TAINTED
        self.ends: list[Exception] = []
        self.events: list[str] = []

    def get(self, key: str, **_: Any) -> Any:
        return {**self.stored} if key.startswith("/") else V1Node.from_dict(self.cached)

    def list(self) -> list[V1Node]:
        return [self.get("n1")]

    def request(self, *_: Any, **__: Any) -> Response:
        if self.ends:
            raise self.ends.pop(0)
        return Response(200, {}, b'{"metadata": {"resourceVersion": "8"}}')

    def event(self, _: Any, __: str, reason: str, ___: str) -> None:
        self.events.append(reason)


def unanswered() -> tuple[Server, NodeReconciler]:
    """A node whose patch went out, and whose answer was lost."""
    server = Server()
    anything = cast(Any, server)
    clock, memory = FakeClock(), NodeMemory(300)
    metrics = NodeMetrics(Metrics(), anything, memory, clock)
    reconciler = NodeReconciler(anything, anything, anything, anything, metrics, clock, memory)
    server.ends = [Unreachable("reset", sent=True)]
    with pytest.raises(Unreachable):
        reconciler.initialize("n1", instance())
    assert server.events == []
    return server, reconciler


def test_found_out_by_a_conflict_while_the_cache_is_old() -> None:
    server, reconciler = unanswered()
    server.stored, server.ends = READY, [Conflict("stale", status=409)]
    reconciler.initialize("n1", instance())
    assert server.events == ["Synced"]


def test_found_out_from_the_cache() -> None:
    server, reconciler = unanswered()
    server.cached = READY
    reconciler.initialize("n1", None)
    reconciler.initialize("n1", None)
    assert server.events.count("Synced") == 1


def test_a_node_of_the_same_name_is_not_ours_to_speak_of() -> None:
    server, reconciler = unanswered()
    server.cached = RECREATED
    reconciler.initialize("n1", None)
    assert server.events == []
