"""A provider as a vendor would write it, type-checked and tried by
tests/unit/cloudprovider/test_typing.py.

It uses every capability in the ways that the docs suggest. What is written here must go on passing
mypy --strict: a change of the contract that breaks it breaks vendors.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import assert_type

from attrs import define, field, frozen
from kubernetes.client import CoreV1Api
from kubernetes.client.models import (
    V1LoadBalancerIngress,
    V1LoadBalancerStatus,
    V1Node,
    V1NodeAddress,
    V1PersistentVolume,
    V1Service,
)
from typing_extensions import override

from cloudprovider import (
    Call,
    ClientBuilder,
    CloudConfig,
    CloudProviderError,
    Clusters,
    DiskNotFound,
    Factory,
    ImplementedElsewhere,
    InformerUser,
    InstanceMetadata,
    InstanceNotFound,
    Instances,  # pyright: ignore[reportDeprecated]
    InstancesBatch,
    InstanceState,
    InstancesV2,
    Interface,
    Lister,
    Listers,
    LoadBalancer,
    LocalInstance,
    NotImplementedByProvider,
    PodCIDRs,
    PVLabeler,  # pyright: ignore[reportDeprecated]
    RetryError,
    Route,
    Routes,
    SSHKeys,
    StopSignal,
    Throttled,
    Zone,
    Zones,  # pyright: ignore[reportDeprecated]
    call_scope,
    cloud_providers,
    current_call,
    get_cloud_provider,
    helpers,
    init_cloud_provider,
    is_cloud_provider,
    register_cloud_provider,
    wellknown,
)


@frozen
class Machine:
    """What this cloud's own client returns."""

    id: str
    flavour: str
    ip: str
    on: bool


@define
class Session:
    """This cloud's own client."""

    machines: dict[str, Machine] = field(factory=dict)

    def machine(self, name: str, timeout: float) -> Machine:
        try:
            return self.machines[name]
        except KeyError as exc:
            raise InstanceNotFound(f"no machine {name!r} (asked for {timeout} s)") from exc


class AcmeInstances(InstancesV2, InstancesBatch, LocalInstance):
    """Three capabilities in one class, with a page size of its own."""

    max_batch = 250

    def __init__(self, session: Session) -> None:
        self._session = session

    def _machine(self, node: V1Node) -> Machine:
        call = current_call()
        call.check()
        provider_id = helpers.provider_id_of(node)
        name = helpers.parse_provider_id(provider_id).name if provider_id else helpers.node_name(node)
        return self._session.machine(name, timeout=call.remaining() or 30.0)

    @override
    def instance_exists(self, node: V1Node) -> bool:
        self._machine(node)
        return True

    @override
    def instance_shutdown(self, node: V1Node) -> bool:
        return not self._machine(node).on

    @override
    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        machine = self._machine(node)
        return InstanceMetadata(
            provider_id=helpers.format_provider_id("acme", machine.id),
            instance_type=machine.flavour,
            node_addresses=[V1NodeAddress(type=wellknown.NODE_ADDRESS_INTERNAL_IP, address=machine.ip)],
            zone="north-1",
            region="north",
            additional_labels={"acme.example/rack": "r7"},
        )

    @override
    def instances_metadata(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceMetadata | CloudProviderError]:
        answers: dict[str, InstanceMetadata | CloudProviderError] = {}
        for node in nodes:
            name = helpers.node_name(node)
            try:
                answers[name] = self.instance_metadata(node)
            except CloudProviderError as exc:
                answers[name] = exc
        return answers

    @override
    def local_metadata(self) -> InstanceMetadata:
        return InstanceMetadata(provider_id="acme://1", zone="north-1")

    @override
    def local_node_name(self, hostname: str) -> str:
        return hostname.partition(".")[0]

    @override
    def instances_state(self, nodes: Sequence[V1Node]) -> dict[str, InstanceState]:
        return {helpers.node_name(node): InstanceState.RUNNING for node in nodes}


