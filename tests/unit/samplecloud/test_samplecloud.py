"""The provider to copy: it keeps the contract that its README points at."""

from __future__ import annotations

import json
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from kubernetes.client.models import (
    V1Node,
    V1NodeSpec,
    V1ObjectMeta,
    V1PersistentVolume,
    V1PersistentVolumeSpec,
    V1Service,
    V1ServicePort,
    V1ServiceSpec,
)
from samplecloud_provider.cloud import Cloud, CloudBroken, Document, Instance
from samplecloud_provider.config import Config
from samplecloud_provider.loadbalancer import SampleLoadBalancers
from samplecloud_provider.provider import SampleCloud, new_provider
from samplecloud_provider.routes import SampleRoutes

from cloudprovider import (
    Call,
    CallDeadlineExceeded,
    CloudConfig,
    CloudProviderError,
    InstanceNotFound,
    InstanceState,
    Interface,
    InvalidAnnotations,
    InvalidConfig,
    NotImplementedByProvider,
    OwnedLoadBalancer,
    OwnedLoadBalancers,
    RetryError,
    Route,
    Zone,
    call_scope,
)
from cloudprovider.checks.provider import ACCESSORS
from cloudprovider.commands.asking import Started
from cloudprovider.commands.nodeinfo import TimeLimit, node_info
from cloudprovider.loading import registry
from tests.support.there import there
from tests.unit.samplecloud.conftest import SOURCE

ENTRIES: list[dict[str, Any]] = [
    {"id": "i-1", "name": "node-1", "zone": "north-1", "type": "small", "addresses": ["10.0.0.1", "fd00::1"]},
    {"id": "i-2", "name": "node-2", "zone": "north-2", "type": "large", "addresses": ["10.0.0.2"], "running": False},
    {"id": "i-3", "name": "twin", "zone": "north-1", "type": "small", "addresses": []},
    {"id": "i-4", "name": "twin", "zone": "north-1", "type": "small", "addresses": []},
]


def config(**settings: Any) -> CloudConfig:
    return CloudConfig(
        path="cloud.json", data=json.dumps({"region": "north", "instances": ENTRIES, **settings}).encode()
    )


def provider(**settings: Any) -> SampleCloud:
    made = new_provider(config(**settings))
    assert isinstance(made, SampleCloud)
    return made


def node(name: str = "", provider_id: str | None = None) -> V1Node:
    return V1Node(metadata=V1ObjectMeta(name=name), spec=V1NodeSpec(provider_id=provider_id))


def service(uid: str = "0f3d-1", **spec: Any) -> V1Service:
    ports = [V1ServicePort(port=80, node_port=30080)]
    return V1Service(
        metadata=V1ObjectMeta(namespace="shop", name="web", uid=uid),
        spec=V1ServiceSpec(type="LoadBalancer", ports=ports, **spec),
    )


# Instances and zones


@pytest.mark.parametrize("asked", [node("node-1"), node("else", "samplecloud://i-1")])
def test_metadata_by_provider_id_or_by_name(asked: V1Node) -> None:
    metadata = provider().instances_v2().instance_metadata(asked)
    assert (metadata.provider_id, metadata.instance_type) == ("samplecloud://i-1", "small")
    assert (metadata.zone, metadata.region) == ("north-1", "north")
    assert [(address.type, address.address) for address in metadata.node_addresses] == [
        ("InternalIP", "10.0.0.1"),
        ("InternalIP", "fd00::1"),
        ("Hostname", "node-1"),
    ]


def test_existence_and_power() -> None:
    instances = provider().instances_v2()
    assert instances.instance_exists(node("node-1"))
    assert instances.instance_exists(node("node-2"))
    assert not instances.instance_exists(node("node-9"))
    assert not instances.instance_exists(node("node-1", "samplecloud://i-9"))
    assert not instances.instance_shutdown(node("node-1"))
    assert instances.instance_shutdown(node("node-2"))
    for ask in (instances.instance_shutdown, instances.instance_metadata):
        with pytest.raises(InstanceNotFound):
            ask(node("node-9"))


