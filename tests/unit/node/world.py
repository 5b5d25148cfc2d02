"""The parts of the node controller (triggers, memory, reconciler) over an API server of one dict, on a moved clock.

Queues are sets: `World.work` works them off in this thread. Every write of ours is kept in `writes`, every question to
the cloud in `asked`; what `edit` does is somebody else's and goes through the triggers as the informer would tell it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any, cast

from kubernetes.client.models.v1_node import V1Node

from cloudprovider import InstanceMetadata
from controllers.node.changes import APPLIED_LABELS
from controllers.node.memory import NodeMemory
from controllers.node.metrics import NodeMetrics
from controllers.node.reconcile import NodeReconciler
from controllers.node.triggers import NodeTriggers
from controllers.runtime.api import Conflict, NotFound, Response
from controllers.runtime.metrics import Metrics
from tests.support.clock import FakeClock
from tests.unit.node.test_changes import instance

JSON = dict[str, Any]
PERIOD = 300.0
UNINITIALIZED = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}


class Queue:
    """The keys that wait, and those that wait for a time."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.later: dict[str, float] = {}

    def add(self, key: str, priority: int = 0) -> None:
        self.keys.add(key)

    def forget(self, key: str) -> None:
        self.keys.discard(key)


class World:
    """One API server, one cloud, one process; `restart` ends that and begins the next."""

    provider_name = "fake"

    def __init__(self, *, prefixes: Sequence[str] = ("fake://",)) -> None:
        self.clock = FakeClock()
        self.provider_id_prefixes = tuple(prefixes)
        self.stored: dict[str, JSON] = {}
        self.answers: dict[str, InstanceMetadata | Exception] = {}
        self.writes: list[tuple[str, JSON]] = []
        self.asked: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.before_write: Callable[[str, JSON], None] = lambda name, body: None
        self._version = 100
        self.restart()

    def restart(self) -> None:
        """Another process: it remembers nothing."""
        self.nodes, self.refreshes, self.metrics = Queue(), Queue(), Metrics()
        self.memory = NodeMemory(PERIOD)
        me = cast(Any, self)
        own_metrics = NodeMetrics(self.metrics, me, self.memory, self.clock)
        self.reconciler = NodeReconciler(me, me, me, me, own_metrics, self.clock, self.memory)
        self.triggers = NodeTriggers(
            cast(Any, self.nodes),
            cast(Any, self.refreshes),
            me,
            self.provider_id_prefixes,
            self.memory,
            self.clock,
            on_foreign=lambda node: None,
            on_gone=lambda key: None,
        )
        self.due = 0.0
        for name in self.stored:
            self.triggers.on_add(self._typed(name), True)

    # ---- somebody else

    def create(
        self, name: str = "n1", *, labels: JSON | None = None, annotations: JSON | None = None, **spec: Any
    ) -> None:
        """A node as its kubelet registers it; with the uninitialized taint, unless `taints` says otherwise."""
        self._version += 1
        self.stored[name] = {
            "metadata": {
                "name": name,
                "uid": f"u{self._version}",
                "resourceVersion": str(self._version),
                "labels": dict(labels or {}),
                "annotations": dict(annotations or {}),
            },
            "spec": {"taints": [UNINITIALIZED], **spec},
            "status": {"addresses": [{"type": "Hostname", "address": name}]},
        }
        self.answers.setdefault(name, instance())
        self.triggers.on_add(self._typed(name), False)

    def edit(self, name: str = "n1", **parts: Any) -> None:
        """Somebody else's write: `labels` and `annotations` (None removes), `taints`, `addresses`."""
        self._change(name, parts)

    def delete(self, name: str = "n1") -> None:
        node = self._typed(name)
        del self.stored[name]
        self.triggers.on_delete(node)

    # ---- we

    def work(self) -> None:
        """Work off what waits, and the sweep if it is due, until nothing is left."""
        now = self.clock.monotonic()
        if now >= self.due:
            self.triggers.sweep()
            self.due = now + PERIOD
        for name, when in list(self.nodes.later.items()):
            if when <= now:
                del self.nodes.later[name]
                self.nodes.keys.add(name)
        for _ in range(100):
            if not (self.nodes.keys or self.refreshes.keys):
                return
            self._work_off(self.nodes, self.reconciler.fetch_new, self.reconciler.initialize)
            self._work_off(self.refreshes, self.reconciler.fetch_known, self.reconciler.refresh)
        raise AssertionError(f"it never comes to rest: {self.writes[-4:]}")

    def pass_time(self, seconds: float, step: float = 1.0, between: Callable[[], None] = lambda: None) -> None:
        """Let time pass; `between` is what somebody does at every step."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.clock.advance(step)
            between()
            self.work()

    def labels(self, name: str = "n1") -> JSON:
        return dict(self.stored[name]["metadata"]["labels"])

    def record(self, name: str = "n1") -> JSON:
        return cast(JSON, json.loads(self.stored[name]["metadata"]["annotations"][APPLIED_LABELS]))

    def tainted(self, name: str = "n1") -> bool:
        return UNINITIALIZED in (self.stored[name]["spec"].get("taints") or [])

    def _work_off(self, queue: Queue, fetch: Any, reconcile: Any) -> None:
        keys, queue.keys = sorted(queue.keys), set()
        answers: JSON = {}
        fetch(keys, answers.__setitem__)
        for key in keys:
            result = reconcile(key, answers[key])
            if result is not None and result.requeue_after is not None:
                queue.later[key] = self.clock.monotonic() + result.requeue_after

    # ---- stands for lister, client, cloud and recorder

    def get(self, key: str, **_: Any) -> Any:
        name = key.rpartition("/")[2]
        if key.startswith("/"):
            if name not in self.stored:
                raise NotFound("gone", status=404)
            return copy.deepcopy(self.stored[name])
        return self._typed(name) if name in self.stored else None

    def list(self) -> list[V1Node]:
        return [self._typed(name) for name in self.stored]

    def request(self, method: str, path: str, *, body: JSON, **_: Any) -> Response:
        assert method == "PATCH"
        name = path.removesuffix("/status").rpartition("/")[2]
        self.before_write(name, body)
        if name not in self.stored:
            raise NotFound("gone", status=404)
        meta = dict(body.get("metadata", {}))
        version = meta.pop("resourceVersion", None)
        meta.pop("uid", None)
        if version is not None and version != self.stored[name]["metadata"]["resourceVersion"]:
            raise Conflict("stale", status=409)
        self.writes.append((name, body))
        parts = {key: meta[key] for key in ("labels", "annotations") if key in meta}
        spec = body.get("spec", {})
        parts.update({key: spec[key] for key in ("taints", "providerID") if key in spec})
        if "status" in body:
            parts["addresses"] = body["status"]["addresses"][1:]
        self._change(name, parts)
        return Response(200, {}, json.dumps(self.stored[name]).encode())

    def fetch_metadata(self, nodes: Sequence[V1Node], deliver: Any, *, priority: int) -> None:
        for node in nodes:
            assert node.metadata is not None
            assert node.metadata.name is not None
            self.asked.append(node.metadata.name)
            deliver(node.metadata.name, self.answers[node.metadata.name])

    def event(self, _: Any, __: str, reason: str, message: str) -> None:
        self.events.append((reason, message))

    def _change(self, name: str, parts: JSON) -> None:
        old, stored = self._typed(name), self.stored[name]
        before = copy.deepcopy(stored)
        for field in ("labels", "annotations"):
            merged = {**stored["metadata"][field], **parts.get(field, {})}
            stored["metadata"][field] = {key: value for key, value in merged.items() if value is not None}
        for field in ("taints", "providerID"):
            if field in parts:
                stored["spec"][field] = parts[field]
        if "addresses" in parts:
            stored["status"]["addresses"] = parts["addresses"]
        if stored != before:
            self._version += 1
            stored["metadata"]["resourceVersion"] = str(self._version)
            self.triggers.on_update(old, self._typed(name))

    def _typed(self, name: str) -> V1Node:
        node = V1Node.from_dict(copy.deepcopy(self.stored[name]))
        assert node is not None
        return node
