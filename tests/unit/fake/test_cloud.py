"""The provider as a whole: capabilities, the registry's factory, and one cloud shared by several processes."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from cloudprovider import CloudConfig, InstanceNotFound, ProviderFactoryError
from cloudprovider.registry import get_cloud_provider
from cloudprovider.testing import fake
from cloudprovider.testing.fake import (
    FakeCloud,
    FakeCloudClosed,
    FakeConfig,
    FakeStateError,
    Hang,
    Raise,
    attach,
    new_provider,
    parse_config,
)
from cloudprovider.testing.fake.config import CAPABILITIES
from cloudprovider.testing.fake.methods import METHODS
from tests.unit.fake.conftest import MakeCloud
from tests.unit.fake.objects import node, nodes, service

EXTENDING = {"owned_load_balancers", "ssh_keys"}  # offered by an object with another capability
SPAWN = multiprocessing.get_context("spawn")
LIMIT = 60.0  # seconds of real time for another process


class TestCapabilities:
    def test_each_can_be_switched_off(self, make_cloud: MakeCloud) -> None:
        accessors = set(CAPABILITIES) - EXTENDING
        everything = make_cloud(capabilities=CAPABILITIES)
        assert all(getattr(everything, name)() is not None for name in accessors)
        for off in accessors:
            cloud = make_cloud(capabilities=[name for name in CAPABILITIES if name != off])
            assert {name for name in accessors if getattr(cloud, name)() is None} == {off}

    def test_accessors_answer_the_same_object(self, make_cloud: MakeCloud) -> None:
        cloud = make_cloud(capabilities=CAPABILITIES)
        for name in set(CAPABILITIES) - EXTENDING:
            assert getattr(cloud, name)() is getattr(cloud, name)()

    def test_the_older_instances_are_asked_for(self, make_cloud: MakeCloud) -> None:
        assert make_cloud().instances() is None
        assert make_cloud().instances_batch() is not None

    def test_the_table_of_methods_is_the_contracts(self, make_cloud: MakeCloud) -> None:
        """Every public method of every capability passes the gate by its name, or says why not."""
        cloud = make_cloud(capabilities=CAPABILITIES)
        for name in set(CAPABILITIES) - EXTENDING:
            public = {
                method for method in dir(getattr(cloud, name)()) if not method.startswith("_") and method != "max_batch"
            }
            keys = {"add_ssh_key_to_all_instances"} if name.startswith("instances") else set()
            assert public == {method.name for method in METHODS.values() if method.capability == name} | keys

    def test_names_and_flags(self, make_cloud: MakeCloud) -> None:
        cloud = make_cloud(provider="acme", has_cluster_id=False, instances=[{"name": "a"}])
        assert cloud.provider_name() == "acme"
        assert cloud.provider_id_prefixes() == ("acme://",)
        assert not cloud.has_cluster_id()
        v2 = cloud.instances_v2()
        assert v2 is not None
        assert v2.instance_metadata(node("a")).provider_id == "acme://i-a"
        assert make_cloud().has_cluster_id()


class TestFactory:
    def test_the_registry_finds_it(self, tmp_path: Path) -> None:
        path = tmp_path / "cloud.yaml"
        path.write_text("instances: [{name: a}]\n")
        cloud = get_cloud_provider("fake", CloudConfig.read(path))
        assert isinstance(cloud, FakeCloud)
        assert [one.name for one in cloud.console.instances()] == ["a"]
        cloud.close()

    def test_a_bad_file_is_told_in_full(self, tmp_path: Path) -> None:
        path = tmp_path / "cloud.yaml"
        path.write_text("seed: x\nnope: 1\n")
        with pytest.raises(ProviderFactoryError, match=r"(?s)seed.*nope"):
            get_cloud_provider("fake", CloudConfig.read(path))

    def test_without_a_file_no_node_looks_gone(self) -> None:
        with new_provider(None) as cloud:
            batch = cloud.instances_batch()
            assert batch is not None
            assert not any(isinstance(one, InstanceNotFound) for one in batch.instances_state(nodes("a", "b")).values())
        with FakeCloud() as empty:
            assert empty.console.instances() == []

    def test_the_state_file_lies_beside_the_configuration(self, tmp_path: Path) -> None:
        new_provider(CloudConfig(str(tmp_path / "cloud.yaml"), b"state: cloud.sqlite")).close()
        assert (tmp_path / "cloud.sqlite").is_file()

    def test_a_closed_cloud_says_so(self) -> None:
        cloud = FakeCloud()
        cloud.close()
        cloud.close()
        with pytest.raises(FakeCloudClosed):
            cloud.console.instances()

    def test_public_names_are_there(self) -> None:
        assert len(set(fake.__all__)) == len(fake.__all__)
        assert all(hasattr(fake, name) for name in fake.__all__)


def _client(path: str, name: str, pipe: Connection) -> None:
    """A process of its own: load balancers for ten Services of its cluster, a batch, and one that hangs."""
    cloud = FakeCloud(parse_config({"state": path, "busy_timeout": "60s"}), caller=name)
    balancer, batch = cloud.load_balancer(), cloud.instances_batch()
    assert balancer is not None
    assert batch is not None
    pipe.send("ready")
    pipe.recv()
    for number in range(10):
        balancer.ensure_load_balancer(name, service(f"s{number}", uid=f"{name}-{number}"), nodes("a"))
    pipe.send(len(batch.instances_state(nodes("a", "b"))))
    balancer.ensure_load_balancer(name, service("stuck", uid=f"{name}-stuck"), [])
    pipe.send("released")


class TestSharedByProcesses:
    def test_one_cloud_for_all_of_them(self, tmp_path: Path) -> None:
        path = tmp_path / "cloud"
        with FakeCloud(parse_config({"state": str(path), "instances": [{"name": "a"}]}), caller="test") as cloud:
            pipes = {name: SPAWN.Pipe() for name in ("ccm-a", "ccm-b")}
            clients = {
                name: SPAWN.Process(target=_client, args=(str(path), name, far), daemon=True)
                for name, (_, far) in pipes.items()
            }
            for client in clients.values():
                client.start()
            for near, _ in pipes.values():
                assert near.poll(LIMIT)
                assert near.recv() == "ready"
            cloud.faults.add(Hang(name="stuck", key="default/stuck"))
            for near, _ in pipes.values():
                near.send("go")
            for near, _ in pipes.values():
                assert near.poll(LIMIT)
                assert near.recv() == 2
            # Both hang now, or are about to; one is killed inside, the other let go.
            end = time.monotonic() + LIMIT
            while len(cloud.calls.running()) < 2:
                assert time.monotonic() < end
                threading.Event().wait(0.01)
            os.kill(clients["ccm-a"].pid or 0, signal.SIGKILL)
            clients["ccm-a"].join(LIMIT)
            cloud.faults.release("stuck")
            assert pipes["ccm-b"][0].poll(LIMIT)
            assert pipes["ccm-b"][0].recv() == "released"
            clients["ccm-b"].join(LIMIT)
            assert cloud.calls.counts() == {"ensure_load_balancer": 22, "instances_state": 2}
            assert cloud.calls.keys_asked("instances_state") == 4
            log = cloud.calls.log("ensure_load_balancer")
            assert {call.caller.name: call.caller.process for call in log} == {
                name: client.pid for name, client in clients.items()
            }
            assert all(call.caller.cluster == call.caller.name for call in log)
            (cut,) = cloud.calls.running()
            assert (cut.caller.name, cut.key) == ("ccm-a", "accmastuck")
            assert cloud.calls.overlaps() == ()
            records = cloud.console.load_balancers()
            assert len(records) == 21
            addresses = [address for record in records for address in record.ingress]
            assert len(set(addresses)) == 21, "no address was given twice"

    def test_the_file_is_the_cloud(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        fields = {"state": str(tmp_path / "cloud"), "instances": [{"name": "a"}, {"name": "b"}]}
        fields["faults"] = [{"action": "raise", "name": "f", "times": 1}]
        with FakeCloud(parse_config(fields)) as cloud:
            cloud.console.remove_instance("b")
            with pytest.raises(Exception, match="injected"):
                cloud.initialize(None, None)  # type: ignore[arg-type]  # it looks at neither
        with caplog.at_level(logging.WARNING), FakeCloud(parse_config(fields)) as again:
            assert [one.name for one in again.console.instances()] == ["a"]
            again.initialize(None, None)  # type: ignore[arg-type]
        assert not caplog.records
        with FakeCloud(FakeConfig(state=str(tmp_path / "cloud"), max_batch=7)) as other:
            assert [one.name for one in other.console.instances()] == ["a"]
        (warning,) = caplog.records
        assert "another configuration" in warning.getMessage()

    def test_reaching_in_from_outside(self, tmp_path: Path) -> None:
        with pytest.raises(FakeStateError, match="no fake cloud"):
            attach(tmp_path / "cloud")
        assert not (tmp_path / "cloud").exists()
        config = parse_config({"state": str(tmp_path / "cloud"), "instances": [{"name": "a"}]})
        with FakeCloud(config) as cloud, attach(tmp_path / "cloud", caller="ada") as outside:
            outside.console.set_shutdown("a")
            v2 = cloud.instances_v2()
            assert v2 is not None
            assert v2.instance_shutdown(node("a"))
            outside.faults.add(Raise(error="TimeoutError", times=1))
            with pytest.raises(TimeoutError):
                v2.instance_exists(node("a"))
            assert outside.calls.counts() == {"instance_shutdown": 1, "instance_exists": 1}
            (change,) = cloud.calls.log()
            assert (change.caller.name, change.method) == ("ada", "console.set_shutdown")