@pytest.mark.parametrize("provider_id", ["othercloud://i-1", "nonsense"])
def test_an_id_of_another_provider_is_unknown_and_not_gone(provider_id: str) -> None:
    with pytest.raises(CloudProviderError) as caught:
        provider().instances_v2().instance_exists(node("node-1", provider_id))
    assert not isinstance(caught.value, InstanceNotFound)


def test_many_nodes_are_answered_from_one_listing() -> None:
    batch = provider().instances_batch()
    nodes = [node("node-1"), node("node-2"), node("twin"), node("gone", "samplecloud://i-9"), node("x", "other://1")]
    states = batch.instances_state(nodes)
    assert (states["node-1"], states["node-2"]) == (InstanceState.RUNNING, InstanceState.SHUTDOWN)
    assert isinstance(states["twin"], InstanceNotFound)
    assert isinstance(states["gone"], InstanceNotFound)
    assert isinstance(states["x"], CloudProviderError)
    assert not isinstance(states["x"], InstanceNotFound)
    alone = provider().instances_v2()
    answers = batch.instances_metadata(nodes[:2])
    assert answers == {name: alone.instance_metadata(node(name)) for name in ("node-1", "node-2")}


def test_volumes_of_other_drivers_have_no_labels_and_old_documents_no_disks() -> None:
    cloud = provider(disks=[{"id": "d-1", "zones": ["north-1"]}])
    nfs = V1PersistentVolume(metadata=V1ObjectMeta(name="pv"), spec=V1PersistentVolumeSpec())
    assert cloud.pv_labeler().get_labels_for_volume(nfs) == {}
    with cloud.cloud.document() as document:
        assert document.disks["d-1"].region == "north"
    raw = json.loads(Document().to_json())
    del raw["disks"], raw["clusters"]
    assert Document.from_json(json.dumps(raw)) == Document()


def test_zones() -> None:
    zones = provider().zones()
    assert zones.get_zone_by_provider_id("samplecloud://i-2") == Zone("north-2", "north")
    assert zones.get_zone_by_node_name("node-1") == Zone("north-1", "north")
    with pytest.raises(InstanceNotFound):
        zones.get_zone_by_node_name("twin")
    with pytest.raises(NotImplementedByProvider):
        zones.get_zone()


def test_a_call_out_of_time_is_not_begun() -> None:
    with call_scope(Call(deadline=0.0)), pytest.raises(CallDeadlineExceeded):
        provider().instances_v2().instance_exists(node("node-9"))


# Load balancers


def test_annotations_say_how_the_load_balancer_is_built_and_mistakes_in_them_touch_nothing() -> None:
    made = provider(idle_timeout=90)
    web = service()
    assert web.metadata is not None
    made.load_balancer().ensure_load_balancer("c", web, [])
    name = made.load_balancer().get_load_balancer_name("c", web)
    built = there(made.cloud.balancer(name))
    assert (built.internal, built.algorithm, built.idle_timeout) == (False, "round-robin", 90.0)
    prefix = "samplecloud.example/"
    web.metadata.annotations = {f"{prefix}internal": "true", f"{prefix}idle-timeout": "2m"}
    made.load_balancer().ensure_load_balancer("c", web, [])
    changed = made.cloud.balancer(name)
    assert changed == evolve(built, internal=True, idle_timeout=120.0)
    web.metadata.annotations = {f"{prefix}internal": "false", f"{prefix}idle-timout": "5 minutes"}
    with pytest.raises(InvalidAnnotations) as caught:
        made.load_balancer().ensure_load_balancer("c", web, [])
    assert caught.value.problems == (
        "samplecloud.example/idle-timout: unknown annotation; did you mean samplecloud.example/idle-timeout?",
    )
    assert made.cloud.balancer(name) == changed


