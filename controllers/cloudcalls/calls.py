"""CloudCalls: what controllers hold of a provider (stage 5, cloud call).

Made by the manager (or by a program of one controller) around a provider, and handed to every
controller. Nodes and Services come in from the reconcilers (stage 4), validated answers go back to
them. No controller calls vendor code in any other way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from kubernetes.client.models.v1_node import V1Node

from cloudprovider import InstanceMetadata, InstanceState, InstancesV2, Interface, NotImplementedByProvider, SSHKeys
from cloudprovider.checks import answers
from cloudprovider.checks.olderinstances import OlderInstances
from cloudprovider.helpers import provider_id_of
from cloudprovider.ips import IPNetwork
from controllers.cloudcalls import nodes as asking
from controllers.cloudcalls.answers import Answer, InvalidAnswer, failed, judge
from controllers.cloudcalls.call import PRIORITY_NORMAL, CloudCall
from controllers.cloudcalls.capabilities import (
    LoadBalancerCalls,
    ProviderCalls,
    PVLabelerCalls,
    ResourceCalls,
    RouteCalls,
    SSHKeyCalls,
)
from controllers.cloudcalls.lookagain import LookAgain
from controllers.cloudcalls.metrics import CallHealth, CallMetrics, OverdueCall
from controllers.cloudcalls.nodes import Ask, Deliver, Fetch, NodeQuery, Together
from controllers.cloudcalls.options import CloudCallOptions
from controllers.cloudcalls.pool import CallPool
from controllers.runtime.cache import key_of
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
    it: fencing once the lease is lost. When more threads are lost to hung calls than
    `options.max_abandoned`, `health` turns fatal, and a manager ends the process; the library
    itself never does.

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
    ) -> None:
        self.options = options or CloudCallOptions()
        self.provider_name = judge(answers.text, "provider_name", provider.provider_name())
        self._provider = provider
        metrics = metrics or Metrics()
        self._metrics = CallMetrics(self.provider_name, metrics, clock)
        self.again = LookAgain(metrics, guard)
        """What the provider asks the controllers to look at again."""
        self._pool = CallPool(self.provider_name, self.options, clock, self._metrics.ended, guard)
        self._metrics.watch(self._pool)
        self.provider = ProviderCalls(self._pool, provider)
        self._lock = threading.Lock()
        self._found: dict[str, Any] = {}

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
        return self._calls("routes", partial(RouteCalls, prefixes=lambda: self.provider_id_prefixes))

    @property
    def resources(self) -> ResourceCalls | None:
        """What else a cluster owns in the cloud."""
        return self._calls("owned_resources", ResourceCalls)

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
            return None if found is None else SSHKeyCalls(self._pool, found)

        return self._once("ssh keys", make)

    # ---- nodes

    def fetch_metadata(
        self,
        nodes: Sequence[V1Node],
        deliver: Deliver[InstanceMetadata],
        *,
        priority: int = PRIORITY_NORMAL,
    ) -> None:
        """Ask what should be written on each node; `deliver(name, answer)` once per node, as
        answers come.

        Blocks until every node is answered, and calls `deliver` in this thread. The nodes have
        distinct names. What `Answer.of` raises is one node's own: InstanceNotFound, InvalidAnswer,
        AnswerMissing, Throttled, CallOverdue ... Nothing is answered from memory.
        """
        self._fetch("metadata", self._metadata_query, nodes, deliver, priority)

    def fetch_state(
        self, nodes: Sequence[V1Node], deliver: Deliver[InstanceState], *, confirm: Container[str] = ()
    ) -> None:
        """Ask whether each node's instance runs, is shut down, or gone; otherwise as
        `fetch_metadata`.

        "Gone" is always InstanceState.GONE, and an error always means unknown.

        `confirm`: names of nodes that are gone only if `instances_state` and `instance_exists` both
        say so, where the provider has both. Where they contradict, the answer is a Contradiction.
        """
        doubted: list[V1Node] = []

        def heard(name: str, answer: Answer[InstanceState]) -> None:
            if answer.unbound is InstanceState.GONE and name in confirm:
                doubted.append(answer.node)
            else:
                deliver(name, answer)

        # A batch listing that lost a page says "gone" too; one call for each node does not.
        both = bool(confirm) and None not in (self._capability("instances_batch"), self._instances_v2())
        self._fetch("state", self._state_query, nodes, heard if both else deliver)
        if doubted:
            self._fetch("existence", self._existence_query, doubted, deliver)

    def fetch_pod_cidrs(self, nodes: Sequence[V1Node], deliver: Deliver[tuple[IPNetwork, ...]]) -> None:
        """Ask for the pod CIDRs that the cloud chose, () where it has not yet; otherwise as
        `fetch_metadata`.

        Where `chooses_pod_cidrs`. One of each IP family at most, without host bits.
        """
        self._fetch("pod cidrs", self._pod_cidrs_query, nodes, deliver)

    def same_provider_id(self, one: str, other: str) -> bool:
        """Whether two provider IDs name one instance, as the provider sees it.

        Answers of `fetch_metadata` need no comparison: in them the node's own spelling stands
        already. Raises what the provider's method raised.
        """
        return one == other or self._quietly("same_provider_id", partial(self._same_id, one, other), _as_it_is)

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
        check: Callable[[Any], R] = _as_it_is
        return self._pool.call(CloudCall(method, fn, args, key, check, mutating, priority))

    # ---- health and end

    def health(self) -> CallHealth:
        """Whether calls are overdue, which ones, and whether the process should end."""
        return self._metrics.health(self._pool)

    def in_flight(self) -> int:
        """Calls under way, overdue ones not counted."""
        return len(self._pool.running())

    def changing(self) -> list[OverdueCall]:
        """The calls that may change the cloud and still run, those that were given up too; the
        longest first."""
        now = self._pool.clock.monotonic()
        calls = sorted({*self._pool.running(), *self._pool.overdue()}, key=lambda call: call.started)
        return [OverdueCall.of(call, now) for call in calls if call.mutating]

    def parked(self) -> Mapping[str, OverdueCall]:
        """The keys that rest until an overdue call ends: "node/<name>",
        "service/<namespace>/<name>" ..."""
        now = self._pool.clock.monotonic()
        return {key: OverdueCall.of(call, now) for key, call in sorted(self._pool.parked().items())}

    def cancel_running(self) -> None:
        """Set `current_call().cancelled` in every call under way: the lease is lost, or the drain
        took too long."""
        self._pool.cancel_running()

    def close(self, timeout: float | None = 0.0) -> bool:
        """Make no further calls: those that wait for their turn, and later ones, end with
        CallsClosed.

        Waits at most `timeout` seconds (None: without end) for those under way, overdue ones not
        counted; True when they ended. May be called twice.
        """
        self._pool.close()
        return self._pool.wait_idle(timeout)

    # ---- inside

    def _fetch(
        self,
        kind: str,
        make: Callable[[], NodeQuery[A]],
        nodes: Sequence[V1Node],
        deliver: Deliver[A],
        priority: int = PRIORITY_NORMAL,
    ) -> None:
        try:
            query: NodeQuery[A] = self._once(kind, make)
        except Exception as error:  # noqa: BLE001 - the provider's accessors failed: that is every node's answer
            for node in nodes:
                deliver(key_of(node), Answer(node, error))
            return
        Fetch(self._pool, query, deliver, priority).run(nodes)

    def _metadata_query(self) -> NodeQuery[InstanceMetadata]:
        prefixes, v2 = self.provider_id_prefixes, self._instances_v2()
        older = isinstance(v2, OlderInstances)

        def check(node: V1Node, answer: object) -> InstanceMetadata:
            # An older provider without provider IDs gives none: its nodes need none.
            none = older and isinstance(answer, InstanceMetadata) and not answer.provider_id
            given = () if none else prefixes
            return answers.metadata(answer, own=provider_id_of(node), prefixes=given, same=self._same_id)

        return self._instances_query(partial(asking.ask_metadata, check=check), "instances_metadata", check)

    def _state_query(self) -> NodeQuery[InstanceState]:
        return self._instances_query(
            asking.ask_state, "instances_state", lambda _, value: answers.state(value), InstanceState.GONE
        )

    def _existence_query(self) -> NodeQuery[InstanceState]:
        v2 = self._instances_v2()
        assert v2 is not None  # asked only of a provider that has both
        return NodeQuery(partial(asking.ask_state, v2, gone_by="instances_state"))

    def _pod_cidrs_query(self) -> NodeQuery[tuple[IPNetwork, ...]]:
        capability = self._capability("pod_cidrs")
        if capability is None:
            raise NotImplementedByProvider(f"cloud provider {self.provider_name!r} chooses no pod CIDRs")
        size = self._quietly("max_batch", lambda: capability.max_batch, _batch_size)
        return NodeQuery(None, Together(capability, "pod_cidrs", lambda _, value: answers.pod_cidrs(value), size))

    def _instances_query(
        self,
        ask: Callable[..., Ask[A]],
        method: str,
        check: Callable[[V1Node, object], A],
        not_found: A | None = None,
    ) -> NodeQuery[A]:
        v2, batch = self._instances_v2(), self._capability("instances_batch")
        if v2 is None and batch is None:
            raise NotImplementedByProvider(f"cloud provider {self.provider_name!r} cannot be asked about nodes")
        together = None if batch is None else Together(batch, method, check, self.max_batch, not_found)
        return NodeQuery(None if v2 is None else partial(ask, v2), together)

    def _instances_v2(self) -> InstancesV2 | None:
        """InstancesV2, or the older Instances as such a one."""
        found: InstancesV2 | None = self._capability("instances_v2")
        older = self._capability("instances")
        if found is not None or older is None:
            return found
        return OlderInstances(self.provider_name, older, self._capability("zones"))

    def _same_id(self, one: str, other: str) -> bool:
        """The provider's own word, in a thread of the pool. It decides nothing but this, so
        whatever it raises is a failed call: it must not pass for "not found"."""
        try:
            return judge(answers.flag, "same_provider_id", self._provider.same_provider_id(one, other))
        except Exception as error:
            raise failed(error, "same_provider_id") from error

    def _ask_max_batch(self) -> int:
        batch = self._capability("instances_batch")
        if batch is None:
            return 1
        return self._quietly("max_batch", lambda: batch.max_batch, _batch_size)

    def _calls(self, name: str, kind: Callable[[CallPool, Any], R]) -> R | None:
        def make() -> R | None:
            capability = self._capability(name)
            return None if capability is None else kind(self._pool, capability)

        return self._once(f"{name} calls", make)

    def _capability(self, name: str) -> Any:
        return self._once(name, lambda: self._quietly(name, getattr(self._provider, name), _as_it_is))

    def _quietly(self, method: str, fn: Callable[[], Any], check: Callable[[Any], R]) -> R:
        """Vendor code that does no work, so it is not counted; but it could hang."""
        return self._pool.call(CloudCall(method, fn, (), "provider", check, counted=False))

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
