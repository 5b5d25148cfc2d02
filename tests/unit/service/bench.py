"""The controller's parts over dicts, without threads or waits: a test delivers events, works off
the queues and moves the clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service

from cloudprovider.internal.backoff import Backoff
from controllers.cloudcalls import CloudCallError
from controllers.runtime.api import ApiError
from controllers.runtime.cache import NODES, SERVICES
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import WorkQueue
from controllers.runtime.queue.outcomes import FailureHandling, Requeuer
from controllers.service.calls import CacheBehind, KubeSystemUID, ServiceAPI, ServiceCloud
from controllers.service.changes import Classes
from controllers.service.conditions import Conditions
from controllers.service.controller import ServiceTriggers
from controllers.service.execute import Executor
from controllers.service.orphans import Orphans
from controllers.service.reconcile import NodeSync, ServiceReconciler
from controllers.service.records import Records, Schedule
from controllers.service.remove import Remover
from controllers.service.targets import NodeTraits, TargetSet, describe
from tests.support.clock import FakeClock
from tests.support.controllers import Lister, Recorder, Server, clone, take_all
from tests.unit.service.objects import CLUSTER, Cloud, raw_node, raw_service


class Bench:
    """The controller without threads. The server's changes reach its cache by `see`; `work` runs
    what waits."""

    def __init__(
        self,
        *nodes: str,
        drift_period: float = 1800.0,
        ensure_period: float = 43200.0,
        ready_only: bool = False,
        window: float = 1.0,
        longest: float = 5.0,
        classes: Iterable[str] = ("",),
        conditions: bool = False,
    ) -> None:
        self.clock = FakeClock()
        self.server, self.cloud = Server(), Cloud()
        self.classes, self.conditions = Classes(classes), conditions
        self.identity: list[str | ApiError | None] = ["cluster-1"]
        self.settings = {
            "drift_period": drift_period,
            "ensure_period": ensure_period,
            "ready_only": ready_only,
            "window": window,
            "longest": longest,
        }
        for name in nodes:
            self.server.put(raw_node(name, f"10.0.0.{len(self.server.nodes) + 1}"))
        self.start()

    def start(self) -> None:
        """A new process: all that it knows is what its first listings show."""
        clock, settings = self.clock, self.settings
        self.metrics, self.recorder, self.records = Metrics(), Recorder(), Records()
        self.services: Lister[V1Service] = Lister()
        self.nodes: Lister[V1Node] = Lister()
        self.queue: WorkQueue[str] = WorkQueue(
            "service",
            clock=clock,
            metrics=self.metrics,
            backoff=Backoff(1.0, 60.0),
            min_interval=0.2,
            chance=lambda: 0.0,
        )
        self.node_queue: WorkQueue[str] = WorkQueue("node", clock=clock, metrics=self.metrics)
        self.again: WorkQueue[str] = WorkQueue("second-look", clock=clock, metrics=self.metrics)
        balancers = cast(Any, self.cloud)
        traits = NodeTraits(balancers, cast(Any, self.recorder)) if self.cloud.has_hook("target_traits") else None
        self.targets = TargetSet(cast(Any, self.nodes), bool(settings["ready_only"]), traits)
        self.sync = NodeSync(
            self.node_queue,
            self.queue,
            self.records,
            self.targets,
            self.metrics,
            clock,
            quiet=settings["window"],
            longest=settings["longest"],
        )
        self.triggers = ServiceTriggers(self.queue, self.records, self.classes, whole=self.cloud.has_hook("depends_on"))
        self.api = ServiceAPI(cast(Any, self.server), bool(settings["ready_only"]), clock)
        self.known = KubeSystemUID(self._identity, clock)
        recorder = cast(Any, self.recorder)
        service_cloud = ServiceCloud(balancers, self.records, recorder, CLUSTER, self.known, clock)
        self.orphans = Orphans(
            self.again, cast(Any, self.services), self.api, service_cloud, self.metrics, clock, classes=self.classes
        )
        conditions = Conditions(self.api, self.records, clock) if self.conditions else None
        schedule = Schedule(settings["drift_period"], settings["ensure_period"], lambda: 1.0)
        self.reconciler = ServiceReconciler(
            cast(Any, self.services),
            service_cloud,
            Executor(self.api, service_cloud, self.sync.current, self.metrics, schedule, clock, conditions),
            Remover(self.api, service_cloud, self.orphans.deleted, conditions),
            self.sync,
            schedule,
            clock,
            self.classes,
            conditions,
        )
        expected = (CloudCallError, CacheBehind)
        handling: FailureHandling[str] = FailureHandling(
            on_wait=lambda key, error, long: service_cloud.waiting(key, self.services.get(key), error, long),
            expected=expected,
        )
        self._requeuer = Requeuer(self.queue, handling, metrics=self.metrics, clock=clock)
        self._again_requeuer = Requeuer(
            self.again, FailureHandling(expected=expected), metrics=self.metrics, clock=clock
        )
        self._node_requeuer = Requeuer(self.node_queue, FailureHandling(), metrics=self.metrics, clock=clock)
        self.server.log.clear()
        for name, raw in sorted(self.server.nodes.items()):
            self.nodes.objects[name] = listed = NODES.parse(clone(raw))
            self.sync.on_add(listed, True)
        for key, raw in sorted(self.server.services.items()):
            self.services.objects[key] = found = SERVICES.parse(clone(raw))
            self.triggers.on_add(found, True)

    def _identity(self) -> str | None:
        answer = self.identity[-1]
        if isinstance(answer, ApiError):
            raise answer
        return answer

    def see(self, number: int | None = None) -> None:
        """The cache takes the oldest `number` changes that it has not seen; all of them by
        default."""
        for _ in range(len(self.server.log) if number is None else min(number, len(self.server.log))):
            plural, key, raw = self.server.log.popleft()
            if plural == "nodes":
                self.nodes.take(self.sync, key, None if raw is None else NODES.parse(raw))
            else:
                self.services.take(self.triggers, key, None if raw is None else SERVICES.parse(raw))

    def work(self, most: int = 1000) -> list[str]:
        """Run what waits now, without any change seen meanwhile; returns the Services' keys."""
        ran: list[str] = []
        for _ in range(most):
            if (key := self.node_queue.get(timeout=0)) is not None:
                self._node_requeuer.run(key, self.sync.sync, key)
            elif (key := self.queue.get(timeout=0)) is not None:
                ran.append(key)
                self._requeuer.run(key, self.reconciler.reconcile, key)
            elif (key := self.again.get(timeout=0)) is not None:
                self._again_requeuer.run(key, self.orphans.delete_again, key)
            else:
                return ran
        return ran

    def settle(self, rounds: int = 6, step: float = 1.0) -> list[str]:
        """See and work, `rounds` times, `step` seconds apart."""
        ran: list[str] = []
        for _ in range(rounds):
            self.see()
            ran += self.work()
            self.clock.advance(step)
        return ran

    def serve(self, name: str = "web", **fields: Any) -> str:
        """A Service is created and served; the calls for it are forgotten. Returns its key."""
        raw = raw_service(name, **fields)
        self.server.put(raw)
        self.settle()
        self.forget()
        return f"{raw['metadata']['namespace']}/{name}"

    def forget(self) -> None:
        """What was called, written and told so far."""
        self.cloud.calls.clear()
        self.cloud.priorities.clear()
        self.cloud.given.clear()
        self.server.patches.clear()
        self.server.gets.clear()
        self.recorder.clear()

    def waiting(self) -> list[str]:
        """The Services' keys that would run now, taken off the queue."""
        return take_all(self.queue)

    def wanted_nodes(self) -> list[str]:
        """What a load balancer is to have, by the server's nodes."""
        ready_only = bool(self.settings["ready_only"])
        lister: Lister[V1Node] = Lister({name: NODES.parse(clone(raw)) for name, raw in self.server.nodes.items()})
        return [*map(describe, TargetSet(cast(Any, lister), ready_only).current().nodes)]
