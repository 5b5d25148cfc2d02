"""The provider to copy: it keeps the contract that its README points at."""

from __future__ import annotations

import json
import threading
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from kubernetes.client.models import (
    V1Endpoint,
    V1EndpointSlice,
    V1Node,
    V1NodeSpec,
    V1ObjectMeta,
    V1PersistentVolume,
    V1PersistentVolumeSpec,
    V1Service,
    V1ServicePort,
    V1ServiceSpec,
)
from samplecloud_provider.cloud import Document
from samplecloud_provider.config import Config
from samplecloud_provider.loadbalancer import SampleLoadBalancers
from samplecloud_provider.provider import SampleCloud, new_provider

from cloudprovider import (
    CloudConfig,
    CloudProviderError,
    InstanceNotFound,
    Interface,
    InvalidAnnotations,
    InvalidConfig,
    InvalidService,
    RetryError,
    Route,
)
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
    spec = {"ports": [V1ServicePort(port=80, node_port=30080)]} | spec
    return V1Service(
        metadata=V1ObjectMeta(namespace="shop", name="web", uid=uid),
        spec=V1ServiceSpec(type="LoadBalancer", **spec),
    )


# Instances and zones


def test_volumes_of_other_drivers_have_no_labels_and_old_documents_no_disks() -> None:
    cloud = provider(disks=[{"id": "d-1", "zones": ["north-1"]}])
    nfs = V1PersistentVolume(metadata=V1ObjectMeta(name="pv"), spec=V1PersistentVolumeSpec())
    assert cloud.pv_labeler().get_labels_for_volume(nfs) == {}
    with cloud.cloud.document() as document:
        assert document.disks["d-1"].region == "north"
    raw = json.loads(Document().to_json())
    del raw["disks"], raw["clusters"]
    assert Document.from_json(json.dumps(raw)) == Document()


def test_a_name_that_two_instances_have_is_never_gone() -> None:
    made = provider()
    calls: list[Callable[[], object]] = [
        lambda: made.instances_v2().instance_exists(node("twin")),
        lambda: made.instances_v2().instance_metadata(node("twin")),
        lambda: made.zones().get_zone_by_node_name("twin"),
    ]
    for call in calls:
        with pytest.raises(CloudProviderError, match="2 machines are named twin") as raised:
            call()
        assert not isinstance(raised.value, InstanceNotFound)
    assert not isinstance(made.instances_batch().instances_state([node("twin")])["twin"], InstanceNotFound)


# Routes


def test_a_route_that_took_the_place_of_a_blackhole_is_not_deleted_with_it() -> None:
    made = provider()
    routes = made.routes()
    wanted = Route("", "node-1", "10.244.1.0/24")
    routes.create_route("c", "hint", wanted)
    with made.cloud.document() as document:
        document.instances["i-9"] = evolve(document.instances.pop("i-1"), id="i-9")
    [blackhole] = routes.list_routes("c")
    assert blackhole.blackhole
    routes.create_route("c", "hint", wanted)
    routes.delete_route("c", blackhole)  # listed before
    assert [(one.target_provider_id, one.blackhole) for one in routes.list_routes("c")] == [
        ("samplecloud://i-9", False)
    ]


# Load balancers


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"load_balancer_ip": "192.0.2.9"}, "spec.loadBalancerIP is not supported"),
        ({"session_affinity": "ClientIP"}, "spec.sessionAffinity ClientIP is not supported"),
        ({"ports": [V1ServicePort(port=80, protocol="TCP")]}, "port 80 has no node port"),
    ],
)
def test_what_its_load_balancers_cannot_do_is_refused(spec: dict[str, Any], problem: str) -> None:
    balancers = provider().load_balancer()
    with pytest.raises(InvalidService, match=problem):
        balancers.ensure_load_balancer("c", service(**spec), [])
    assert balancers.get_load_balancer("c", service()) is None


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


def test_a_health_check_for_local_traffic() -> None:
    cloud = provider()
    local = service(external_traffic_policy="Local", health_check_node_port=31000)
    cloud.load_balancer().ensure_load_balancer("kubernetes", local, [])
    stored = there(cloud.cloud.balancer("a0f3d1"))
    assert stored.health_check == ":31000/healthz"


def test_local_traffic_goes_only_where_a_ready_endpoint_runs_if_it_is_set() -> None:
    class Slices:
        nodes: tuple[str, ...] = ("node-2",)

        def get(self, key: str) -> V1EndpointSlice | None:
            return None

        def list(self) -> Sequence[V1EndpointSlice]:
            return []

        def of_service(self, namespace: str, name: str) -> Sequence[V1EndpointSlice]:
            endpoints = [V1Endpoint(addresses=["10.1.0.1"], node_name=node) for node in self.nodes]
            return [V1EndpointSlice(address_type="IPv4", endpoints=endpoints)]

    class OnlySlices:
        endpoint_slices = Slices()

    nodes = [
        V1Node(metadata=V1ObjectMeta(name=f"node-{one}"), spec=V1NodeSpec(provider_id=f"samplecloud://i-{one}"))
        for one in (1, 2)
    ]
    local = service(external_traffic_policy="Local", health_check_node_port=31000)

    def targets(made: SampleCloud, of: V1Service) -> Sequence[str]:
        made.load_balancer().ensure_load_balancer("c", of, nodes)
        made.load_balancer().update_load_balancer("c", of, nodes)
        return list(there(made.cloud.balancer("a0f3d1")).targets)

    off, on = provider(), provider(local_targets=True)
    assert off.load_balancer().depends_on(local) == ""
    off.set_informers(None)  # type: ignore[arg-type]  # it asks for nothing
    assert targets(off, local) == targets(on, local) == ["i-1", "i-2"]
    on.set_informers(OnlySlices())  # type: ignore[arg-type]
    assert on.load_balancer().depends_on(local) == "node-2"
    assert targets(on, local) == ["i-2"]
    assert targets(on, service()) == ["i-1", "i-2"]
    Slices.nodes = ()
    assert targets(on, local) == ["i-1", "i-2"]


def test_a_node_whose_provider_id_cannot_be_read_spoils_nothing() -> None:
    made = provider()
    nodes = [node("forged", "samplecloud://"), node("node-1", "samplecloud://i-1"), node("far", "aws:///a/i-1")]
    made.load_balancer().ensure_load_balancer("c", service(), nodes)
    made.load_balancer().update_load_balancer("c", service(), nodes)
    assert there(made.cloud.balancer("a0f3d1")).targets == ("i-1",)


def test_building_takes_its_time() -> None:
    now = 100.0
    cloud = provider()
    settings = Config.load(config(build_seconds=5), environ={})
    balancers = SampleLoadBalancers(cloud.cloud, cloud.machines, settings, now=lambda: now)
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
    with cloud.document() as document:
        assert document.instances["i-1"].name == "node-1"


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


# Configuration, packaging


def test_without_a_file_the_defaults_hold_and_what_is_no_json_object_is_told() -> None:
    assert isinstance(new_provider(None), Interface)
    assert Config.load(None, environ={}).instances == ()
    for data in (b"{", b"[]", b"5"):
        with pytest.raises(InvalidConfig, match=r"cloud\.json"):
            Config.load(CloudConfig(path="cloud.json", data=data), environ={})


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
