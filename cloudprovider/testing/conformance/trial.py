"""Trial: what one scenario has of its own.

It makes Services, routes and disks for one scenario, waits for a cloud that settles slowly, and
removes what it made. What cannot be removed is named in the report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from functools import partial
from typing import Any, Self, TypeVar
from uuid import uuid4

import pytest
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress
from kubernetes.client.models.v1_node_spec import V1NodeSpec
from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume
from kubernetes.client.models.v1_service import V1Service

from cloudprovider.checks.answers import kind_of
from cloudprovider.errors import InstanceNotFound, RetryError
from cloudprovider.helpers.providerid import get_instance_provider_id, provider_id_of
from cloudprovider.instances import InstanceMetadata, InstancesBatch, InstancesV2
from cloudprovider.interface import Interface
from cloudprovider.loadbalancer import LoadBalancer
from cloudprovider.routes import Route, Routes
from cloudprovider.testing.conformance.bench import Bench, name_of
from cloudprovider.testing.conformance.calls import Outcome, attempt, limited, mended, shown
from cloudprovider.testing.conformance.features import Feature
from cloudprovider.testing.conformance.lab import BadAnswer, Lab, can, new_node, new_service

R = TypeVar("R")
_NOTHING = frozenset({"", "None", "null", "undefined", "<nil>"})


class Trial:
    """One scenario's hold on the provider and its cloud. A context manager: its end removes what
    was made by it."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.provider: Interface = bench.provider
        self.lab: Lab = bench.lab
        self.features: Feature = bench.features
        self.cluster_name: str = bench.lab.cluster_name
        self._identity = ""
        self._services: list[tuple[str, V1Service]] = []
        self._destinations: list[tuple[str, str]] = []
        self._volumes: list[V1PersistentVolume] = []

    def in_cluster(self, identity: str) -> None:
        """Ask a provider of that cluster from here on: what the manager made there is marked as its
        own, and to any other cluster's provider it is another's. May be called again."""
        # A provider costs a login: another one is made for another cluster alone.
        if self._identity != identity:
            self.provider, self._identity = self.bench.another_provider(identity=identity), identity

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

    @contextmanager
    def renamed(self, node: V1Node) -> Iterator[None]:
        """The node's machine has another name in the cloud for the body of a with statement."""
        self.lab.rename_machine(node, self.bench.name("renamed"))
        try:
            yield
        finally:
            self.lab.rename_machine(node, name_of(node))

    def needs_ids(self) -> None:
        """Skip this scenario where the provider has no provider IDs."""
        if not self.provider.provider_id_prefixes():
            pytest.skip("the provider has no provider IDs")

    def full_batch(self, size: object, node: V1Node) -> list[V1Node]:
        """So many nodes as `max_batch` says, of which this one is the last and the others never
        were. AssertionError when `size` is no number of nodes."""
        assert isinstance(size, int), f"max_batch is {size!r}, not a number: is @property missing?"
        assert size >= 1, f"max_batch is {size}"
        return [*(new_node(self.bench.name("never")) for _ in range(min(size, self.lab.batch) - 1)), node]

    def identified(self, node: V1Node) -> V1Node:
        """The Node with its provider ID, asked of the provider where the lab did not give it."""
        self.bench.go_on()
        # The lab knows it, or there are none: nothing to ask.
        if provider_id_of(node) or not self.provider.provider_id_prefixes():
            self._check_metadata(node)
            return node
        found = self.eventually(lambda: self._provider_id(node), retry=InstanceNotFound)
        # "acme://None" is what f-strings make of a field that the API left out. It is written once,
        # for ever.
        if found.rpartition("/")[2] in _NOTHING:
            self.bench.refuse(
                f"the provider ID of {name_of(node)} is {found!r}, made of a value that is not there: every node would "
                "have it, and a provider ID is never changed"
            )
        # The registered Node stays as it is: scenarios of a new node need it.
        copy = deepcopy(node)
        copy.spec = copy.spec or V1NodeSpec()
        copy.spec.provider_id = found
        return copy

    def addresses(self, node: V1Node) -> tuple[V1NodeAddress, ...]:
        """The node's addresses, as the provider says. Skips this scenario where it says none."""
        asks = self.provider.instances_v2() or self.provider.instances_batch()
        said = tuple(self._right(self._metadata(node)).node_addresses) if asks else ()
        if not said:
            pytest.skip("the provider says no addresses of nodes")
        return said

    def instances(self) -> InstancesV2:
        """The provider's instances, asked one by one."""
        return declared(self.provider.instances_v2(), "instances_v2")

    def batch(self) -> InstancesBatch:
        """The provider's instances, asked in batches."""
        return declared(self.provider.instances_batch(), "instances_batch")

    # ---- Services and load balancers

    def balancers(self, provider: Interface | None = None) -> LoadBalancer:
        """The load balancers of the provider, or of another one over the same cloud."""
        return declared((provider or self.provider).load_balancer(), "load_balancer")

    def balancer_name(self, service: V1Service) -> str:
        """What the Service's load balancer is called."""
        return self.balancers().get_load_balancer_name(self.cluster_name, service)

    def found(self, service: V1Service) -> V1LoadBalancerStatus | None:
        """What `get_load_balancer` answers about the Service."""
        return self.balancers().get_load_balancer(self.cluster_name, service)

    def building(self, service: V1Service, nodes: Sequence[V1Node]) -> Callable[[], V1LoadBalancerStatus]:
        """One call of `ensure_load_balancer`, still to be made."""
        return partial(self.balancers().ensure_load_balancer, self.cluster_name, service, nodes)

    def updating(self, service: V1Service, nodes: Sequence[V1Node]) -> Callable[[], None]:
        """One call of `update_load_balancer`, still to be made."""
        return partial(self.balancers().update_load_balancer, self.cluster_name, service, nodes)

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
        service, nodes = self.bench.standing(self._new_standing)
        # Scenarios before may have changed it, and left it half done where they failed.
        self.ensure(service, nodes)
        # Its scenarios change ports and annotations.
        return deepcopy(service), list(nodes)

    def ensure(
        self,
        service: V1Service,
        nodes: Sequence[V1Node],
        *,
        cluster_name: str | None = None,
        provider: Interface | None = None,
    ) -> V1LoadBalancerStatus:
        """Ensure the load balancer until it has an address: again after `RetryError`, while the
        lab's patience lasts."""
        balancers, cluster = self.balancers(provider), cluster_name or self.cluster_name

        def built() -> V1LoadBalancerStatus:
            status = balancers.ensure_load_balancer(cluster, service, nodes)
            assert isinstance(status, V1LoadBalancerStatus), f"ensure_load_balancer returned {status!r}"
            # Without an address nobody can use it, whatever the call says.
            if not status.ingress:
                raise RetryError("its status has no address", self.lab.poll)
            return status

        seconds = self.bench.patience.seconds
        try:
            return self.patiently(built, "the load balancer is built")
        except RetryError as error:
            why = f"the load balancer was not built within {seconds:g} s: {shown(error)}"
            raise AssertionError(why) from error

    def remove(self, service: V1Service, *, cluster_name: str | None = None, provider: Interface | None = None) -> None:
        """Delete the load balancer, and ask again while it says `RetryError`. Raises what else is
        raised."""
        balancers = self.balancers(provider)
        self.patiently(lambda: balancers.ensure_load_balancer_deleted(cluster_name or self.cluster_name, service))

    def patiently(self, call: Callable[[], R], until: str = "a call raises RetryError no longer") -> R:
        """Make a call again while it raises `RetryError`, for as long as the lab's patience.
        `until` says in words what is waited for."""
        wait = self.bench.patience.wait(until)
        while True:
            try:
                return call()
            except RetryError as error:
                if not wait.goes_on(self._pause(error), shown(error)):
                    raise
                self.bench.pause(self._pause(error))

    def _pause(self, error: RetryError) -> float:
        """Until the next try: as long as the provider says, and no longer than until the lab looks
        again."""
        # A provider that says "in ten minutes" would have each scenario last so long.
        return min(error.retry_after, self.lab.poll)

    def resources(self) -> frozenset[str]:
        """What stands in the cloud now that a load balancer could consist of; nothing where the lab
        cannot tell."""
        return frozenset(self.lab.resources()) if can(self.lab, "resources") else frozenset()

    # ---- routes

    def routes(self) -> Routes:
        """The provider's routes."""
        return declared(self.provider.routes(), "routes")

    def route(self, node: V1Node, *, cluster_name: str | None = None) -> Route:
        """A route to the node for a CIDR that has none; it is removed in the end."""
        destination = self.bench.destination()
        self._destinations.append((cluster_name or self.cluster_name, destination))
        return Route("", name_of(node), destination, target_provider_id=provider_id_of(node))

    # ---- volumes

    def volume(self) -> V1PersistentVolume:
        """The PersistentVolume of a disk of this scenario's own, which is deleted in the end."""
        made = self.lab.create_volume()
        self._volumes.append(made)
        return made

    # ---- failures

    def outage(self, after: int = 0) -> AbstractContextManager[None]:
        """The lab's outage, which ends also where the body of the with statement raises."""
        return mended(self.lab.outage(after))

    def hang(self) -> AbstractContextManager[None]:
        """The lab's hang, which ends also where the body of the with statement raises."""
        return mended(self.lab.hang())

    def bad_answers(self, answer: BadAnswer) -> AbstractContextManager[None]:
        """The lab's bad answers, which end also where the body of the with statement raises."""
        return mended(self.lab.bad_answers(answer))

    def quota(self) -> AbstractContextManager[None]:
        """The lab's quota, which ends also where the body of the with statement raises."""
        return mended(self.lab.quota())

    def unlisted(self, node: V1Node) -> AbstractContextManager[None]:
        """The lab's short listings, which end also where the body of the with statement raises."""
        return mended(self.lab.unlisted(node))

    def builds_slowly(self) -> AbstractContextManager[None]:
        """The lab's slow building, which ends also where the body of the with statement raises."""
        return mended(self.lab.builds_slowly())

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
                # No look after the last pause: it would come too late to count.
                if time.monotonic() + self.lab.poll > end:
                    raise
            self.bench.pause(self.lab.poll)

    # ---- the end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove_made()
        self.bench.end_others()

    def remove_made(self) -> None:
        """Remove the load balancers, routes and disks of this scenario."""
        # Whatever fails here, the rest is removed too: it would go on costing money.
        for cluster_name, service in self._services:
            what = f"load balancer of the Service {name_of(service)}"
            self.bench.remove(what, partial(self.remove, service, cluster_name=cluster_name))
        for cluster_name, destination in self._destinations:
            self.bench.remove(f"route to {destination}", partial(self._clear, cluster_name, destination))
        for volume in self._volumes if can(self.lab, "delete_volume") else ():
            self.bench.remove(f"disk of the volume {name_of(volume)}", partial(self.lab.delete_volume, volume))

    def _clear(self, cluster_name: str, destination: str) -> None:
        for route in self.routes().list_routes(cluster_name):
            if route.destination_cidr == destination:
                self.routes().delete_route(cluster_name, route)

    def _new_service(self, **fields: Any) -> V1Service:
        name = fields.pop("name", None) or self.bench.name("svc")
        annotations = {**self.lab.service_annotations, **(fields.pop("annotations", None) or {})}
        return new_service(name, fields.pop("uid", None) or str(uuid4()), annotations=annotations, **fields)

    def _new_standing(self) -> tuple[V1Service, list[V1Node]]:
        service, nodes = self._new_service(), self.machines(2)
        last = Trial(self.bench)
        last.adopt(service)
        self.bench.at_end(last.remove_made)
        return service, nodes

    def _new_stopped(self) -> V1Node:
        node = self._asked(self.new_machine())
        self.lab.stop_machine(node)
        return node

    def _new_deleted(self) -> V1Node:
        node = self._asked(self.new_machine())
        self.delete(node)
        return node

    def _asked(self, node: V1Node) -> V1Node:
        """The node, after the provider was asked what the host asks: what it remembers of it will
        be out of date."""
        one, batch = self.provider.instances_v2(), self.provider.instances_batch()
        if one is not None:
            for method in (one.instance_exists, one.instance_shutdown, one.instance_metadata):
                attempt(partial(method, node))
        if batch is not None:
            attempt(partial(batch.instances_metadata, [node]))
            attempt(partial(batch.instances_state, [node]))
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
        # Once for a class, as a wrong type would fail every scenario in another odd way.
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
