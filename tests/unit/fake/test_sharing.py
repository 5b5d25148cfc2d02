"""One cloud for several processes: what travels, and what becomes of those that go."""

from __future__ import annotations

import multiprocessing
import os
import signal
import stat
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import pytest

from cloudprovider import (
    Call,
    CallCancelled,
    CallDeadlineExceeded,
    CloudConfig,
    CloudProviderError,
    InstanceNotFound,
    InstanceState,
    InstancesV2,
    Route,
    Throttled,
)
from cloudprovider.testing.fake import FakeCloud, FakeConfig, hangs, new_provider, raises
from cloudprovider.testing.fake.config import CAPABILITIES
from cloudprovider.testing.fake.instances import FakeInstancesV2
from cloudprovider.testing.waiting import eventually
from tests.support.there import there
from tests.unit.fake.objects import in_thread, node, nodes, service

SPAWN = multiprocessing.get_context("spawn")
LIMIT = 60.0  # seconds of real time for another process


def client_of(cloud: FakeCloud, folder: Path, **fields: object) -> FakeCloud:
    """A provider as another process has it."""
    path = cloud.share(folder / "cloud.json", **fields)
    return new_provider(CloudConfig(str(path), path.read_bytes()))


def v2(cloud: FakeCloud) -> InstancesV2:
    return there(cloud.instances_v2())


def test_a_client_has_the_configuration_and_none_of_the_world(tmp_path: Path) -> None:
    settings = {"provider": "acme", "max_batch": 7, "capabilities": CAPABILITIES, "instances": [{"name": "a"}]}
    with FakeCloud(FakeConfig.model_validate(settings)) as cloud, client_of(cloud, tmp_path, caller="b") as client:
        assert client.provider_name() == "acme"
        assert client.config.caller == "b"
        batch = there(client.instances_batch())
        assert batch.max_batch == 7
        assert client.console.instances() == []
        client.initialize(SimpleNamespace(), threading.Event())
        assert v2(client).instance_metadata(node("a")) == v2(cloud).instance_metadata(node("a"))
        assert batch.instances_state(nodes("a"))["a"] is InstanceState.RUNNING
        assert cloud.calls.count("initialize", "instances_state") == 2


def test_what_the_cloud_lacks_is_no_success_for_a_client(tmp_path: Path) -> None:
    wanted = ["instances_v2", "routes"]
    with FakeCloud(FakeConfig(capabilities=("instances_v2",))) as cloud:
        routes = there(client_of(cloud, tmp_path, capabilities=wanted).routes())
        with pytest.raises(AttributeError, match="create_route"):
            routes.create_route("c", "hint", Route("", "a", "10.0.0.0/24"))


def test_a_subclass_answers_clients_with_what_it_makes_after_the_cloud(tmp_path: Path) -> None:
    class Cloud(FakeCloud):
        def __init__(self) -> None:
            super().__init__()
            self.asked: list[str] = []

        def instances_v2(self) -> FakeInstancesV2 | None:
            self.asked.append("instances_v2")
            return super().instances_v2()

    with Cloud() as cloud, client_of(cloud, tmp_path) as client:
        assert not v2(client).instance_exists(node("a"))
        assert cloud.asked == ["instances_v2"]


def test_errors_and_faults_travel(tmp_path: Path) -> None:
    with FakeCloud() as cloud, client_of(cloud, tmp_path) as client:
        with pytest.raises(InstanceNotFound, match="no instance a"):
            v2(client).instance_metadata(node("a"))
        cloud.faults.on("instance_exists", raises(Throttled("slow down", 2.5)), times=1)
        with pytest.raises(Throttled, match="slow down") as caught:
            v2(client).instance_exists(node("a"))
        assert caught.value.retry_after == 2.5
        assert not v2(client).instance_exists(node("a"))
        cloud.faults.on("instance_exists", lambda _: lambda: None, times=1)
        with pytest.raises(CloudProviderError, match="instance_exists: the answer cannot travel"):
            v2(client).instance_exists(node("a"))


