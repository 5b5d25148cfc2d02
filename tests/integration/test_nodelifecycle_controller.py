"""The node lifecycle controller over both API servers, against the fake cloud and what goes wrong
with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from cloudprovider import CloudProviderError, InstanceState
from cloudprovider.testing.fake import FakeCloud, FakeConfig, answers, hangs, raises
from cloudprovider.testing.waiting import eventually
from cloudprovider.wellknown import LABEL_HANDS_OFF
from controllers.cloudcalls import CloudCallOptions
from controllers.nodelifecycle.controller import NodeLifecycleController
from controllers.nodelifecycle.registration import NodeLifecycleOptions
from tests.integration.conftest import EMBEDDED, REAL, Cluster
from tests.support.api import EVENTS, NODES, each
from tests.support.nodes import UNINITIALIZED, small_node
from tests.support.running import Running, at_work

FAST = NodeLifecycleOptions(node_monitor_period=0.2, young_grace=0)
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
OTHER = {"key": "example.com/dedicated", "effect": "NoSchedule"}
BATCH = ["instances_batch", "instances_v2", "zones"]
SINGLE = ["instances_v2", "zones"]
LEGACY = ["instances", "zones"]


def lifecycle(
    kubeconfig: Path, cloud: FakeCloud, options: NodeLifecycleOptions = FAST, calls: CloudCallOptions | None = None
) -> AbstractContextManager[Running[NodeLifecycleController]]:
    return at_work(NodeLifecycleController, kubeconfig, cloud, options, calls=calls)


@contextmanager
def _cloud(count: int = 20, **settings: Any) -> Iterator[FakeCloud]:
    with FakeCloud(FakeConfig.model_validate({"generate": [{"count": count}], **settings})) as cloud:
        yield cloud


@pytest.fixture
def cloud() -> Iterator[FakeCloud]:
    """Twenty instances, node-0000 to node-0019, that can be asked about in batches."""
    with _cloud() as made:
        yield made


def _name(number: int) -> str:
    return f"node-{number:04d}"


def _join(
    api: Cluster,
    numbers: Sequence[int],
    *,
    ready: str | Sequence[int] = "False",
    taints: Sequence[dict[str, Any]] = (),
    provider_id: str = "fake://i-{}",
) -> None:
    """Let nodes join; `ready` is the condition's status, or the numbers of those that are."""

    def create(number: int) -> None:
        own_id = provider_id.format(_name(number))
        status = ready if isinstance(ready, str) else "True" if number in ready else "False"
        api.create(NODES, small_node(_name(number), taints=taints, provider_id=own_id, ready=status))

    each(create, numbers)


def _set_ready(api: Cluster, name: str, status: str) -> None:
    body = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
    api.patch(f"{NODES}/{name}/status", body, "application/strategic-merge-patch+json")


def _run_on(api: Cluster, name: str, machine: str) -> None:
    """The kubelet reports the machine that it runs on."""
    api.kubelet(name).patch(f"{NODES}/{name}/status", {"status": {"nodeInfo": {"machineID": machine}}})


def _names(api: Cluster) -> set[str]:
    return {node["metadata"]["name"] for node in api.items(NODES)}


def _taints(api: Cluster, name: str = "node-0000") -> set[str]:
    return {taint["key"] for taint in api.get(f"{NODES}/{name}")["spec"].get("taints", ())}


def _event(api: Cluster, reason: str, name: str = "node-0000") -> dict[str, Any]:
    """Wait for an Event about a node."""
    eventually(lambda: reason in api.reasons(name))
    return next(event for event in api.events_of(name) if event["reason"] == reason)


def _pass(running: Running[NodeLifecycleController], sweeps: int = 4) -> None:
    """Wait until every node that is asked about has been, so many times."""
    began = running.count("workqueue_work_duration_seconds_count", name="NodeLifecycle")
    eventually(lambda: running.count("workqueue_work_duration_seconds_count", name="NodeLifecycle") >= began + sweeps)


