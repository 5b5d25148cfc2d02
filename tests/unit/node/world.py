"""The parts of the node controller (triggers, memory, reconciler) over an API server of one dict,
on a moved clock.

Queues are sets: `World.work` works them off in this thread. Each change of the server reaches the
cache and the triggers at once, ours and what `edit` does as somebody else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, cast

from kubernetes.client.models.v1_node import V1Node

from cloudprovider import InstanceMetadata
from cloudprovider.helpers import ALL_ADDRESSES, AddressChoice
from cloudprovider.internal.patching import merge_patch
from controllers.cloudcalls import Answer
from controllers.node.addresses import NoIPAddress
from controllers.node.kept import APPLIED_LABELS
from controllers.node.memory import NodeMemory, NodeMetrics
from controllers.node.reconcile import NodeReconciler
from controllers.node.triggers import NodeTriggers
from controllers.runtime.cache import key_of
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import AskAgain
from tests.support.clock import FakeClock
from tests.support.controllers import Lister, NodeCloud, Raw, Recorder, Server, parsed_node
from tests.unit.node.test_changes import instance

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

    def __init__(self, *, prefixes: Sequence[str] = ("fake://",), choice: AddressChoice = ALL_ADDRESSES) -> None:
        self.choice = choice
        self.clock = FakeClock()
        self.cloud, self.server, self.recorder = NodeCloud(prefixes=prefixes), Server(), Recorder()
        self.server.on_change = self._changed
        self.sees = True
        """False: changes do not reach the cache."""
        self.restart()

    def restart(self) -> None:
        """Another process: it remembers nothing."""
        self.nodes, self.refreshes, self.metrics = Queue(), Queue(), Metrics()
        self.lister: Lister[V1Node] = Lister()
        self.memory = NodeMemory(PERIOD)
        lister, server, cloud, recorder = map(_any, (self.lister, self.server, self.cloud, self.recorder))
        own_metrics = NodeMetrics(self.metrics, lister, self.memory, self.clock)
        self.reconciler = NodeReconciler(
            server, lister, cloud, recorder, own_metrics, self.clock, self.memory, choice=self.choice
        )
        queues = _any(self.nodes), _any(self.refreshes)
        self.shared: dict[str, tuple[str, ...]] = {}
        self.triggers = NodeTriggers(
            *queues,
            lister,
            cloud,
            self.memory,
            self.clock,
            lambda node: None,
            lambda node, others: self.shared.__setitem__(key_of(node), tuple(others)),
        )
        self.due = 0.0
        for name in self.server.nodes:
            self.show(name)
            self.triggers.on_add(self.lister.objects[name], True)

    # ---- somebody else

    def create(
        self, name: str = "n1", *, labels: Raw | None = None, annotations: Raw | None = None, **spec: Any
    ) -> None:
        """A node as its kubelet registers it; with the uninitialized taint, unless `taints` says
        otherwise."""
        metadata: Raw = {"name": name, "uid": f"u{self.server.version + 1}"}
        metadata |= {"labels": dict(labels or {}), "annotations": dict(annotations or {})}
        self.cloud.says.setdefault(name, instance())
        self.server.put(
            {
                "metadata": metadata,
                "spec": {"taints": [UNINITIALIZED], **spec},
                "status": {"addresses": [{"type": "Hostname", "address": name}]},
            }
        )

    def edit(self, name: str = "n1", **parts: Any) -> None:
        """Somebody else's write: `labels` and `annotations` (None removes), `taints`,
        `addresses`."""

        def change(node: Raw) -> None:
            for field in ("labels", "annotations"):
                node["metadata"][field] = merge_patch(node["metadata"].get(field), parts.get(field, {}))
            node["spec"].update({field: parts[field] for field in ("taints", "providerID") if field in parts})
            node["status"].update({field: parts[field] for field in ("addresses",) if field in parts})

        self.server.edit(name, change)

    def delete(self, name: str = "n1") -> None:
        self.server.delete(name)

    def show(self, name: str = "n1") -> None:
        """The cache has the node as it is on the server, and nobody was told."""
        self.lister.objects[name] = parsed_node(self.server.nodes[name])

    def _changed(self, name: str, raw: Raw | None) -> None:
        if self.sees:
            self.lister.take(self.triggers, name, None if raw is None else parsed_node(raw))

    # ---- we

    def work(self) -> None:
        """Work off what waits, and the sweep if it is due, until nothing is left."""
        now = self.clock.monotonic()
        if now >= self.due:
            self.triggers.sweep()
            self.due = now + PERIOD
        for queue in (self.nodes, self.refreshes):
            for name, when in list(queue.later.items()):
                if when <= now:
                    del queue.later[name]
                    queue.keys.add(name)
        for _ in range(100):
            if not (self.nodes.keys or self.refreshes.keys):
                return
            self._work_off(self.nodes, self.reconciler.fetch_new, self.reconciler.initialize)
            self._work_off(self.refreshes, self.reconciler.fetch_known, self.reconciler.refresh)
        raise AssertionError(f"it never comes to rest: {self.server.applied[-4:]}")

    def pass_time(self, seconds: float, step: float = 1.0, between: Callable[[], None] = lambda: None) -> None:
        """Let time pass; `between` is what somebody does at every step."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.clock.advance(step)
            between()
            self.work()

    def answer(self, name: str = "n1") -> Answer[InstanceMetadata]:
        """What the cloud says of the node as it is now."""
        return Answer(self.lister.objects[name], self.cloud.says[name])

    def labels(self, name: str = "n1") -> Raw:
        return dict(self.server.nodes[name]["metadata"]["labels"])

    def record(self, name: str = "n1") -> Raw:
        return cast(Raw, json.loads(self.server.nodes[name]["metadata"]["annotations"][APPLIED_LABELS]))

    def addresses(self, name: str = "n1") -> list[tuple[str, str]]:
        return [(one["type"], one["address"]) for one in self.server.nodes[name]["status"]["addresses"]]

    def tainted(self, name: str = "n1") -> bool:
        return UNINITIALIZED in (self.server.nodes[name]["spec"].get("taints") or [])

    def _work_off(self, queue: Queue, fetch: Any, reconcile: Any) -> None:
        keys, queue.keys = sorted(queue.keys), set()
        answers: Raw = {}
        fetch(keys, answers.__setitem__)
        for key in keys:
            self.cloud.moment()
            try:
                result = reconcile(key, answers[key])
            except AskAgain:
                queue.keys.add(key)
                continue
            except NoIPAddress as error:
                queue.later[key] = self.clock.monotonic() + error.retry_after
                continue
            if result is not None and result.requeue_after is not None:
                queue.later[key] = self.clock.monotonic() + result.requeue_after


def _any(double: object) -> Any:
    return double
