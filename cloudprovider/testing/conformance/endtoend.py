"""The end-to-end level: the provider under the real controllers, over an API server (the scenarios
E1, E2 ...).

The controllers come from outside, through the pytest fixtures `cluster` and `manager` of this
distribution's plugin: the contract never imports what runs it, so what a scenario needs of them is
written down here as Protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import pytest
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service

from cloudprovider.checks.nodelabels import wanted_annotations, wanted_taints
from cloudprovider.cloudconfig import CloudConfig
from cloudprovider.helpers.objects import annotations_of, node_taints
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.interface import Interface
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.bench import name_of
from cloudprovider.testing.conformance.features import INSTANCES, Feature
from cloudprovider.testing.conformance.lab import Lab
from cloudprovider.testing.conformance.loadbalancers import balancer_of
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.trial import Trial
from cloudprovider.wellknown import (
    LABEL_INSTANCE_TYPE,
    LABEL_TOPOLOGY_REGION,
    LABEL_TOPOLOGY_ZONE,
    TAINT_NODE_SHUTDOWN,
)

R = TypeVar("R")
_FINAL = frozenset({"InvalidInstanceMetadata", "InvalidPodCIDR"})
_UNUSABLE = "gave an unusable answer"
"""In Events: the provider's code has to be corrected, so another try gives the same."""


class NodeUnderTest(Protocol):
    """A Node in the API server, read at each look."""

    @property
    def exists(self) -> bool: ...
    @property
    def object(self) -> V1Node: ...
    @property
    def provider_id(self) -> str: ...
    @property
    def addresses(self) -> list[tuple[str, str]]: ...
    @property
    def labels(self) -> dict[str, str]: ...
    @property
    def taints(self) -> dict[str, str]: ...
    @property
    def is_initialized(self) -> bool: ...
    def mark_not_ready(self) -> None: ...
    def delete(self) -> None: ...


class ServiceUnderTest(Protocol):
    """A Service in the API server, read at each look."""

    @property
    def exists(self) -> bool: ...
    @property
    def object(self) -> V1Service: ...
    @property
    def addresses(self) -> list[str]: ...
    @property
    def finalizers(self) -> list[str]: ...
    def patch(self, body: Mapping[str, Any]) -> None: ...
    def delete(self) -> None: ...