@pytest.mark.row("N1")
@pytest.mark.parametrize(
    ("api", "capabilities"),
    [pytest.param("real", BATCH, marks=REAL.marks), ("embedded", SINGLE), ("embedded", LEGACY)],
    indirect=["api"],
)
def test_gone_nodes_are_deleted_once_confirmed_and_others_kept(api: Cluster, capabilities: list[str]) -> None:
    with _cloud(capabilities=capabilities) as cloud:
        _join(api, range(4), ready=[3])
        for number in (0, 1):
            cloud.console.remove_instance(_name(number))
        with lifecycle(api.kubeconfig, cloud) as running:
            eventually(lambda: _names(api) == {"node-0002", "node-0003"})
            event = _event(api, "DeletingNode")
            _pass(running)
        assert _names(api) == {"node-0002", "node-0003"}
    assert event["type"] == "Normal"
    assert event["source"]["component"] == "cloud-node-lifecycle-controller"
    assert event["message"] == "Deleting node node-0000 because it does not exist in the cloud provider"


@pytest.mark.row("N1", "N21")
@EMBEDDED
def test_a_cloud_that_lost_everything_costs_no_node_at_first_and_raises_an_alarm(api: Cluster) -> None:
    with _cloud(0) as cloud:
        _join(api, range(100))
        with lifecycle(api.kubeconfig, cloud) as running:
            eventually(lambda: running.count("node_lifecycle_held_nodes") == 100)
            _pass(running, 100)
            events = eventually(lambda: _alarms(api))
            assert len(_names(api)) == 100, "no Ready node can witness, and a new process begins with a trickle"
            assert running.controller.release_breaker() == 100
            eventually(lambda: not _names(api), timeout=60)
        assert events == 1
        assert running.count("node_lifecycle_deletion_breaker_open") == 1
        assert running.count("node_lifecycle_deletion_breaker_trips_total") == 1


def _alarms(api: Cluster) -> int:
    return sum(event["reason"] == "DeletionBreakerOpened" for event in api.items(EVENTS))


@pytest.mark.row("N1", "N4")
@EMBEDDED
def test_a_cloud_whose_credentials_expired_costs_no_node(api: Cluster, cloud: FakeCloud) -> None:
    _join(api, range(20), ready=[0])
    before = api.versions(NODES)
    expired = CloudProviderError("the credentials of this client have expired")
    cloud.faults.on("instance*", raises(expired))
    options = evolve(FAST, unknown_event_after=0.5)
    with lifecycle(api.kubeconfig, cloud, options) as running:
        event = _event(api, "InstanceStateUnknown", "node-0007")
        # Each node's Event comes when its own turn does; on a busy machine some are asked later
        # than the seventh.
        eventually(lambda: running.count("node_lifecycle_unknown_nodes") == 19)
        assert api.versions(NODES) == before
        cloud.faults.clear()
        cloud.console.remove_instance("node-0007")
        eventually(lambda: "node-0007" not in _names(api), timeout=60)
    assert "expired" in event["message"]
    assert len(_names(api)) == 19


@pytest.mark.row("N2")
def test_a_node_that_returned_unseen_is_not_deleted(api: Cluster, cloud: FakeCloud) -> None:
    _join(api, range(2), ready=[1])
    cloud.console.remove_instance("node-0000")
    with lifecycle(api.kubeconfig, cloud) as running:
        real = running.controller._writer._rest  # to come between the judgement and the DELETE
        deletes: list[Any] = []

        class Between:
            def request(self, method: str, path: str, **more: Any) -> Any:
                if method == "DELETE" and not deletes:
                    deletes.append(more["body"])
                    _set_ready(api, "node-0000", "True")
                return real.request(method, path, **more)

            def get(self, path: str, **more: Any) -> Any:
                return real.get(path, **more)

        running.controller._writer._rest = Between()  # type: ignore[assignment]  # a stand-in
        eventually(lambda: deletes)
        # A marker: whatever else was to be done about the first node would come before it, or in
        # the sweeps after it.
        cloud.console.set_shutdown("node-0002")
        _join(api, [2])
        eventually(lambda: SHUTDOWN in _taints(api, "node-0002"))
        _pass(running)
    assert _names(api) == {"node-0000", "node-0001", "node-0002"}
    assert "DeletingNode" not in api.reasons("node-0000")
    assert deletes[0]["preconditions"]["uid"] == api.get(f"{NODES}/node-0000")["metadata"]["uid"]