def test_a_load_balancer_from_making_to_deleting() -> None:
    cloud = provider()
    balancers = cloud.load_balancer()
    ours, nodes = (
        service(load_balancer_source_ranges=["10.1.0.0/16"]),
        [node("a", "samplecloud://i-1"), node("b", "x://1")],
    )
    assert balancers.get_load_balancer("kubernetes", ours) is None
    made = balancers.ensure_load_balancer("kubernetes", ours, nodes)
    assert balancers.ensure_load_balancer("kubernetes", ours, nodes) == made
    assert balancers.get_load_balancer("kubernetes", ours) == made
    stored = there(cloud.cloud.balancer("a0f3d1"))
    assert (stored.targets, stored.allowed, stored.ports) == (("i-1",), ("10.1.0.0/16",), ("80/TCP->30080",))
    assert made.ingress is not None
    assert made.ingress[0].ip == stored.address == "198.51.100.1"
    balancers.update_load_balancer("kubernetes", ours, [node("c", "samplecloud://i-2")])
    updated = cloud.cloud.balancer("a0f3d1")
    assert updated == evolve(stored, targets=["i-2"])
    for _ in range(2):
        balancers.ensure_load_balancer_deleted("kubernetes", ours)
        assert balancers.get_load_balancer("kubernetes", ours) is None


def test_what_is_gone_is_not_updated() -> None:
    cloud = provider()
    with pytest.raises(CloudProviderError) as caught:
        cloud.load_balancer().update_load_balancer("kubernetes", service(), [])
    assert not isinstance(caught.value, InstanceNotFound)
    assert cloud.cloud.balancer("a0f3d1") is None


def test_what_a_cluster_owns_can_be_listed_half_built_ones_included() -> None:
    cloud = provider(build_seconds=60)
    balancers = cloud.load_balancer()
    assert isinstance(balancers, OwnedLoadBalancers)
    for cluster, uid in (("one", "0f3d-1"), ("two", "0f3d-2")):
        with pytest.raises(RetryError):
            balancers.ensure_load_balancer(cluster, service(uid), [])
    assert balancers.owned_load_balancers("one") == [OwnedLoadBalancer("a0f3d1", "shop/web", "0f3d-1")]
    assert balancers.owned_load_balancers("three") == []


def test_a_health_check_for_local_traffic() -> None:
    cloud = provider()
    local = service(external_traffic_policy="Local", health_check_node_port=31000)
    cloud.load_balancer().ensure_load_balancer("kubernetes", local, [])
    stored = there(cloud.cloud.balancer("a0f3d1"))
    assert stored.health_check == ":31000/healthz"


def test_building_takes_its_time() -> None:
    now = 100.0
    cloud = provider()
    balancers = SampleLoadBalancers(cloud.cloud, Config.load(config(build_seconds=5), environ={}), now=lambda: now)
    for wait in (5.0, 2.0):
        with pytest.raises(RetryError) as caught:
            balancers.ensure_load_balancer("kubernetes", service(), [])
        assert caught.value.retry_after == wait
        assert balancers.get_load_balancer("kubernetes", service()) is not None
        now = 103.0
    now = 105.0
    assert balancers.ensure_load_balancer("kubernetes", service(), []).ingress


def test_a_used_up_range_is_an_error_and_deleting_frees() -> None:
    balancers = provider(load_balancer_range="198.51.100.0/30").load_balancer()
    for uid in ("1", "2"):
        balancers.ensure_load_balancer("kubernetes", service(uid), [])
    with pytest.raises(CloudProviderError, match="2 addresses are taken"):
        balancers.ensure_load_balancer("kubernetes", service("3"), [])
    balancers.ensure_load_balancer_deleted("kubernetes", service("1"))
    assert balancers.ensure_load_balancer("kubernetes", service("3"), []).ingress


# Routes


def test_routes() -> None:
    cloud = provider()
    routes = cloud.routes()
    wanted = Route(name="", target_node="node-1", destination_cidr="10.244.1.0/24")
    for hint in ("hint", "hint", "another"):
        routes.create_route("kubernetes", hint, wanted)
    (listed,) = routes.list_routes("kubernetes")
    assert (listed.target_node, listed.destination_cidr, listed.blackhole) == ("node-1", "10.244.1.0/24", False)
    assert routes.list_routes("other") == []
    routes.delete_route("other", listed)
    with cloud.cloud.document() as document:
        del document.instances["i-1"]
    (dark,) = routes.list_routes("kubernetes")
    assert (dark.target_node, dark.blackhole) == ("", True)
    for _ in range(2):
        routes.delete_route("kubernetes", dark)
        assert routes.list_routes("kubernetes") == []
    with pytest.raises(CloudProviderError):
        routes.create_route("kubernetes", "hint", wanted)


