"""The reconciler with everything around it replaced: a cloud, an API server and a recorder that are lists."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from kubernetes.client.models.v1_node import V1Node

from cloudprovider import InstanceMetadata, InstanceState
from cloudprovider.helpers import same_provider_id
from controllers.nodelifecycle import BreakerOptions
from controllers.nodelifecycle.breaker import Breaker
from controllers.nodelifecycle.cases import Cases
from controllers.nodelifecycle.metrics import NodeLifecycleMetrics
from controllers.nodelifecycle.notices import OwnerNotices
from controllers.nodelifecycle.permits import Permits
from controllers.nodelifecycle.reconcile import NodeLifecycleReconciler, Policy
from controllers.nodelifecycle.triggers import NodeLifecycleTriggers
from controllers.nodelifecycle.witnesses import Witnesses
from controllers.nodelifecycle.writer import NodeWriter
from controllers.runtime.api import ApiError, Conflict, NotFound
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Result, WorkQueue
from tests.support.clock import FakeClock

PERIOD = 5.0
SHUTDOWN = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
OUT_OF_SERVICE = {
    "key": "node.kubernetes.io/out-of-service",
    "value": "cloud-instance-shut-down",
    "effect": "NoExecute",
}
UNINITIALIZED = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
OTHER = {"key": "example.com/dedicated", "value": "x", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"}
ADMINS = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}

Raw = dict[str, Any]


def raw_node(
    name: str = "n1",
    *,
    ready: str | None = "False",
    provider_id: str | None = "fake://i-1",
    taints: Sequence[Mapping[str, Any]] = (),
    uid: str = "",
    version: str = "7",
    created: float = 0.0,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    deleted: bool = False,
) -> Raw:
    metadata: Raw = {
        "name": name,
        "uid": uid or f"uid-{name}",
        "resourceVersion": version,
        "creationTimestamp": datetime.fromtimestamp(created, UTC).isoformat(),
        "annotations": dict(annotations or {}),
        "labels": dict(labels or {}),
    }
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    return {
        "metadata": metadata,
        "spec": {"providerID": provider_id, "taints": [dict(taint) for taint in taints]},
        "status": {"conditions": [] if ready is None else [{"type": "Ready", "status": ready}]},
    }


def node(name: str = "n1", **fields: Any) -> V1Node:
    parsed = V1Node.from_dict(raw_node(name, **fields))
    assert parsed is not None
    return parsed


class Cloud:
    """Answers what `says` holds; an absent node is answered RUNNING."""

    def __init__(self) -> None:
        self.says: dict[str, InstanceState | Exception] = {}
        self.silent: set[str] = set()  # a call about them does not return
        self.by_name: dict[str, InstanceMetadata | Exception] = {}
        self.asked: list[str] = []
        self.named: list[V1Node] = []
        self.fresh: list[bool] = []

    def fetch_state(
        self, nodes: Sequence[V1Node], deliver: Callable[[str, Any], None], *, fresh: bool = True, priority: int = 0
    ) -> None:
        self.fresh.append(fresh)
        for one in nodes:
            assert one.metadata is not None
            name = str(one.metadata.name)
            self.asked.append(name)
            if name not in self.silent:
                deliver(name, self.says.get(name, InstanceState.RUNNING))

    def same_provider_id(self, one: str, other: str) -> bool:
        return same_provider_id(one, other)

    def fetch_metadata(
        self, nodes: Sequence[V1Node], deliver: Callable[[str, Any], None], *, fresh: bool = False, priority: int = 0
    ) -> None:
        for one in nodes:
            assert one.metadata is not None
            self.named.append(one)
            deliver(str(one.metadata.name), self.by_name[str(one.metadata.name)])


class Server:
    """Nodes by name, as the API server has them; the two hooks may change them under the controller's feet."""

    def __init__(self) -> None:
        self.nodes: dict[str, Raw] = {}
        self.patches: list[Raw] = []
        self.deletes: list[Raw] = []
        self.deleted: list[str] = []
        self.before_delete: Callable[[], None] = lambda: None
        self.before_patch: Callable[[], None] = lambda: None
        self.refuse: ApiError | None = None

    def request(self, method: str, path: str, *, body: Any, **_: Any) -> Any:
        name = path.rpartition("/")[2]
        if method == "PATCH":
            self.before_patch()
            found = self.nodes.get(name)
            if found is not None and body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
                raise Conflict("changed", method=method, path=path, status=409, reason="Conflict")
            self.patches.append(body)
            return _Answer({"metadata": {"resourceVersion": "8"}})
        assert method == "DELETE"
        self.deletes.append(body)
        self.before_delete()
        if self.refuse is not None:
            raise self.refuse
        found = self.nodes.get(name)
        if found is None:
            raise NotFound("gone", method=method, path=path, status=404, reason="NotFound")
        meta = found["metadata"]
        if body["preconditions"] != {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}:
            raise Conflict("changed", method=method, path=path, status=409, reason="Conflict")
        del self.nodes[name]
        self.deleted.append(name)
        return _Answer({})

    def get(self, path: str, **_: Any) -> Raw:
        name = path.rpartition("/")[2]
        if name not in self.nodes:
            raise NotFound("gone", method="GET", path=path, status=404, reason="NotFound")
        return self.nodes[name]


class _Answer:
    def __init__(self, body: Raw) -> None:
        self._body = body

    def json(self) -> Raw:
        return self._body

    def look(self) -> None:
        """Nobody reads it."""


class Recorder:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str]] = []

    def event(self, obj: V1Node, type: str, reason: str, message: str) -> None:
        assert obj.metadata is not None
        self.events.append((str(obj.metadata.name), type, reason, message))

    def reasons(self, name: str | None = None) -> list[str]:
        return [reason for who, _, reason, _ in self.events if name in (None, who)]


