"""What the provider asks of the host: another look at an object, EndpointSlices, and the Service as
it was last built. Over both API servers."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from typing_extensions import override

from cloudprovider import ClientBuilder, CloudConfig, Interface, LookAgain, StopSignal, current_call
from cloudprovider.helpers import ports_of
from cloudprovider.testing.fake import FakeCloud, FakeConfig, raises
from cloudprovider.testing.waiting import eventually
from controllers.app import Host, hosting
from controllers.cli import rbac
from controllers.node.controller import CloudNodeController
from controllers.node.registration import CloudNodeOptions
from controllers.registration.entry import Controller
from controllers.service.controller import ServiceController
from controllers.service.registration import ServiceOptions
from controllers.testing.managerrun import ManagerRun
from tests.integration.conftest import REAL, Cluster
from tests.support.api import NODES
from tests.support.nodes import small_node
from tests.support.services import SERVICES, ingress, lb_service

sys.path.append(str(Path(__file__).parents[2] / "examples" / "samplecloud"))  # a distribution of its own
from samplecloud_provider.config import Config
from samplecloud_provider.provider import SampleCloud

SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
FAR = ServiceOptions(cluster_name="test", node_sync_window=0.1, drift_check_period=3600.0)


class Asking(FakeCloud):
    """Keeps what it is given."""

    host: LookAgain

    @override
    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        super().initialize(client_builder, stop)
        assert isinstance(client_builder, LookAgain)
        self.host = client_builder


@pytest.fixture
def cloud() -> Iterator[Asking]:
    settings = {"log": "all", "instances": [{"name": f"node-{number}"} for number in range(3)]}
    with Asking(FakeConfig.model_validate(settings)) as made:
        yield made


@contextmanager
def at_work(provider: Interface, kubeconfig: Path, make: Callable[[Host], Controller]) -> Iterator[Host]:
    """A controller over the provider, which is started as the manager does it."""
    stop = threading.Event()
    with hosting(provider, str(kubeconfig)) as host:
        thread = threading.Thread(target=host.run, args=(make(host), stop))
        thread.start()
        try:
            yield host
        finally:
            stop.set()
            thread.join(40)


def _services(host: Host) -> ServiceController:
    return ServiceController(host.clients, host.informers, host.cloud, options=FAR, metrics=host.metrics)


def _add_node(api: Cluster, name: str, provider: str = "fake") -> None:
    api.create(NODES, small_node(name, provider_id=f"{provider}://{name}"))


def _ingress(api: Cluster, name: str) -> list[dict[str, Any]]:
    return ingress(api.get(f"{SERVICES}/{name}"))


def test_a_load_balancer_is_ensured_again_for_the_asking_and_users_are_not_kept_waiting(
    api: Cluster, cloud: Asking
) -> None:
    _add_node(api, "node-0")
    api.create(SERVICES, lb_service("web"))
    with at_work(cloud, api.kubeconfig, _services) as host:
        eventually(lambda: _ingress(api, "web"))
        version = api.get(f"{SERVICES}/web")["metadata"]["resourceVersion"]
        cloud.calls.clear()
        cloud.host.look_again("Service", "default", "web")
        eventually(lambda: cloud.calls.count("ensure_load_balancer") == 1)
        assert api.get(f"{SERVICES}/web")["metadata"]["resourceVersion"] == version

        over = threading.Event()

        def hammer() -> None:
            while not over.is_set():
                cloud.host.look_again("Service", "default", "web")
                cloud.host.look_again("Service", "default", "nobody")
                time.sleep(0.001)

        threads = [threading.Thread(target=hammer) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            api.create(SERVICES, lb_service("late"))
            eventually(lambda: _ingress(api, "late"), message="a user's Service while the provider asks all the time")
            for outcome in ("taken", "ignored"):
                labels = {"kind": "Service", "outcome": outcome}
                eventually(lambda: (host.metrics.value("cloudprovider_look_again_total", **labels) or 0) > 4000)  # noqa: B023
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert cloud.calls.count("ensure_load_balancer") <= 6  # the provider's own wait 2, 4, 8 s for each other
    assert not cloud.calls.overlaps()


def test_a_quota_that_grew_is_used_before_the_back_off_ends(api: Cluster, cloud: Asking) -> None:
    _add_node(api, "node-0")
    cloud.faults.on("ensure_load_balancer", raises(RuntimeError("quota")))
    api.create(SERVICES, lb_service("web"))
    with at_work(cloud, api.kubeconfig, _services):
        eventually(lambda: cloud.calls.count("ensure_load_balancer") >= 4, 30)  # the next one is 8 s away
        cloud.faults.clear()
        cloud.host.look_again("Service", "default", "web")
        began = time.monotonic()
        eventually(lambda: _ingress(api, "web"))
        assert time.monotonic() - began < 6.0


def test_a_node_is_read_again_for_the_asking(api: Cluster, cloud: Asking) -> None:
    options = CloudNodeOptions(node_status_update_frequency=3600.0)
    api.create(NODES, small_node("node-0", provider_id=f"fake://{cloud.console.instance('node-0').id}"))

    def nodes(host: Host) -> CloudNodeController:
        return CloudNodeController(host.clients, host.informers, host.cloud, options=options, metrics=host.metrics)

    def kind() -> str:
        return str(api.get(f"{NODES}/node-0")["metadata"].get("labels", {}).get("node.kubernetes.io/instance-type"))

    with at_work(cloud, api.kubeconfig, nodes):
        eventually(lambda: cloud.calls.count("instance_metadata", "instances_metadata") >= 1)
        cloud.console.change_instance("node-0", type="larger")
        cloud.host.look_again("Node", "", "node-0")
        eventually(lambda: kind() == "larger", 20)


def test_the_service_as_it_was_last_built_is_there_to_clean_up_behind(api: Cluster, cloud: Asking) -> None:
    found: list[tuple[str, int | None]] = []
    balancers = cloud.load_balancer()
    assert balancers is not None

    def noting(method: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any) -> Any:
            former = current_call().former
            found.append((method, None if former is None else ports_of(former)[0].port))
            return original(*given)

        return noted

    for method in ("ensure_load_balancer", "ensure_load_balancer_deleted"):
        setattr(balancers, method, noting(method, getattr(balancers, method)))
    _add_node(api, "node-0")
    api.create(SERVICES, lb_service("web"))
    with at_work(cloud, api.kubeconfig, _services):
        eventually(lambda: _ingress(api, "web"))
        ports = [{"port": 81, "protocol": "TCP"}]
        api.patch(f"{SERVICES}/web", {"spec": {"ports": ports}})
        eventually(lambda: len(found) == 2)
        eventually(lambda: "spec=none" not in json.dumps(api.get(f"{SERVICES}/web")["metadata"]["annotations"]))
        api.delete(f"{SERVICES}/web")
        eventually(lambda: api.find(f"{SERVICES}/web") is None)
    assert found == [("ensure_load_balancer", None), ("ensure_load_balancer", 80), ("ensure_load_balancer_deleted", 81)]


# ---- EndpointSlices


def _sample(tmp_path: Path, *, local_targets: bool) -> SampleCloud:
    machines = [
        {"id": f"node-{number}", "name": f"node-{number}", "zone": "z", "type": "t", "addresses": [f"10.0.0.{number}"]}
        for number in range(3)
    ]
    settings = {"state_file": str(tmp_path / "cloud.json"), "instances": machines, "local_targets": local_targets}
    return SampleCloud(Config.load(CloudConfig(path="", data=json.dumps(settings).encode()), environ={}))


def _slice(name: str, *endpoints: tuple[str, bool]) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": [f"10.1.0.{number}"],
                "conditions": {"ready": ready},
                "nodeName": node,
                "targetRef": {"kind": "Pod", "name": f"pod-{number}", "namespace": "default"},
            }
            for number, (node, ready) in enumerate(endpoints, 1)
        ],
    }


def _targets(sample: SampleCloud) -> list[str]:
    with sample.cloud.document() as document:
        return [target for one in document.balancers.values() for target in one.targets]


def _admin(api: Cluster, tmp_path: Path) -> Path:
    """With all rights: the manifest grants no EndpointSlices unless it is asked to."""
    return Path(api.server.write_kubeconfig(tmp_path / "admin"))


def test_targets_are_only_where_a_ready_endpoint_runs(api: Cluster, tmp_path: Path) -> None:
    sample = _sample(tmp_path, local_targets=True)
    for number in range(3):
        _add_node(api, f"node-{number}", "samplecloud")
    api.create(SLICES, _slice("web-1", ("node-0", True), ("node-1", False)))
    api.create(SERVICES, lb_service("web", externalTrafficPolicy="Local"))
    with at_work(sample, _admin(api, tmp_path), _services) as host:
        eventually(lambda: _targets(sample) == ["node-0"])
        time.sleep(1.5)  # the events of our own writes bring no look any more
        api.create(SLICES, _slice("web-2", ("node-2", True)))
        eventually(lambda: _targets(sample) == ["node-0", "node-2"])
        time.sleep(1.5)
        api.delete(f"{SLICES}/web-1")
        eventually(lambda: _targets(sample) == ["node-2"], 20)
        [found] = host.informers.find("/apis/discovery.k8s.io/v1", "endpointslices").lister.indexed("default/web")  # type: ignore[union-attr]
        [endpoint] = found.endpoints
        assert (endpoint.node_name, endpoint.addresses, endpoint.target_ref) == ("node-2", ["10.1.0.1"], None)


def test_an_endpoint_that_flaps_costs_the_cloud_few_calls(api: Cluster, tmp_path: Path) -> None:
    sample = _sample(tmp_path, local_targets=True)
    for number in range(2):
        _add_node(api, f"node-{number}", "samplecloud")
    api.create(SLICES, _slice("web-1", ("node-0", True), ("node-1", True)))
    api.create(SERVICES, lb_service("web", externalTrafficPolicy="Local"))
    with at_work(sample, _admin(api, tmp_path), _services) as host:
        eventually(lambda: _targets(sample) == ["node-0", "node-1"])
        for number in range(60):
            endpoints = _slice("web-1", ("node-0", True), ("node-1", bool(number % 2)))["endpoints"]
            api.patch(f"{SLICES}/web-1", {"endpoints": endpoints})
            time.sleep(0.05)
        api.patch(f"{SLICES}/web-1", {"endpoints": _slice("x", ("node-1", True))["endpoints"]})
        eventually(lambda: _targets(sample) == ["node-1"], 30)
        labels = {"provider": "samplecloud", "method": "ensure_load_balancer", "outcome": "success"}
        assert (host.metrics.value("cloudprovider_api_requests_total", **labels) or 0) <= 6
        assert "LoadBalancerChangesDelayed" not in api.reasons("web")


def test_a_provider_that_does_not_ask_for_them_costs_no_list(api: Cluster, tmp_path: Path) -> None:
    sample = _sample(tmp_path, local_targets=False)
    _add_node(api, "node-0", "samplecloud")
    api.create(SERVICES, lb_service("web", externalTrafficPolicy="Local"))
    with at_work(sample, api.kubeconfig, _services) as host:
        eventually(lambda: _ingress(api, "web"))
        assert host.informers.find("/apis/discovery.k8s.io/v1", "endpointslices") is None
    assert _targets(sample) == ["node-0"]


@pytest.mark.row("N7")
@pytest.mark.parametrize("api", [REAL], indirect=True)
def test_a_missing_permission_is_named_and_the_manifest_for_such_a_provider_has_it(
    api: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rbac.main(["--endpoint-slices"]) == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    [wanted] = [one for one in documents if one["kind"] == "ClusterRole"]
    path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{wanted['metadata']['name']}"
    before = api.get(path)["rules"]
    sample = _sample(tmp_path, local_targets=True)
    api.create(SERVICES, lb_service("web", externalTrafficPolicy="Local"))
    _add_node(api, "node-0", "samplecloud")
    run = ManagerRun(api.kubeconfig, sample)
    starting = threading.Thread(target=run.start)
    starting.start()
    try:
        missing = "missing permission: list, watch on endpointslices. Without it no controller starts"
        eventually(lambda: missing in str(run.log), 30, lambda: str(run.log))
        api.patch(path, {"rules": wanted["rules"]})
        eventually(lambda: _targets(sample) == ["node-0"], 60, lambda: str(run.log))
    finally:
        starting.join(60)
        run.close()
        api.patch(path, {"rules": before})