class AcmeBatchOnly(InstancesBatch):
    """The page size as a property."""

    @property
    def max_batch(self) -> int:
        return 40

    def instances_metadata(self, nodes: Sequence[V1Node]) -> dict[str, InstanceMetadata]:
        return {}

    def instances_state(self, nodes: Sequence[V1Node]) -> dict[str, InstanceState | CloudProviderError]:
        return {"a": InstanceState.GONE, "b": Throttled(retry_after=3)}


class AcmeAnnotated(AcmeInstances):
    """The page size with its type."""

    max_batch: int = 20


class AcmeKeyed(AcmeInstances, SSHKeys):
    """With SSH keys, which the host looks for on the object of `instances_v2()` or
    `instances_batch()`."""

    @override
    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        key = helpers.parse_ssh_public_key(key_data)
        assert_type(key.fingerprint, str)
        assert_type((key.type, key.line), tuple[str, bytes])


class AcmeConfigured(InstancesBatch):
    """The page size as the configuration says."""

    def __init__(self, page_size: int) -> None:
        self.max_batch = page_size

    def instances_metadata(self, nodes: Sequence[V1Node]) -> dict[str, InstanceMetadata]:
        return {}

    def instances_state(self, nodes: Sequence[V1Node]) -> dict[str, InstanceState]:
        return {}


class AcmeLegacy(Instances, Zones):  # pyright: ignore[reportDeprecated]
    """The older form, complete."""

    def node_addresses(self, name: str) -> list[V1NodeAddress]:
        return [V1NodeAddress(type="Hostname", address=name)]

    def node_addresses_by_provider_id(self, provider_id: str) -> tuple[V1NodeAddress, ...]:
        return ()

    def instance_id(self, node_name: str) -> str:
        raise NotImplementedByProvider("no provider IDs")

    def external_id(self, node_name: str) -> str:
        return node_name

    def instance_type(self, name: str) -> str:
        return "small"

    def instance_type_by_provider_id(self, provider_id: str) -> str:
        return "small"

    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        raise NotImplementedByProvider("keys come with the image")

    def current_node_name(self, hostname: str) -> str:
        return hostname

    def instance_exists_by_provider_id(self, provider_id: str) -> bool:
        return True

    def instance_shutdown_by_provider_id(self, provider_id: str) -> bool:
        return False

    def get_zone(self) -> Zone:
        return Zone()

    def get_zone_by_provider_id(self, provider_id: str) -> Zone:
        return Zone(failure_domain="north-1", region="north")

    def get_zone_by_node_name(self, node_name: str) -> Zone:
        return Zone("north-1", "north")


class AcmeLoadBalancer(LoadBalancer):
    def get_load_balancer(self, cluster_name: str, service: V1Service) -> V1LoadBalancerStatus | None:
        return None

    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        name = self.get_load_balancer_name(cluster_name, service)
        if not helpers.wants_load_balancer(service):
            raise ImplementedElsewhere(f"{name} is looked after by another controller")
        listeners = [(one.protocol, one.port, one.node_port) for one in helpers.ports_of(service)]
        assert_type(listeners, list[tuple[str, int, int]])
        targets = {name: ips for node in nodes for name, ips in [(helpers.node_name(node), helpers.internal_ips(node))]}
        assert_type(targets, dict[str, tuple[str, ...]])
        tags = {"service": helpers.key_of(service), "uid": helpers.uid_of(service), **helpers.annotations_of(service)}
        assert_type(tags, dict[str, str])
        health = helpers.health_check_path_port(service)
        assert_type(health, tuple[str, int] | None)
        ranges = helpers.load_balancer_source_ranges(service)
        assert_type(helpers.allows_everyone(ranges), bool)
        for network in ranges:
            if network.version == 6:
                raise RetryError("the IPv6 address is not assigned yet", retry_after=5)
        current_call().pause(0.5)
        return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip="192.0.2.1")])

    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        return None

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        return None


