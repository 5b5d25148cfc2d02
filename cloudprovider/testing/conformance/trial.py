"""Bench and Trial: what all scenarios of a class share, and what one scenario has of its own.

The `Bench` makes the provider and keeps machines that several scenarios use, because machines cost
time and money. The `Trial` makes Services and routes for one scenario, waits for a cloud that
settles slowly, and removes what it made. What cannot be removed is named in the report.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from functools import partial
from ipaddress import ip_network
from secrets import token_hex
from typing import Any, NoReturn, Self, TypeVar
from uuid import uuid4

import pytest
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_spec import V1NodeSpec
from kubernetes.client.models.v1_service import V1Service

from cloudprovider.checks.answers import kind_of
from cloudprovider.errors import InstanceNotFound, RetryError
from cloudprovider.helpers.providerid import get_instance_provider_id, provider_id_of
from cloudprovider.instances import InstanceMetadata
from cloudprovider.interface import Interface
from cloudprovider.loadbalancer import LoadBalancer
from cloudprovider.routes import Route
from cloudprovider.testing.conformance.calls import Outcome, attempt, limited, mended, shown
from cloudprovider.testing.conformance.cluster import NoCluster
from cloudprovider.testing.conformance.features import Feature
from cloudprovider.testing.conformance.lab import Lab, can, new_node, new_service

R = TypeVar("R")


def name_of(node: V1Node) -> str:
    """The node's name."""
    return (node.metadata.name if node.metadata is not None else None) or ""


class Bench:
    """The provider of one test class, over one lab, and what its scenarios share. Used from one
    thread."""

    def __init__(
        self, lab: Lab, features: Feature, make_provider: Callable[[], Interface], provider_name: str = ""
    ) -> None:
        self.lab = lab
        self.features = features
        self.provider_name = provider_name
        self.left_behind: list[str] = []
        """What could not be removed, for the report."""
        self._make_provider = make_provider
        self._stop = threading.Event()
        self._made: list[V1Node] = []
        self._running: list[V1Node] = []
        self._states: dict[str, V1Node] = {}
        self._token = token_hex(3)
        self._numbers = itertools.count(1)
        self._destinations: Iterator[Any] | None = None
        self.provider = self.another_provider()
        self._refused, self.metadata_checked = "", False  # whether it is known to be of the right type
        self._standing: tuple[V1Service, list[V1Node]] | None = None

    def another_provider(self, stop: threading.Event | None = None) -> Interface:
        """A new provider over the same cloud, initialised: as after a restart of the program."""
        provider = self.started_provider()
        provider.initialize(NoCluster(), stop or self._stop)
        return provider

    def started_provider(self) -> Interface:
        """The same from its factory alone: as on a machine that boots."""
        return self._make_provider()

    def pause(self, seconds: float) -> None:
        """Let the cloud settle or build."""
        self._stop.wait(seconds)

    def name(self, what: str) -> str:
        """A name that nothing in the cloud has yet."""
        return f"{self.lab.cluster_name}-{self._token}-{what}-{next(self._numbers)}"

    def destination(self) -> str:
        """A CIDR for a route, another one each time."""
        self._destinations = self._destinations or ip_network(self.lab.pod_network).subnets(new_prefix=24)
        return str(next(self._destinations))

    def new_machine(self) -> V1Node:
        """A machine of its own for a scenario that stops or deletes it: its Node, as registered."""
        name = self.name("node")
        if can(self.lab, "create_machine"):
            node = self.lab.create_machine(name)
            self._made.append(node)
            return node
        prefix = [*self.provider.provider_id_prefixes(), ""][0]
        return new_node(name, provider_id=f"{prefix}{name}")

    def running(self, count: int) -> list[V1Node]:
        """So many machines that run and stay, as registered."""
        while len(self._running) < count:
            self._running.append(self.new_machine())
        return self._running[:count]

    def kept(self, state: str, make: Callable[[], V1Node]) -> V1Node:
        """The one machine that is kept in a state ("stopped", "deleted"), made at first."""
        if state not in self._states:
            self._states[state] = make()
        return self._states[state]

    def standing(self, make: Callable[[], tuple[V1Service, list[V1Node]]]) -> tuple[V1Service, list[V1Node]]:
        """The Service and the nodes of the load balancer that scenarios share, made at first and
        removed in the end."""
        if self._standing is None:
            self._standing = make()
        return self._standing

    def refuse(self, why: str) -> NoReturn:
        """Fail this scenario for what would fail many more in odd ways: those are not run."""
        self._refused = why
        raise AssertionError(why)

    def go_on(self) -> None:
        """Skip this scenario where `refuse` was called before."""
        if self._refused:
            pytest.skip(f"not run: {self._refused}")

    def forget(self, node: V1Node) -> None:
        """The machine was deleted: nothing is left to be removed."""
        self._made = [one for one in self._made if name_of(one) != name_of(node)]

    def close(self) -> None:
        """Remove the shared load balancer and every machine, and end the provider."""
        if self._standing is not None:
            with Trial(self) as trial:
                trial.adopt(self._standing[0])
        for node in self._made if can(self.lab, "delete_machine") else ():
            deleted = attempt(partial(self.lab.delete_machine, node))
            if deleted.error is not None:
                self.left_behind.append(f"machine {name_of(node)}: {shown(deleted.error)}")
        self._stop.set()