@pytest.mark.row("N3", "N6")
def test_foreign_and_new_nodes_are_left_alone(api: Cluster, cloud: FakeCloud) -> None:
    _join(api, [0], provider_id="other://i-{}", taints=[{"key": SHUTDOWN, "effect": "NoSchedule"}])
    _join(api, [1], provider_id="")
    _join(api, [2], taints=[UNINITIALIZED])
    _join(api, [3])
    _join(api, [4], ready="True")
    for number in range(4):
        cloud.console.remove_instance(_name(number))
    with lifecycle(api.kubeconfig, cloud):
        eventually(lambda: "node-0003" not in _names(api))
    assert _names(api) == {"node-0000", "node-0001", "node-0002", "node-0004"}
    assert SHUTDOWN in _taints(api)
    with lifecycle(api.kubeconfig, cloud, evolve(FAST, uninitialized_grace_period=0)):
        eventually(lambda: _names(api) == {"node-0000", "node-0001", "node-0004"})


@pytest.mark.row("P6")
def test_a_machine_on_a_page_that_is_never_read_keeps_its_node(api: Cluster) -> None:
    """The batch reads the first page only; `instance_exists` asks about one machine."""
    with _cloud(capabilities=BATCH, log="all") as cloud, lifecycle(api.kubeconfig, cloud) as running:
        _join(api, range(6), ready=[2, 3, 4, 5])
        cloud.faults.on("instances_state", answers(InstanceState.GONE), key="node-0000")
        cloud.console.remove_instance("node-0001")
        told = eventually(lambda: api.event_messages("node-0000").get("InstanceAnswersContradict", ""))
        assert "instances_state" in told
        assert "instance_exists" in told
        eventually(lambda: _name(1) not in _names(api))
        _pass(running)
        assert _names(api) == {_name(number) for number in (0, 2, 3, 4, 5)}
        assert len(cloud.calls.log("instance_exists", key="node-0001")) == 1


@pytest.mark.row("N30")
def test_a_node_that_joined_just_now_outlives_a_listing_that_lags(api: Cluster) -> None:
    options = evolve(FAST, young_grace=120)
    with _cloud(capabilities=SINGLE) as cloud, lifecycle(api.kubeconfig, cloud, options) as running:
        _join(api, range(1, 4), ready="True")
        _join(api, [0], taints=[UNINITIALIZED])
        lag = cloud.faults.on("instance_exists", answers(False), key="node-0000", times=8)
        api.patch(f"{NODES}/node-0000", {"spec": {"taints": None}})
        eventually(lambda: lag.struck == 8, timeout=60)
        _pass(running)
    assert _names(api) == {_name(number) for number in range(4)}


@pytest.mark.row("N5")
@EMBEDDED
@pytest.mark.parametrize("capabilities", [BATCH, SINGLE], ids=["batch", "v2"])
def test_a_hung_call_costs_its_node_alone(api: Cluster, capabilities: list[str]) -> None:
    with _cloud(capabilities=capabilities) as cloud:
        _join(api, range(20), ready=[19])
        hung = cloud.faults.on("instance*", hangs(), key="node-0000")
        for number in range(1, 6):
            cloud.console.remove_instance(_name(number))
        calls = CloudCallOptions(timeout=1.0, concurrency=8)
        options = evolve(FAST, unknown_event_after=0.5)
        with lifecycle(api.kubeconfig, cloud, options, calls) as running:
            eventually(lambda: len(_names(api)) == 15, timeout=60)
            eventually(lambda: running.count("controller_parked_keys", name="NodeLifecycle") == 1, timeout=60)
            event = _event(api, "InstanceStateUnknown")
            cloud.console.remove_instance("node-0000")
            hung.remove()
            eventually(lambda: "node-0000" not in _names(api), timeout=60)
        assert "has not answered" in event["message"]


@pytest.mark.row("N16", "N41")
@pytest.mark.parametrize("ready", ["True", "False"])
def test_a_node_whose_kubelet_runs_on_a_new_machine_is_told_about_and_stays(api: Cluster, ready: str) -> None:
    _join(api, range(4), ready=[0, 1, 2])
    name, path = "node-0000", f"{NODES}/node-0000"
    _run_on(api, name, "first")
    before = api.get(path)
    with _cloud(4, capabilities=BATCH) as cloud, lifecycle(api.kubeconfig, cloud) as running:
        _pass(running, 1)  # it has seen the first machine: the last node is asked about
        cloud.console.recreate_instance(name)
        _run_on(api, name, "second")
        _set_ready(api, name, ready)
        told = _event(api, "InstanceRecreated")
        cloud.console.remove_instance("node-0001")  # a marker, which is deleted as ever
        _set_ready(api, "node-0001", "False")
        eventually(lambda: _names(api) == {name, "node-0002", "node-0003"}, timeout=60)
    after = api.get(path)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["providerID"] == before["spec"]["providerID"]
    assert "restart that kubelet" in told["message"]