class Lister:
    def __init__(self) -> None:
        self.nodes: dict[str, V1Node] = {}

    def get(self, key: str) -> V1Node | None:
        return self.nodes.get(key)

    def list(self) -> list[V1Node]:
        return list(self.nodes.values())


class Bench:
    """The controller's parts around lists."""

    def __init__(
        self,
        *,
        breaker: BreakerOptions | None = None,
        confirmations: int = 2,
        out_of_service: bool = False,
        prefixes: tuple[str, ...] = ("fake://",),
        grace: float = 600.0,
        unknown_after: float = 300.0,
        max_batch: int = 100,
    ) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.cloud, self.server, self.recorder, self.lister = Cloud(), Server(), Recorder(), Lister()
        self.cases = Cases()
        self.queue: WorkQueue[str] = WorkQueue("NodeLifecycle", clock=self.clock, metrics=self.metrics)
        self.successors: WorkQueue[str] = WorkQueue("NodeSuccessor", clock=self.clock, metrics=self.metrics)
        self.breaker = Breaker(breaker or BreakerOptions(), now=self.clock.monotonic(), quiet=70.0)
        self.witnesses = Witnesses(
            self.breaker.options.witnesses * max_batch, again=10 * max_batch, rng=random.Random(1)
        )
        self.triggers = NodeLifecycleTriggers(
            self.queue,
            cast(Any, self.lister),
            self.cases,
            self.witnesses,
            prefixes,
            grace=grace,
            out_of_service=out_of_service,
            clock=self.clock,
        )
        self.own_metrics = NodeLifecycleMetrics(
            self.metrics, self.cases, self.witnesses, self.breaker, self.clock, unknown_after
        )
        self.permits = Permits(
            cast(Any, self.lister),
            self.cases,
            self.witnesses,
            self.breaker,
            cast(Any, self.recorder),
            self.own_metrics,
            self.clock,
            alarm_after=60.0,
        )
        self.notices = OwnerNotices(
            cast(Any, self.lister),
            cast(Any, self.cloud),
            cast(Any, self.recorder),
            self.cases,
            self.own_metrics,
            self.clock,
            unknown_after=unknown_after,
        )
        self.reconciler = NodeLifecycleReconciler(
            cast(Any, self.lister),
            cast(Any, self.cloud),
            NodeWriter(
                cast(Any, self.server),
                cast(Any, self.recorder),
                self.cases,
                self.triggers.attention,
                self.own_metrics,
                self.clock,
            ),
            self.successors,
            self.cases,
            self.witnesses,
            self.permits,
            self.triggers,
            Policy(confirmations=confirmations, period=PERIOD, out_of_service=out_of_service),
            self.own_metrics,
            self.clock,
        )

    def put(self, name: str = "n1", **fields: Any) -> V1Node:
        """A node in the cache and on the server."""
        self.lister.nodes[name] = made = node(name, **fields)
        self.server.nodes[name] = raw_node(name, **fields)
        return made

    def drop(self, name: str) -> None:
        """The cache learns that a node is deleted."""
        self.triggers.on_delete(self.lister.nodes.pop(name))

    def run(self, *names: str) -> dict[str, Result | Exception | None]:
        """What the worker does with these keys, and then with those of the witnesses that are called."""
        results = self.reconciled(names)
        self._hear()
        return results

    def reconciled(self, names: Sequence[str]) -> dict[str, Result | Exception | None]:
        """What the worker does with these keys: one fetch, and a reconcile of each answer."""
        answers: dict[str, Any] = {}
        self.reconciler.fetch(names, answers.__setitem__)
        assert answers.keys() == set(names) - self.cloud.silent
        results: dict[str, Result | Exception | None] = {}
        for name, answer in answers.items():
            try:
                results[name] = self.reconciler.reconcile(name, answer)
            except Exception as error:  # noqa: BLE001 - what the worker would settle
                results[name] = error
        for name in self.server.deleted:
            if name in self.lister.nodes:
                self.drop(name)
        return results

    def _take(self) -> set[str]:
        keys = set()
        while len(self.queue):
            key = self.queue.get(timeout=0)
            assert key is not None
            self.queue.done(key)
            keys.add(key)
        return keys

    def _hear(self) -> set[str]:
        """Ask about the witnesses that are called; returns the other keys of the queue."""
        keys = self._take()
        called = sorted(key for key in keys if self.witnesses.is_called(key))
        if called:
            self.clock.advance(0.001)
            self.run(*called)
        for key in keys.difference(called):
            self.queue.add(key)
        return keys.difference(called)

    def sweep(self) -> set[str]:
        """One tick; asks about the witnesses; returns the other keys, and takes them off the queue."""
        self.survey()
        self._hear()
        return self._take()

    def survey(self) -> None:
        """What the controller does at each tick."""
        survey = self.triggers.survey()
        self.cases.keep(survey.not_ready)
        self.permits.survey(survey.owned, not self.cases.lasting_unknowns(self.clock.monotonic(), 0.0))
        self.notices.tell_unknown()
        if self.breaker.options.enabled:
            self.triggers.call_all_witnesses()
        due = self.triggers.due(survey)
        self.own_metrics.sweep_began(self.clock.monotonic(), due)
        self.triggers.enqueue(due)

    def tick(self, seconds: float = PERIOD) -> None:
        """Time passes, then what a sweep brings up is worked on."""
        self.clock.advance(seconds)
        self.run(*sorted(self.sweep()))

    def settle(self, names: Sequence[str], seconds: float = PERIOD) -> None:
        """Time passes, then these are worked on, as their timers would have it."""
        self.clock.advance(seconds)
        self.run(*names)