class Trial:
    """One scenario's hold on the provider and its cloud. A context manager: its end removes what
    was made by it."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.provider: Interface = bench.provider
        self.lab: Lab = bench.lab
        self.features: Feature = bench.features
        self.cluster_name: str = bench.lab.cluster_name
        self._services: list[tuple[str, V1Service]] = []
        self._destinations: list[tuple[str, str]] = []

    # ---- machines

    def machines(self, count: int = 1) -> list[V1Node]:
        """Nodes of machines that run, as they are once initialised: with provider IDs. Shared:
        never change one."""
        return [self.identified(node) for node in self.bench.running(count)]

    def machine(self) -> V1Node:
        """The first of `machines`."""
        return self.machines()[0]

    def registered(self) -> V1Node:
        """The same machine's Node as its kubelet registers it, mostly without a provider ID."""
        return self.bench.running(1)[0]

    def new_machine(self) -> V1Node:
        """A machine of this scenario's own, initialised."""
        return self.identified(self.bench.new_machine())

    def stopped(self) -> V1Node:
        """The Node of a machine that was switched off, initialised."""
        return self.bench.kept("stopped", self._new_stopped)

    def deleted(self) -> V1Node:
        """The Node of a machine that was deleted, initialised while it still was there."""
        return self.bench.kept("deleted", self._new_deleted)

    def delete(self, node: V1Node) -> None:
        """Delete the machine that was made for this scenario."""
        self.lab.delete_machine(node)
        self.bench.forget(node)

    def needs_ids(self) -> None:
        """Skip this scenario where the provider has no provider IDs."""
        if not self.provider.provider_id_prefixes():
            pytest.skip("the provider has no provider IDs")

    def full_batch(self, size: object, node: V1Node) -> list[V1Node]:
        """So many nodes as `max_batch` says, of which this one is the last and the others never
        were. AssertionError when `size` is no number of nodes."""
        assert isinstance(size, int), f"max_batch is {size!r}, not a number: is @property missing?"
        assert size >= 1, f"max_batch is {size}"
        return [*(new_node(self.bench.name("never")) for _ in range(min(size, 5000) - 1)), node]

    def identified(self, node: V1Node) -> V1Node:
        """The Node with its provider ID, asked of the provider where the lab did not give it."""
        self.bench.go_on()
        if provider_id_of(node) or not self.provider.provider_id_prefixes():
            self._check_metadata(node)
            return node
        found = self.eventually(lambda: self._provider_id(node), retry=InstanceNotFound)
        copy = deepcopy(node)
        copy.spec = copy.spec or V1NodeSpec()
        copy.spec.provider_id = found
        return copy

    # ---- Services and load balancers

    def balancers(self) -> LoadBalancer:
        """The provider's load balancers."""
        return declared(self.provider.load_balancer(), "load_balancer")

    def service(self, *, cluster_name: str | None = None, **fields: Any) -> V1Service:
        """A new Service with its own UID; `fields` as in `new_service`. Its load balancer is
        removed in the end."""
        made = self._new_service(**fields)
        self.adopt(made, cluster_name=cluster_name)
        return made

    def unbuilt(self) -> V1Service:
        """A Service that no scenario builds a load balancer for: nothing is removed in the end."""
        return self._new_service()

    def adopt(self, service: V1Service, *, cluster_name: str | None = None) -> None:
        """Remove the load balancer of this Service in the end."""
        self._services.append((cluster_name or self.cluster_name, service))

    def standing(self) -> tuple[V1Service, list[V1Node]]:
        """A Service whose load balancer is built and in order, and its nodes. Shared, so that few
        are built."""
        service, nodes = self.bench.standing(lambda: (self._new_service(), self.machines(2)))
        self.ensure(service, nodes)
        return deepcopy(service), list(nodes)

    def ensure(
        self,
        service: V1Service,
        nodes: Sequence[V1Node],
        *,
        cluster_name: str | None = None,
        provider: Interface | None = None,
    ) -> V1LoadBalancerStatus:
        """Ensure the load balancer until it has an address: obeys `RetryError` for as long as the
        lab's patience."""
        balancers = self.balancers() if provider is None else declared(provider.load_balancer(), "load_balancer")
        cluster = cluster_name or self.cluster_name
        end = time.monotonic() + self.lab.patience
        while True:
            try:
                status = balancers.ensure_load_balancer(cluster, service, nodes)
                assert isinstance(status, V1LoadBalancerStatus), f"ensure_load_balancer returned {status!r}"
                if status.ingress:
                    return status
                reason, pause = "its status has no address", self.lab.poll
            except RetryError as error:
                reason, pause = shown(error), error.retry_after
            assert time.monotonic() + pause <= end, (
                f"the load balancer was not built within {self.lab.patience:g} s: {reason}"
            )
            self.bench.pause(pause)

    def remove(self, service: V1Service, *, cluster_name: str | None = None, provider: Interface | None = None) -> None:
        """Delete the load balancer, and ask again while it says `RetryError`. Raises what else is
        raised."""
        balancers = self.balancers() if provider is None else declared(provider.load_balancer(), "load_balancer")
        self.patiently(lambda: balancers.ensure_load_balancer_deleted(cluster_name or self.cluster_name, service))

    def patiently(self, call: Callable[[], R]) -> R:
        """Make a call again while it raises `RetryError`, for as long as the lab's patience."""
        end = time.monotonic() + self.lab.patience
        while True:
            try:
                return call()
            except RetryError as error:
                if time.monotonic() + error.retry_after > end:
                    raise
                self.bench.pause(error.retry_after)

    def resources(self) -> frozenset[str]:
        """What stands in the cloud now that a load balancer could consist of; nothing where the lab
        cannot tell."""
        return frozenset(self.lab.resources()) if can(self.lab, "resources") else frozenset()

    # ---- routes

    def route(self, node: V1Node, *, cluster_name: str | None = None) -> Route:
        """A route to the node for a CIDR that has none; it is removed in the end."""
        destination = self.bench.destination()
        self._destinations.append((cluster_name or self.cluster_name, destination))
        return Route(name="", target_node=name_of(node), destination_cidr=destination)

    # ---- failures

    def outage(self, after: int = 0) -> AbstractContextManager[None]:
        """The lab's outage, which ends also where the body of the with statement raises."""
        return mended(self.lab.outage(after))

    def hang(self) -> AbstractContextManager[None]:
        """The lab's hang, which ends also where the body of the with statement raises."""
        return mended(self.lab.hang())

    def in_a_hang(self, call: Callable[[], R]) -> Outcome[R]:
        """Make a call while the cloud hangs; how it ended. AssertionError when it has not ended
        soon after the lab's deadline."""
        with self.hang():
            return limited(call, deadline=self.lab.deadline, grace=self.lab.grace)

    # ---- time

    def eventually(self, look: Callable[[], R], *, retry: type[Exception] = AssertionError) -> R:
        """Look until it is right: until `look` no longer raises `retry`, for at most the lab's time
        to settle."""
        end = time.monotonic() + self.lab.settle
        while True:
            try:
                return look()
            except retry:
                if time.monotonic() + self.lab.poll > end:
                    raise
            self.bench.pause(self.lab.poll)

    # ---- the end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for cluster_name, service in self._services:
            removed = attempt(partial(self.remove, service, cluster_name=cluster_name))
            if removed.error is not None:
                name = service.metadata.name if service.metadata is not None else ""
                self.bench.left_behind.append(f"load balancer of the Service {name}: {shown(removed.error)}")
        for cluster_name, destination in self._destinations:
            cleared = attempt(partial(self._clear, cluster_name, destination))
            if cleared.error is not None:
                self.bench.left_behind.append(f"route to {destination}: {shown(cleared.error)}")

    def _clear(self, cluster_name: str, destination: str) -> None:
        routes = declared(self.provider.routes(), "routes")
        for route in routes.list_routes(cluster_name):
            if route.destination_cidr == destination:
                routes.delete_route(cluster_name, route)

    def _new_service(self, **fields: Any) -> V1Service:
        name = fields.pop("name", None) or self.bench.name("svc")
        annotations = {**self.lab.service_annotations, **(fields.pop("annotations", None) or {})}
        return new_service(name, fields.pop("uid", None) or str(uuid4()), annotations=annotations, **fields)

    def _new_stopped(self) -> V1Node:
        node = self.new_machine()
        self.lab.stop_machine(node)
        return node

    def _new_deleted(self) -> V1Node:
        node = self.new_machine()
        self.delete(node)
        return node

    def _metadata(self, node: V1Node) -> object:
        """What the provider says of a node; a batch's value may be an error."""
        one, batch = self.provider.instances_v2(), self.provider.instances_batch()
        if one is not None:
            return one.instance_metadata(node)
        assert batch is not None
        found: Any = batch.instances_metadata([node])
        return found.get(name_of(node), InstanceMetadata()) if isinstance(found, Mapping) else found

    def _right(self, answer: object) -> InstanceMetadata:
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, InstanceMetadata):
            single = self.provider.instances_v2() is not None
            method, see = ("instance_metadata", "I2") if single else ("instances_metadata", "B2")
            self.bench.refuse(f"{method} gave a value that is {kind_of(answer)}, not InstanceMetadata: see {see}")
        self.bench.metadata_checked = True
        return answer

    def _check_metadata(self, node: V1Node) -> None:
        """Once: metadata is of the right type. What it says, and whether it is answered at all,
        other scenarios try."""
        if self.bench.metadata_checked or not (self.provider.instances_v2() or self.provider.instances_batch()):
            return
        outcome = attempt(partial(self._metadata, node))
        if outcome.error is None and not isinstance(outcome.value, Exception):
            self._right(outcome.value)

    def _provider_id(self, node: V1Node) -> str:
        one, batch, older = self.provider.instances_v2(), self.provider.instances_batch(), self.provider.instances()
        if one is not None or batch is not None:
            return self._right(self._metadata(node)).provider_id
        assert older is not None, (
            "the lab's create_machine must return a Node with its provider ID: the provider offers no instances to ask"
        )
        return get_instance_provider_id(self.provider, name_of(node))


def declared(capability: R | None, accessor: str) -> R:
    """The capability that an accessor of the provider returned. Fails where it returned None."""
    assert capability is not None, f"{accessor}() returns None, although the feature is declared"
    return capability
