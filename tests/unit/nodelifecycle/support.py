"""The reconciler with everything around it replaced: a cloud, an API server and a recorder that are
lists."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from kubernetes.client.models.v1_node import V1Node

from cloudprovider import InstanceMetadata, InstanceNotFound, InstanceState
from cloudprovider.helpers import same_provider_id
from controllers.cloudcalls import Answer
from controllers.nodelifecycle.controller import NodeLifecycleController
from controllers.nodelifecycle.registration import NodeLifecycleOptions
from controllers.runtime.cache import key_of
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Batching, Result
from tests.support.clock import FakeClock
from tests.support.controllers import Lister, NodeCloud, Raw, Recorder, Server, take_all
from tests.support.there import there

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


V1_NODE_INFO = dict.fromkeys(
    (
        "architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion",
        "kubeletVersion", "machineID", "operatingSystem", "osImage", "systemUUID",
    ),
    "",
)  # fmt: skip


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
    machine: str = "",
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
    raw: Raw = {
        "metadata": metadata,
        "spec": {"providerID": provider_id, "taints": [dict(taint) for taint in taints]},
        "status": {"conditions": [] if ready is None else [{"type": "Ready", "status": ready}]},
    }
    if machine:
        raw["status"]["nodeInfo"] = {**V1_NODE_INFO, "machineID": machine, "systemUUID": f"uuid-{machine}"}
    return raw


def node(name: str = "n1", **fields: Any) -> V1Node:
    return there(V1Node.from_dict(raw_node(name, **fields)))


class Cloud(NodeCloud):
    """Answers what `says` holds; an absent node is answered RUNNING. `by_name`: the metadata."""

    has_instances = True
    chooses_pod_cidrs = True
    """It can; whether it does, a flag says."""

    def __init__(self, prefixes: Sequence[str] = ("fake://",), max_batch: int = 100) -> None:
        super().__init__(InstanceState.RUNNING, prefixes)
        self.max_batch = max_batch
        self.by_name: dict[str, InstanceMetadata | Exception] = {}
        self.named: list[V1Node] = []
        self.confirmed: list[str] = []
        """Nodes that every method of the provider was to be asked about."""

    def fetch_state(
        self, nodes: Sequence[V1Node], deliver: Callable[[str, Any], None], *, confirm: Container[str] = ()
    ) -> None:
        self.confirmed += [key_of(one) for one in nodes if key_of(one) in confirm]
        for one in nodes:
            self.answer(one, deliver)

    def batching(self, fetchers: int) -> Batching:
        return Batching(max_batch=self.max_batch, linger=0.0, fetchers=fetchers)

    def same_provider_id(self, one: str, other: str) -> bool:
        return same_provider_id(one, other)

    def fetch_metadata(self, nodes: Sequence[V1Node], deliver: Callable[[str, Any], None], **_: Any) -> None:
        for one in nodes:
            self.named.append(one)
            deliver(key_of(one), Answer(one, self.by_name.get(key_of(one), InstanceNotFound("no"))))


class Bench:
    """The controller around lists, without its threads."""

    def __init__(
        self,
        *,
        breaker: bool = True,
        limit: int = 10,
        out_of_service: bool = False,
        prefixes: tuple[str, ...] = ("fake://",),
        grace: float = 600.0,
        young_grace: float = 0.0,
        unknown_after: float = 300.0,
        max_batch: int = 100,
    ) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.cloud, self.server, self.recorder = Cloud(prefixes, max_batch), Server(), Recorder()
        self.lister: Lister[V1Node] = Lister()
        options = NodeLifecycleOptions(
            node_monitor_period=PERIOD,
            breaker=breaker,
            limit=limit,
            uninitialized_grace_period=grace,
            young_grace=young_grace,
            unknown_event_after=unknown_after,
            out_of_service_taint=out_of_service,
        )
        me = cast(Any, self)
        self.controller = it = NodeLifecycleController(
            me, me, cast(Any, self.cloud), options=options, metrics=self.metrics, clock=self.clock
        )
        it._recorder.event = self.recorder.event  # type: ignore[method-assign]  # the one seam to Events
        self.survey, self.reconciler, self.triggers, self.reports = (
            it._sweep,
            it._reconciler,
            it._triggers,
            it._reports,
        )
        self.candidates, self.samples, self.limit = it._shared.candidates, it._shared.samples, it._reconciler._limit
        self.samples._rng = random.Random(1)
        self.queue = self.triggers._queue
        self.queue._min_interval = 0.0  # `run` and `sweep` decide when a key is worked on

    def rest(self, name: str) -> Server:
        """The controller's client."""
        return self.server

    def informer(self, resource: Any) -> Any:
        """The controller's informer: this, as it has a lister."""
        return self

    def put(self, name: str = "n1", **fields: Any) -> V1Node:
        """A node in the cache and on the server."""
        self.lister.objects[name] = made = node(name, **fields)
        self.server.nodes[name] = raw_node(name, **fields)
        return made

    def drop(self, name: str) -> None:
        """The cache learns that a node is deleted."""
        self.triggers.on_delete(self.lister.objects.pop(name))

    def run(self, *names: str) -> dict[str, Result | Exception | None]:
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
            if name in self.lister.objects:
                self.drop(name)
        return results

    def sweep(self) -> set[str]:
        """One tick; returns the keys of the queue, and takes them off."""
        self.survey()
        return set(take_all(self.queue))

    def tick(self, seconds: float = PERIOD) -> None:
        """Time passes, then what a sweep brings up is worked on."""
        self.clock.advance(seconds)
        self.run(*sorted(self.sweep()))

    def settle(self, names: Sequence[str], seconds: float = PERIOD) -> None:
        """Time passes, then these are worked on, as their timers would have it."""
        self.clock.advance(seconds)
        self.sweep()
        self.run(*names)