def test_a_call_given_up_is_noticed_on_the_other_side(tmp_path: Path) -> None:
    with FakeCloud() as cloud, client_of(cloud, tmp_path) as client:
        balancer = there(client.load_balancer())
        stuck = cloud.faults.on("ensure_load_balancer", hangs(soft=True))

        def ensure() -> object:
            return balancer.ensure_load_balancer("c", service(), [])

        cancelled = threading.Event()
        hung = in_thread(ensure, Call(cancelled=cancelled))
        eventually(lambda: stuck.struck)
        cancelled.set()
        with pytest.raises(CallCancelled):
            hung.result(LIMIT)
        with pytest.raises(CallDeadlineExceeded):
            in_thread(ensure, Call(deadline=time.monotonic() + 0.03)).result(LIMIT)
        stuck.remove()
        with pytest.raises(CallCancelled):
            in_thread(ensure, Call(cancelled=cancelled)).result(LIMIT)
        assert cloud.console.load_balancers() == []
        assert ensure()


def test_without_the_serving_process_every_call_fails(tmp_path: Path) -> None:
    cloud = FakeCloud()
    with client_of(cloud, tmp_path) as client:
        v2(client).instance_exists(node("a"))
        cloud.close()
        for _ in range(2):
            with pytest.raises(CloudProviderError, match=r"is gone|was closed"):
                v2(client).instance_exists(node("a"))


def test_who_does_not_know_the_key_is_not_served_and_it_is_the_owners_alone(tmp_path: Path) -> None:
    """Calls travel pickled: who has the key can have this process run anything."""
    path = tmp_path / "shared.json"
    path.touch(0o644)
    with FakeCloud() as cloud, client_of(cloud, tmp_path, caller="b") as client:
        assert stat.S_IMODE(cloud.share(path).stat().st_mode) == 0o600
        stranger = FakeCloud(client.config.model_copy(update={"server_key": "guessed"}))
        with pytest.raises(CloudProviderError, match="is gone"):
            v2(stranger).instance_exists(node("a"))
        assert not v2(client).instance_exists(node("a"))


def _client(path: str, name: str, pipe: Connection) -> None:
    """A process of its own: load balancers for ten Services of its cluster, a batch, and one that
    hangs."""
    cloud = new_provider(CloudConfig.read(Path(path)))
    balancer, batch = there(cloud.load_balancer()), there(cloud.instances_batch())
    for number in range(10):
        balancer.ensure_load_balancer(name, service(f"s{number}", uid=f"{name}-{number}"), nodes("a"))
    pipe.send(len(batch.instances_state(nodes("a", "b"))))
    balancer.ensure_load_balancer(name, service("stuck", uid=f"{name}-stuck"), [])
    pipe.send("released")


def test_one_cloud_for_several_processes_of_which_one_is_killed(tmp_path: Path) -> None:
    with FakeCloud(FakeConfig.model_validate({"instances": [{"name": "a"}]})) as cloud:
        stuck = cloud.faults.on("*", hangs(), key="default/stuck")
        pipes = {name: SPAWN.Pipe() for name in ("ccm-a", "ccm-b")}
        clients = {}
        for name, (_, far) in pipes.items():
            path = cloud.share(tmp_path / f"{name}.json", caller=name)
            clients[name] = SPAWN.Process(target=_client, args=(str(path), name, far), daemon=True)
            clients[name].start()
        for near, _ in pipes.values():
            assert near.poll(LIMIT)
            assert near.recv() == 2
        eventually(lambda: stuck.struck == 2, LIMIT)
        os.kill(clients["ccm-a"].pid or 0, signal.SIGKILL)
        clients["ccm-a"].join(LIMIT)
        stuck.remove()
        assert pipes["ccm-b"][0].poll(LIMIT)
        assert pipes["ccm-b"][0].recv() == "released"
        clients["ccm-b"].join(LIMIT)
        eventually(lambda: not cloud.calls.running())
        assert cloud.calls.counts() == {"ensure_load_balancer": 22, "instances_state": 2}
        log = cloud.calls.log("ensure_load_balancer")
        assert {one.caller.name: one.caller.process for one in log} == {n: one.pid for n, one in clients.items()}
        assert all(one.cluster == one.caller.name for one in log)
        assert cloud.calls.overlaps() == ()
        records = cloud.console.load_balancers()
        assert len(records) == 22, "what the killed one asked for is done, as in a real cloud"
        addresses = [address for record in records for address in record.ingress]
        assert len(set(addresses)) == 22, "no address was given twice"