class EventUnderTest(Protocol):
    """An Event about a Node or a Service."""

    @property
    def type(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...


class ClusterUnderTest(Protocol):
    """The API server, and what kubelets and people do in it: the fixture `cluster`."""

    @property
    def identity(self) -> str: ...
    def join(self, name: str, *, provider_id: str = "", labels: Mapping[str, str] | None = None) -> NodeUnderTest: ...
    def expose(
        self, name: str, *, ports: Sequence[int] = (80,), annotations: Mapping[str, str] | None = None
    ) -> ServiceUnderTest: ...
    def wait_until(self, condition: Callable[[], R], timeout: float = 30.0, what: str = "") -> R: ...
    def events(self, about: Any) -> Sequence[EventUnderTest]: ...


class ManagerUnderTest(Protocol):
    """The manager with every controller, at work: the fixture `manager`."""

    def kill(self) -> None: ...
    def start(self, provider: Interface | None = None) -> None: ...


class Stage:
    """One scenario's cluster and manager, beside its `trial`, and what several scenarios do with
    them. For one thread."""

    def __init__(self, trial: Trial, cluster: ClusterUnderTest, manager: ManagerUnderTest, time_limit: float) -> None:
        self.cluster = cluster
        self.manager = manager
        self._trial = trial
        self._limit = time_limit
        # What the manager makes is marked as of this cluster: a provider of another one would not
        # see it. Here, as none can be made in an outage.
        trial.in_cluster(cluster.identity)

    def wait(
        self,
        condition: Callable[[], R],
        what: str,
        *,
        building: bool = False,
        about: NodeUnderTest | ServiceUnderTest | None = None,
    ) -> R:
        """Wait for the condition. An Event on `about` that says that the answer cannot be used ends
        it at once."""
        __tracebackhide__ = True
        patience = self._trial.bench.patience
        limit = self._limit + self._trial.lab.settle + (patience.seconds if building else 0.0)
        wait = patience.wait(what)

        def look() -> R:
            found = condition()
            wait.tell(0.0, limit)
            for event in self.cluster.events(about) if about is not None and not found else ():
                # Only the provider's author can mend it: minutes of waiting would say no more.
                if event.type == "Warning" and (event.reason in _FINAL or _UNUSABLE in event.message):
                    pytest.fail(f"{what}: no longer waited for, as {event.reason} says: {event.message}", pytrace=False)
            return found

        try:
            return self.cluster.wait_until(look, limit, what)
        except AssertionError:
            patience.run_out()
            raise

    def join(self, machine: V1Node) -> NodeUnderTest:
        """The machine's kubelet registers its node."""
        labels = machine.metadata.labels if machine.metadata is not None else None
        return self.cluster.join(name_of(machine), provider_id=provider_id_of(machine), labels=labels)

    def joined(self, machine: V1Node) -> NodeUnderTest:
        """The machine's node; initialised, if the provider has instances to initialise it from."""
        __tracebackhide__ = True
        node = self.join(machine)
        if self._trial.features & INSTANCES:
            self.wait(lambda: node.is_initialized, "the node is initialised", about=node)
        return node

    def begun(self) -> ServiceUnderTest:
        """A Service that the controller has begun to build a load balancer for, which is removed in
        the end."""
        __tracebackhide__ = True
        name, annotations = self._trial.bench.name("svc"), self._trial.lab.service_annotations
        service = self.cluster.expose(name, annotations=annotations)
        self._trial.adopt(service.object)
        self.wait(lambda: service.finalizers, "the controller has begun to build", about=service)
        return service

    def exposed(self) -> ServiceUnderTest:
        """The same, with the address of its load balancer."""
        __tracebackhide__ = True
        service = self.begun()
        self.wait(lambda: service.addresses, "the Service has an address", building=True, about=service)
        return service

    def gone(self, service: ServiceUnderTest, seen: V1Service, before: frozenset[str]) -> None:
        """Wait until the Service is gone; then nothing of its load balancer may be there."""
        __tracebackhide__ = True
        self.wait(lambda: not service.exists, "the Service is gone", building=True)
        found = self._trial.found(seen)
        assert found is None, "the load balancer is still there"
        left = self._trial.resources() - before
        assert not left, f"left in the cloud: {', '.join(sorted(left))}"


class EndToEndConformance(ConformanceBase):
    """The provider under our controllers: `class TestAcme(ProviderConformance,
    EndToEndConformance)`."""

    time_limit: float = 30.0
    """Seconds that the controllers may take, beside the time that the lab says the cloud takes."""

    @pytest.fixture
    def provider(self, lab: Lab) -> Interface:
        """What the manager runs."""
        return self.make_provider(lab)

    @pytest.fixture
    def cloud_config(self, lab: Lab) -> CloudConfig | None:
        """Whose secrets the manager conceals."""
        return lab.config()

    @pytest.fixture
    def manager_flags(self, lab: Lab) -> Sequence[str]:
        """The cluster's name, by which the cloud knows what belongs to it."""
        return [f"--cluster-name={lab.cluster_name}"]

    @pytest.fixture
    def stage(self, trial: Trial, cluster: ClusterUnderTest, manager: ManagerUnderTest) -> Stage:
        """What a scenario works with."""
        # `trial` comes first: it skips the scenario before a manager is started for nothing.
        return Stage(trial, cluster, manager, self.time_limit)

    # ---- nodes

    @scenario("E1", Feature.INSTANCES_V2, hooks=("create_machine",), level="end to end")
    def test_e1_a_node_is_initialised(self, trial: Trial, stage: Stage) -> None:
        """A node that joins gets all that the provider says of it, and loses the taint of new
        nodes."""
        node = stage.joined(trial.registered())
        instances = trial.provider.instances_v2()
        assert instances is not None
        said = instances.instance_metadata(node.object)
        assert node.provider_id == said.provider_id
        assert {(one.type, one.address) for one in said.node_addresses} <= set(node.addresses)
        wanted = {
            LABEL_INSTANCE_TYPE: said.instance_type,
            LABEL_TOPOLOGY_ZONE: said.zone,
            LABEL_TOPOLOGY_REGION: said.region,
        }
        assert {key: node.labels.get(key, "") for key in wanted} == wanted
        taints = {(taint.key, taint.effect) for taint in wanted_taints(said)}
        assert taints <= {(taint.key, taint.effect) for taint in node_taints(node.object)}
        assert wanted_annotations(said).items() <= annotations_of(node.object).items()

    @scenario("E2", Feature.INSTANCES_V2, hooks=("create_machine", "delete_machine"), level="end to end")
    def test_e2_the_node_of_a_deleted_machine_goes(self, trial: Trial, stage: Stage) -> None:
        """The node of a deleted machine goes; the node of a machine that runs stays, although its
        kubelet is silent."""
        stays = stage.joined(trial.registered())
        machine = trial.bench.new_machine()
        goes = stage.joined(machine)
        trial.delete(goes.object)
        # Only of silent nodes the cloud is asked whether their machines exist.
        stays.mark_not_ready()
        goes.mark_not_ready()
        stage.wait(lambda: not goes.exists, "the node of the deleted machine is gone")
        assert stays.exists, "the node of a machine that runs was deleted"

    @scenario("E3", Feature.INSTANCES_V2, hooks=("create_machine", "stop_machine"), level="end to end")
    def test_e3_the_node_of_a_stopped_machine_is_tainted(self, trial: Trial, stage: Stage) -> None:
        """The node of a machine that is switched off gets the taint
        node.cloudprovider.kubernetes.io/shutdown, and stays."""
        node = stage.joined(trial.bench.new_machine())
        trial.lab.stop_machine(node.object)
        node.mark_not_ready()
        stage.wait(lambda: TAINT_NODE_SHUTDOWN in node.taints, "the node has the taint of a stopped machine")

    # ---- load balancers

    @scenario("E4", Feature.LOAD_BALANCER, level="end to end")
    def test_e4_a_service_gets_its_address(self, trial: Trial, stage: Stage) -> None:
        """A Service of type LoadBalancer gets the status that the provider's load balancer has."""
        service = stage.exposed()
        found = trial.found(service.object)
        assert found is not None, "get_load_balancer says that there is none"
        said = [point.ip or point.hostname for point in found.ingress or ()]
        assert service.addresses == said

    @scenario("E5", Feature.LOAD_BALANCER, level="end to end")
    def test_e5_a_deleted_service_loses_its_load_balancer(self, trial: Trial, stage: Stage) -> None:
        """A deleted Service goes when its load balancer is gone, and nothing of that is left in the
        cloud."""
        before = trial.resources()
        service = stage.exposed()
        seen = service.object
        service.delete()
        stage.gone(service, seen, before)

    @scenario("E6", Feature.LOAD_BALANCER, level="end to end")
    def test_e6_another_type_loses_the_load_balancer(self, trial: Trial, stage: Stage) -> None:
        """A Service that becomes one of type ClusterIP loses its load balancer, and keeps no
        finalizer."""
        service = stage.exposed()
        service.patch({"spec": {"type": "ClusterIP"}})
        stage.wait(lambda: not service.finalizers, "the finalizer is removed", building=True)
        found = trial.found(service.object)
        assert found is None, "the load balancer is still there"

    @scenario("E7", Feature.LOAD_BALANCER, hooks=("create_machine", "load_balancer"), level="end to end")
    def test_e7_nodes_become_targets_and_leave(self, trial: Trial, stage: Stage) -> None:
        """Nodes that join become targets of a load balancer that stands; a Node that is deleted
        leaves it."""
        service = stage.exposed()

        def targets() -> int:
            return len(balancer_of(trial, service.object).targets)

        first, second = map(stage.join, trial.machines(2))
        if trial.features & INSTANCES:
            both = (first, second)
            stage.wait(lambda: all(node.is_initialized for node in both), "the nodes are initialised")
        stage.wait(lambda: targets() == 2, "both nodes are targets", building=True)
        second.delete()
        stage.wait(lambda: targets() == 1, "the deleted Node is no target", building=True)

    @scenario("E8", Feature.LOAD_BALANCER, hooks=("load_balancer",), level="end to end")
    def test_e8_a_changed_port_reaches_the_load_balancer(self, trial: Trial, stage: Stage) -> None:
        """A port that is added to a Service is added to its load balancer."""
        service = stage.exposed()
        ports = [{"name": f"port-{port}", "port": port, "protocol": "TCP"} for port in (80, 443)]
        service.patch({"spec": {"ports": ports}})

        def has_both() -> bool:
            return {port for port, _, _ in balancer_of(trial, service.object).ports} == {80, 443}

        stage.wait(has_both, "the load balancer has both ports", building=True)

    # ---- routes

    @scenario("E9", Feature.ROUTES, hooks=("create_machine",), level="end to end")
    def test_e9_routes_appear_and_leave(self, trial: Trial, stage: Stage) -> None:
        """A node's pod CIDR gets a route to the node, which goes with the Node."""
        node = stage.joined(trial.registered())
        spec = node.object.spec
        assert spec is not None
        wanted = spec.pod_cidr

        def targets() -> list[tuple[str, str]]:
            listed = trial.routes().list_routes(trial.cluster_name)
            return [(one.target_provider_id, one.target_node) for one in listed if one.destination_cidr == wanted]

        def leads_there() -> bool:
            machine, name = provider_id_of(node.object), name_of(node.object)
            # Listed by name or by provider ID: the contract leaves that to the provider.
            return len(found := targets()) == 1 and (found[0][1] == name or found[0][0] == machine != "")

        stage.wait(leads_there, f"there is a route for {wanted} to the node")
        node.delete()
        stage.wait(lambda: not targets(), f"the route for {wanted} is gone")

    # ---- what goes wrong

    @scenario(
        "E10", Feature.INSTANCES_V2 | Feature.LOAD_BALANCER, hooks=("create_machine", "outage"), level="end to end"
    )
    def test_e10_after_an_outage_everything_is_made_up_for(self, trial: Trial, stage: Stage) -> None:
        """While the cloud fails, nodes keep their taint and Services wait; when it answers again
        both are served."""
        machine = trial.bench.new_machine()
        with trial.outage():
            node, service = stage.join(machine), stage.begun()
            # Else the outage could be over before the node was asked about, and show nothing.
            refused = "the node has a Warning, as the cloud fails"
            stage.wait(lambda: any(one.type == "Warning" for one in stage.cluster.events(node)), refused)
            assert not node.is_initialized
            assert not service.addresses
        stage.wait(lambda: node.is_initialized, "the node is initialised after the outage")
        stage.wait(lambda: service.addresses, "the Service has an address", building=True)

    @scenario("E11", Feature.LOAD_BALANCER, level="end to end")
    def test_e11_a_killed_manager_leaves_nothing_behind(self, trial: Trial, stage: Stage) -> None:
        """When a manager is killed, its successors finish the load balancer that it has begun, and
        delete all of one that it has built."""
        before = trial.resources()
        service = stage.begun()
        stage.manager.kill()
        seen = service.object
        stage.manager.start(self.make_provider(trial.lab))
        stage.wait(lambda: service.addresses, "the Service has an address", building=True)
        stage.manager.kill()
        stage.manager.start(self.make_provider(trial.lab))
        service.delete()
        stage.gone(service, seen, before)