@pytest.mark.row("N39")
def test_a_node_that_a_finalizer_holds_is_not_called_deleted(api: Cluster, cloud: FakeCloud) -> None:
    _join(api, range(3), ready=[1, 2])
    path, kept = f"{NODES}/node-0000", "example.com/kept"
    api.patch(path, {"metadata": {"finalizers": [kept]}})
    cloud.console.remove_instance("node-0000")
    with lifecycle(api.kubeconfig, cloud) as running:
        event = _event(api, "DeletingNode")
        assert event["message"].endswith(f"held by finalizer {kept}")
        assert running.count("node_lifecycle_deleted_nodes_total") == 0
        api.patch(path, {"metadata": {"finalizers": None}})
        eventually(lambda: running.count("node_lifecycle_deleted_nodes_total") == 1)
    assert _names(api) == {"node-0001", "node-0002"}


def test_hands_off_a_node_until_the_label_goes(api: Cluster, cloud: FakeCloud) -> None:
    _join(api, range(4), taints=[OTHER], ready=[3])
    cloud.console.set_shutdown("node-0000")
    cloud.console.remove_instance("node-0001")
    cloud.console.remove_instance("node-0002")
    for name in ("node-0000", "node-0001"):
        api.patch(f"{NODES}/{name}", {"metadata": {"labels": {LABEL_HANDS_OFF: ""}}})
    before = api.get(f"{NODES}/node-0000")["metadata"]["resourceVersion"]
    with lifecycle(api.kubeconfig, cloud) as running:
        eventually(lambda: _names(api) == {"node-0000", "node-0001", "node-0003"})
        _pass_sweeps(running)
        assert running.metrics.value("node_lifecycle_hands_off_nodes") == 2
        assert "node-0001" in _names(api)
        assert api.get(f"{NODES}/node-0000")["metadata"]["resourceVersion"] == before, "no taint, no write at all"
        api.patch(f"{NODES}/node-0000", {"metadata": {"labels": {LABEL_HANDS_OFF: "false"}}})
        eventually(lambda: SHUTDOWN in _taints(api))
        # The taint that is there when the label is set stays.
        api.patch(f"{NODES}/node-0000", {"metadata": {"labels": {LABEL_HANDS_OFF: "true"}}})
        cloud.console.set_shutdown("node-0000", False)
        _set_ready(api, "node-0000", "True")
        _pass_sweeps(running)
        assert SHUTDOWN in _taints(api)
        for name in ("node-0000", "node-0001"):
            api.patch(f"{NODES}/{name}", {"metadata": {"labels": {LABEL_HANDS_OFF: None}}})
        eventually(lambda: _names(api) == {"node-0000", "node-0003"})
        eventually(lambda: SHUTDOWN not in _taints(api))


def _pass_sweeps(running: Running[NodeLifecycleController], sweeps: int = 4) -> None:
    """Wait until all nodes were looked at so many times, whether or not one is asked about."""
    name = "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_count"
    began = running.count(name)
    eventually(lambda: running.count(name) >= began + sweeps)


def test_shut_down_and_back(api: Cluster, cloud: FakeCloud) -> None:
    _join(api, range(3), taints=[OTHER], ready=[1, 2])
    before = _taints(api)
    cloud.console.set_shutdown("node-0000")
    with lifecycle(api.kubeconfig, cloud) as running:
        eventually(lambda: _taints(api) == before | {SHUTDOWN})
        cloud.console.set_shutdown("node-0000", False)
        eventually(lambda: _taints(api) == before)
        cloud.console.set_shutdown("node-0001")
        _set_ready(api, "node-0001", "Unknown")
        eventually(lambda: SHUTDOWN in _taints(api, "node-0001"))
        _set_ready(api, "node-0001", "True")
        eventually(lambda: SHUTDOWN not in _taints(api, "node-0001"))
        cloud.console.set_shutdown("node-0000")
        eventually(lambda: SHUTDOWN in _taints(api))
        versions = api.versions(NODES)
        _pass(running, 10)
        assert api.versions(NODES) == versions, "no write when nothing changed"
    assert OUT_OF_SERVICE not in _taints(api)