class AcmePodCIDRs(PodCIDRs):
    max_batch = 500

    def pod_cidrs(self, nodes: Sequence[V1Node]) -> dict[str, list[str] | CloudProviderError]:
        return {helpers.node_name(node): ["10.244.1.0/24", "fd00:10:244:1::/64"] for node in nodes}


class AcmeNetwork(Routes, Clusters, PVLabeler):  # pyright: ignore[reportDeprecated]
    def list_routes(self, cluster_name: str) -> list[Route]:
        return [Route(name="r1", target_node="node-1", destination_cidr="10.244.1.0/24")]

    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        assert_type(route.target_node_addresses, tuple[V1NodeAddress, ...])

    def delete_route(self, cluster_name: str, route: Route) -> None:
        if route.blackhole:
            return

    def list_clusters(self) -> list[str]:
        return ["kubernetes"]

    def master(self, cluster_name: str) -> str:
        return "192.0.2.10"

    def get_labels_for_volume(self, pv: V1PersistentVolume) -> dict[str, str]:
        if pv.spec is None:
            raise DiskNotFound("a volume without a spec")
        assert_type(helpers.label_value_to_zone_list("a__b"), tuple[str, ...])
        return {wellknown.LABEL_TOPOLOGY_ZONE: helpers.zones_to_label_value({"north-1", "north-2"})}


class Acme(Interface):
    """The provider: also reads the host's caches."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._instances = AcmeInstances(session)
        self._nodes: Lister[V1Node] | None = None

    @override
    def provider_name(self) -> str:
        return "acme"

    @override
    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        api = CoreV1Api(client_builder.client("acme"))
        assert_type(api, CoreV1Api)
        assert_type(client_builder.cluster_name(), str)
        identity = client_builder.cluster_identity()
        assert_type(identity, str | None)
        threading.Thread(target=stop.wait, daemon=True).start()

    def set_informers(self, informers: Listers) -> None:
        self._nodes = informers.nodes

    def node_count(self) -> int:
        return len(self._nodes.list()) if self._nodes is not None else 0

    @override
    def instances_v2(self) -> InstancesV2:
        return self._instances

    @override
    def instances_batch(self) -> AcmeInstances:
        return self._instances

    @override
    def local_instance(self) -> LocalInstance:
        return self._instances

    @override
    def load_balancer(self) -> LoadBalancer | None:
        return AcmeLoadBalancer()

    @override
    def routes(self) -> Routes:
        return AcmeNetwork()

    @override
    def same_provider_id(self, one: str, other: str) -> bool:
        return one == other

    def provider_id_prefixes(self) -> tuple[str, ...]:
        return ("acme://", "acme-legacy://")


def new_provider(config: CloudConfig | None) -> Interface:
    """The factory that the entry point names."""
    machines: dict[str, Machine] = {}
    if config is not None:
        for line in config.text().splitlines():
            machines[line] = Machine(id=line, flavour="small", ip="10.0.0.1", on=True)
    return Acme(Session(machines))


def use() -> None:
    """What a vendor's main and tests do."""
    factory: Factory = new_provider
    register_cloud_provider("acme", factory)
    register_cloud_provider("acme-too", lambda config: Acme(Session()))
    if is_cloud_provider("acme"):
        assert_type(cloud_providers(), tuple[str, ...])
    provider = get_cloud_provider("acme", CloudConfig(path="", data=b"node-1"))
    assert_type(provider, Interface)
    assert_type(provider.zones(), Zones | None)  # pyright: ignore[reportDeprecated]
    assert_type(init_cloud_provider("acme", "/etc/acme.conf"), Interface | None)
    if isinstance(provider, InformerUser):
        print("reads caches")
    stop: StopSignal = threading.Event()
    with call_scope(Call(deadline=12.5, cancelled=stop)) as call:
        assert_type(call.remaining(), float | None)
    batch = provider.instances_batch()
    if batch is not None:
        for name, answer in batch.instances_metadata([]).items():
            if isinstance(answer, CloudProviderError):
                print(name, answer)
            else:
                assert_type(answer, InstanceMetadata)