# The file


def test_the_file_is_the_cloud(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    one, two = (provider(state_file=str(path)) for _ in range(2))
    one.load_balancer().ensure_load_balancer("kubernetes", service(), [])
    assert two.load_balancer().get_load_balancer("kubernetes", service()) is not None
    raw = json.loads(path.read_text())
    del raw["instances"]["i-1"]  # as a person would
    path.write_text(json.dumps(raw))
    assert not one.instances_v2().instance_exists(node("node-1", "samplecloud://i-1"))
    again = provider(state_file=str(path))  # what the config lists counts for a new cloud only
    assert not again.instances_v2().instance_exists(node("node-1", "samplecloud://i-1"))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"instances": {"i": {}}, "balancers": {}, "rules": {}}'])
def test_a_broken_file_is_unknown_and_not_gone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    cloud = provider(state_file=str(path))
    path.write_text(text)
    with pytest.raises(CloudProviderError) as caught:
        cloud.instances_v2().instance_exists(node("node-1"))
    assert not isinstance(caught.value, InstanceNotFound)
    assert path.read_text() == text


def test_a_cloud_that_cannot_be_read_does_not_start(tmp_path: Path) -> None:
    class NoClients:
        config = client = cluster_identity = None

    with pytest.raises(CloudProviderError):
        provider(state_file=str(tmp_path / "no" / "state.json")).initialize(
            NoClients(),  # type: ignore[arg-type]  # not used
            threading.Event(),
        )


def test_an_exception_changes_nothing() -> None:
    cloud = provider().cloud

    def break_off() -> None:
        with cloud.document() as document:
            document.instances.clear()
            raise KeyError("halfway")

    with pytest.raises(KeyError):
        break_off()
    assert cloud.instance("i-1").name == "node-1"


def test_threads_do_not_lose_each_others_changes(tmp_path: Path) -> None:
    cloud = provider(state_file=str(tmp_path / "state.json"))
    failures: list[BaseException] = []

    def make(uid: str) -> None:
        try:
            cloud.load_balancer().ensure_load_balancer("kubernetes", service(uid), [])
        except CloudProviderError as exc:
            failures.append(exc)

    threads = [threading.Thread(target=make, args=(str(number),)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with cloud.cloud.document() as document:
        assert len({balancer.address for balancer in document.balancers.values()}) == 16


def test_the_document_is_read_back_as_it_was_written() -> None:
    cloud = provider()
    cloud.load_balancer().ensure_load_balancer("kubernetes", service(), [])
    cloud.routes().create_route("kubernetes", "h", Route("", "node-1", "10.244.1.0/24"))
    with cloud.cloud.document() as document:
        assert Document.from_json(document.to_json()) == document
    with pytest.raises(CloudBroken):
        Document.from_json("{}")


# Configuration, packaging


def test_without_a_file_the_defaults_hold() -> None:
    assert isinstance(new_provider(None), Interface)
    assert Config.load(None, environ={}).instances == ()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"regoin": "x"}, ["cloud.json, line 1: regoin: unknown field; did you mean region?"]),
        ({"region": 5, "state_file": []}, ["region: must be a valid string", "state_file: must be a valid string"]),
        (
            {"build_seconds": -1, "load_balancer_range": "x"},
            ["build_seconds: must be greater than", "load_balancer_range: value is not a valid IPv4 or IPv6 network"],
        ),
        ({"instances": ENTRIES[:1] * 2}, ["instances: each must have an id of its own; given twice: i-1"]),
        (
            {
                "instances": [
                    {**ENTRIES[0], "colour": "red"},
                    {**ENTRIES[0], "zone": 3},
                    {"id": "i"},
                    7,
                    *ENTRIES[:1] * 2,
                ]
            },
            [
                "instances[0].colour: unknown field",
                "instances[1].zone",
                "instances[2].name: is required",
                "instances[3]: must",
            ],
        ),
    ],
)
def test_every_mistake_is_told_at_once(settings: dict[str, Any], told: list[str]) -> None:
    with pytest.raises(InvalidConfig) as caught:
        Config.load(config(**settings), environ={})
    for part in told:
        assert part in str(caught.value)


