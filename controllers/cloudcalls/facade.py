"""CloudCalls: what controllers hold of a provider (stage 5, cloud call).

Made by the manager (or by a program of one controller) around a provider, and handed to every
controller. Nodes and Services come in from the reconcilers (stage 4), validated answers go back to
them. No controller calls vendor code in any other way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from kubernetes.client.models.v1_node import V1Node

from cloudprovider import InstanceMetadata, InstanceState, Interface, NotImplementedByProvider, SSHKeys
from cloudprovider.checks import answers
from cloudprovider.helpers.ips import IPNetwork
from controllers.cloudcalls.answer import Answer, judged
from controllers.cloudcalls.call import CloudCall
from controllers.cloudcalls.capabilities import (
    LoadBalancerCalls,
    ProviderCalls,
    PVLabelerCalls,
    RouteCalls,
    SSHKeyCalls,
)
from controllers.cloudcalls.errors import CallFailed, InvalidAnswer
from controllers.cloudcalls.gateway import DryRunBackend, Gateway
from controllers.cloudcalls.health import CallHealth, OverdueCall, health_of, overdue_of
from controllers.cloudcalls.limits import PRIORITY_NORMAL
from controllers.cloudcalls.nodes import instances
from controllers.cloudcalls.nodes.fetch import Deliver, Fetch, Way
from controllers.cloudcalls.nodes.instances import Program, Question
from controllers.cloudcalls.nodes.memory import AnswerCache, Facts
from controllers.cloudcalls.options import CloudCallOptions
from controllers.cloudcalls.outage import Outage
from controllers.runtime.cache import key_of
from controllers.runtime.cleaning import text_of
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Batching

A = TypeVar("A")
R = TypeVar("R")

_LINGER = 0.02
"""Seconds that a batch waits for more nodes."""


class CloudCalls:
    """One provider behind the gate. Thread-safe; build one per provider and process, after the
    registry made the provider, and `close` it at the end.

    `guard(method)` is called right before each call that changes the cloud and may raise to refuse
    it: fencing once the lease is lost. `dry_run` answers such calls in the cloud's place: then none
    of them is made. When more threads are lost to hung calls than `options.max_abandoned`, `health`
    turns fatal, and a manager ends the process; the library itself never does.

    Capabilities are looked up once, at first use (after `initialize`, whose contract says so). Each
    is None where the provider has none.
    """

    def __init__(
        self,
        provider: Interface,
        *,
        options: CloudCallOptions | None = None,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
        guard: Callable[[str], object] | None = None,
        dry_run: DryRunBackend | None = None,
    ) -> None:
        self.options = options or CloudCallOptions()
        self.provider_name = judged(answers.text, "provider_name")(provider.provider_name())
        self._provider = provider
        self._dry_run = dry_run
        self._gateway = Gateway(self.provider_name, self.options, metrics or Metrics(), clock, guard, dry_run)
        self.provider = ProviderCalls(self._gateway, provider)
        self._lock = threading.Lock()
        self._found: dict[str, Any] = {}
        self._facts = Facts()

    # ---- what the provider has

    @property
    def provider_id_prefixes(self) -> tuple[str, ...]:
        """How this provider's IDs begin; empty for a provider without provider IDs."""
        return self._once("provider_id_prefixes", self.provider.provider_id_prefixes)

    @property
    def max_batch(self) -> int:
        """How many nodes one call can ask about; 1 when the provider has no InstancesBatch.

        Raises InvalidAnswer when the provider names no sensible number.
        """
        return self._once("max_batch", self._ask_max_batch)

    def batching(self, fetchers: int) -> Batching:
        """How a worker is to ask about nodes: in batches, `fetchers` at once, or one by one where
        the provider has no InstancesBatch. Raises as `max_batch` does."""
        size = self.max_batch
        if size == 1:
            return Batching(max_batch=1, linger=0.0, fetchers=self.options.concurrency)
        return Batching(max_batch=size, linger=_LINGER, fetchers=fetchers)

    @property
    def has_instances(self) -> bool:
        """Whether the provider can be asked about nodes at all."""
        return any(self._capability(name) is not None for name in ("instances_batch", "instances_v2", "instances"))

    @property
    def chooses_pod_cidrs(self) -> bool:
        """Whether the provider can be asked for the nodes' pod CIDRs."""
        return self._capability("pod_cidrs") is not None

    @property
    def load_balancers(self) -> LoadBalancerCalls | None:
        """Load balancers."""
        return self._calls("load_balancer", LoadBalancerCalls)

    @property
    def routes(self) -> RouteCalls | None:
        """Routes."""
        return self._calls("routes", RouteCalls)

    @property
    def pv_labeler(self) -> PVLabelerCalls | None:
        """Labels of volumes."""
        return self._calls("pv_labeler", PVLabelerCalls)

    @property
    def ssh_keys(self) -> SSHKeyCalls | None:
        """SSH keys: of the class of the instances, where it is an `SSHKeys` too, or else of the
        older Instances."""

        def make() -> SSHKeyCalls | None:
            v2, batch, older = (self._capability(name) for name in ("instances_v2", "instances_batch", "instances"))
            found = next((one for one in (v2, batch) if isinstance(one, SSHKeys)), older)
            return None if found is None else SSHKeyCalls(self._gateway, found)

        return self._once("ssh keys", make)

    # ---- nodes

    def fetch_metadata(
        self,
        nodes: Sequence[V1Node],
        deliver: Deliver[InstanceMetadata],
        *,
        fresh: bool = False,
        priority: int = PRIORITY_NORMAL,
    ) -> None:
        """Ask what should be written on each node; `deliver(name, answer)` once per node, as
        answers come.

        Blocks until every node is answered, and calls `deliver` in this thread. The nodes have
        distinct names. What `Answer.of` raises is one node's own: InstanceNotFound, InvalidAnswer,
        AnswerMissing, Throttled, CallOverdue ...

        Unless `fresh`, an answer of the last `options.cache_ttl` seconds serves too.
        """
        self._fetch("metadata", self._metadata_way, nodes, deliver, fresh=fresh, priority=priority)

    def fetch_state(self, nodes: Sequence[V1Node], deliver: Deliver[InstanceState]) -> None:
        """Ask whether each node's instance runs, is shut down, or gone; otherwise as
        `fetch_metadata`.

        "Gone" is always InstanceState.GONE, and an error always means unknown. Every answer is
        fresh: deletions rest on them.
        """
        answered = deliver
        if (dry_run := self._dry_run) is not None:

            def answered(name: str, answer: Answer[InstanceState]) -> None:
                dry_run.stated(name, answer.unbound)
                deliver(name, answer)

        self._fetch("state", self._state_way, nodes, answered)

    def fetch_pod_cidrs(self, nodes: Sequence[V1Node], deliver: Deliver[tuple[IPNetwork, ...]]) -> None:
        """Ask for the pod CIDRs that the cloud chose, () where it has not yet; otherwise as
        `fetch_metadata`.

        Where `chooses_pod_cidrs`. Every answer is fresh: one of each IP family at most, without
        host bits.
        """
        self._fetch("pod cidrs", self._pod_cidrs_way, nodes, deliver)

    def same_provider_id(self, one: str, other: str) -> bool:
        """Whether two provider IDs name one instance, as the provider sees it.

        Answers of `fetch_metadata` need no comparison: in them the node's own spelling stands
        already. Raises what the provider's method raised.
        """
        return one == other or self._quietly("same_provider_id", partial(self._same_id, one, other), _as_it_is)

    def forget_node(self, name: str) -> None:
        """The node is gone: nothing is kept of it any more."""
        self._facts.forget(name)

    # ---- anything else

    def call(
        self,
        method: str,
        fn: Callable[..., R],
        *args: Any,
        key: str,
        mutating: bool = False,
        priority: int = PRIORITY_NORMAL,
    ) -> R:
        """Call vendor code that has no wrapper here. The answer is passed on as it is.

        `method` names it in metrics, `key` whom it is about. Objects among `args`, also in lists,
        are read-only. Raises as the wrappers do.
        """
        call: CloudCall[R] = CloudCall(method, fn, args, key, _as_it_is, mutating, priority)
        return self._gateway.call(call)

    # ---- health and end

    @property
    def outage(self) -> Outage:
        """The `OutageListener` of workers: brings the keys back that failed while the cloud did not
        answer."""
        return self._gateway.outage

    def health(self) -> CallHealth:
        """Whether calls are overdue, which ones, and whether the process should end."""
        gateway = self._gateway
        return health_of(gateway.pool, gateway.outage, self.options.timeout, gateway.clock.monotonic())

    def in_flight(self) -> int:
        """Calls under way, overdue ones not counted."""
        return len(self._gateway.pool.running())

    def changing(self) -> list[OverdueCall]:
        """The calls that may change the cloud and still run, those that were given up too; the
        longest first."""
        pool, now = self._gateway.pool, self._gateway.clock.monotonic()
        calls = sorted({*pool.running(), *pool.overdue()}, key=lambda call: call.started)
        return [overdue_of(call, now) for call in calls if call.mutating]

    def parked(self) -> Mapping[str, OverdueCall]:
        """The keys that rest until an overdue call ends: "node/<name>",
        "service/<namespace>/<name>" ..."""
        pool, now = self._gateway.pool, self._gateway.clock.monotonic()
        return {key: overdue_of(call, now) for key, call in sorted(pool.parked().items())}

    def cancel_running(self) -> None:
        """Set `current_call().cancelled` in every call under way: the lease is lost, or the drain
        took too long."""
        self._gateway.pool.cancel_running()

    def close(self, timeout: float | None = 0.0) -> bool:
        """Make no further calls: those that wait for their turn, and later ones, end with
        CallsClosed.

        Waits at most `timeout` seconds (None: without end) for those under way, overdue ones not
        counted; True when they ended. May be called twice.
        """
        self._gateway.pool.close()
        return self._gateway.pool.wait_idle(timeout)

    # ---- inside

    def _fetch(
        self,
        kind: str,
        make: Callable[[], Way[A]],
        nodes: Sequence[V1Node],
        deliver: Deliver[A],
        *,
        fresh: bool = True,
        priority: int = PRIORITY_NORMAL,
    ) -> None:
        try:
            way: Way[A] = self._once(kind, make)
        except Exception as error:  # noqa: BLE001 - the provider's accessors failed: that is every node's answer
            for node in nodes:
                deliver(key_of(node), Answer.about(node, error))
            return
        Fetch(self._gateway, way, deliver, fresh=fresh, priority=priority).run(nodes)

    def _metadata_way(self) -> Way[InstanceMetadata]:
        prefixes, same = self.provider_id_prefixes, self._same_id
        batch, v2, legacy, zones = self._instance_capabilities()

        def program(question: Question) -> Program[InstanceMetadata]:
            if v2 is not None:
                return instances.metadata_v2(v2, question, prefixes, same)
            if legacy is not None:
                return instances.metadata_legacy(legacy, zones, question, self.provider_name, prefixes, self._facts)
            raise NotImplementedByProvider(f"cloud provider {self.provider_name!r} cannot be asked about nodes")

        together = (
            None if batch is None else lambda questions: instances.metadata_batch(batch, questions, prefixes, same)
        )
        return Way(program, together, self.max_batch, AnswerCache(self.options.cache_ttl))

    def _state_way(self) -> Way[InstanceState]:
        batch, v2, legacy, _ = self._instance_capabilities()

        def program(question: Question) -> Program[InstanceState]:
            if v2 is not None:
                return instances.state_v2(v2, question)
            if legacy is not None:
                return instances.state_legacy(legacy, question, self.provider_name)
            raise NotImplementedByProvider(f"cloud provider {self.provider_name!r} cannot be asked about nodes")

        together = None if batch is None else partial(instances.state_batch, batch)
        return Way(program, together, self.max_batch)

    def _pod_cidrs_way(self) -> Way[tuple[IPNetwork, ...]]:
        capability = self._capability("pod_cidrs")
        if capability is None:
            raise NotImplementedByProvider(f"cloud provider {self.provider_name!r} chooses no pod CIDRs")
        together = partial(instances.pod_cidrs_batch, capability)
        size = self._quietly("max_batch", lambda: capability.max_batch, _batch_size)
        return Way(instances.pod_cidrs_alone, together, size)

    def _same_id(self, one: str, other: str) -> bool:
        """The provider's own word, in a thread of the pool. It decides nothing but this, so
        whatever it raises is a failed call: it must not pass for "not found"."""
        try:
            return judged(answers.flag, "same_provider_id")(self._provider.same_provider_id(one, other))
        except Exception as error:
            raise CallFailed(f"the provider's same_provider_id failed: {text_of(error)}") from error

    def _instance_capabilities(self) -> tuple[Any, Any, Any, Any]:
        find = self._capability
        return find("instances_batch"), find("instances_v2"), find("instances"), find("zones")

    def _ask_max_batch(self) -> int:
        batch = self._capability("instances_batch")
        if batch is None:
            return 1
        return self._quietly("max_batch", lambda: batch.max_batch, _batch_size)

    def _calls(self, name: str, kind: Callable[[Gateway, Any], R]) -> R | None:
        def make() -> R | None:
            capability = self._capability(name)
            return None if capability is None else kind(self._gateway, capability)

        return self._once(f"{name} calls", make)

    def _capability(self, name: str) -> Any:
        return self._once(name, lambda: self._quietly(name, getattr(self._provider, name), _as_it_is))

    def _quietly(self, method: str, fn: Callable[[], Any], check: Callable[[Any], R]) -> R:
        """Vendor code that does no work, so it is not counted; but it could hang."""
        call: CloudCall[R] = CloudCall(method, fn, (), "provider", check)
        call.counted = False
        return self._gateway.call(call)

    def _once(self, name: str, make: Callable[[], R]) -> R:
        try:
            found: R = self._found[name]
            return found
        except KeyError:
            pass
        made = make()
        with self._lock:
            kept: R = self._found.setdefault(name, made)
            return kept


def _as_it_is(answer: Any) -> Any:
    return answer


def _batch_size(answer: object) -> int:
    if not isinstance(answer, int) or isinstance(answer, bool) or answer < 1:
        raise InvalidAnswer("max_batch", [f"it is {answer!r}, not a number of at least 1"])
    return answer