def test_the_environment_can_say_it_too(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    cloud = SampleCloud.from_environment({"VPC_ID": "vpc-1", "SUBNET_ID": " subnet-1\n", "STATE_FILE": str(state)})
    cloud.load_balancer().ensure_load_balancer("kubernetes", service(), [])
    stored = json.loads(state.read_text())["balancers"]["a0f3d1"]
    assert (stored["vpc"], stored["subnet"]) == ("vpc-1", "subnet-1")


@pytest.mark.parametrize(
    ("environ", "missing"),
    [
        ({}, ["VPC_ID", "SUBNET_ID"]),
        ({"VPC_ID": "", "SUBNET_ID": " \t"}, ["VPC_ID", "SUBNET_ID"]),
        ({"VPC_ID": "vpc-1"}, ["SUBNET_ID"]),
        ({"SUBNET_ID": "subnet-1"}, ["VPC_ID"]),
    ],
)
def test_every_variable_that_is_missing_is_told_at_once(environ: dict[str, str], missing: list[str]) -> None:
    with pytest.raises(InvalidConfig) as caught:
        SampleCloud.from_environment(environ)
    assert [name for name in ("VPC_ID", "SUBNET_ID") if name in str(caught.value)] == missing


@pytest.mark.parametrize("data", [b"{", b"[]", b"5"])
def test_what_is_no_json_object_is_told(data: bytes) -> None:
    with pytest.raises(InvalidConfig, match=r"cloud\.json"):
        Config.load(CloudConfig(path="cloud.json", data=data), environ={})


def test_the_machine_that_the_program_runs_on(tmp_path: Path) -> None:
    file = tmp_path / "cloud.json"
    file.write_bytes(config(machine="node-1").data)
    known = registry.Registry()
    known.register("samplecloud", new_provider)
    with Started("samplecloud", str(file), known) as started:
        found = node_info(started, "another-host", TimeLimit(5.0, 0.01))
    assert (found.node_name, found.source) == ("node-1", "local_instance")
    assert found.metadata == provider().instances_v2().instance_metadata(node("node-1"))
    with pytest.raises(InstanceNotFound):
        provider(machine="elsewhere").local_instance().local_metadata()
    assert provider().local_instance().local_node_name("this-host") == "this-host"


def test_the_clusters_of_the_account() -> None:
    clusters = provider(clusters={"green": "10.0.0.8", "blue": "10.0.0.9"}).clusters()
    assert clusters.list_clusters() == ["blue", "green"]
    assert clusters.master("blue") == "10.0.0.9"
    with pytest.raises(CloudProviderError, match="there is no cluster 'red'"):
        clusters.master("red")


def test_the_entry_point_names_the_factory() -> None:
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    assert project["name"] == "samplecloud"
    assert project["entry-points"]["cloudprovider.providers"] == {
        "samplecloud": f"{new_provider.__module__}:new_provider"
    }
    assert provider().provider_name() == "samplecloud"
    assert list(provider().provider_id_prefixes()) == ["samplecloud://"]


def test_the_example_in_the_readme_is_a_good_config() -> None:
    text = (SOURCE / "README.md").read_text()
    example = text.split("<<END\n")[1].split("\nEND")[0]
    assert [one.name for one in Config.load(CloudConfig(path="", data=example.encode()), environ={}).instances] == [
        "node-1"
    ]


def test_every_file_in_the_readme_is_there() -> None:
    text = (SOURCE / "README.md").read_text()
    modules = {str(path.relative_to(SOURCE)) for path in SOURCE.glob("samplecloud_provider/[a-z]*.py")}
    named = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `samplecloud_provider/")}
    assert named == modules


def test_accessors_return_the_same_object_every_time() -> None:
    cloud = provider()
    for name in ACCESSORS.keys() - {"instances"}:
        assert getattr(cloud, name)() is not None
        assert getattr(cloud, name)() is getattr(cloud, name)()
    assert isinstance(cloud.routes(), SampleRoutes)
    assert isinstance(cloud.cloud, Cloud)
    assert isinstance(cloud.cloud.instance("i-1"), Instance)
