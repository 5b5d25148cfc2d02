"""Instances, zones, and machines that appear on demand: what the conformance suite, which runs over
the fake cloud, does not ask."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloudprovider import (
    InstanceMetadata,
    InstanceNotFound,
    InstanceState,
    NotImplementedByProvider,
    SSHKeys,
)
from cloudprovider.testing.fake import BadRequest, FakeCloud
from cloudprovider.testing.fake.config import CAPABILITIES
from cloudprovider.wellknown import ANNOTATION_PROVIDED_NODE_IP
from tests.support.there import there
from tests.unit.fake.conftest import MakeCloud
from tests.unit.fake.objects import node, nodes

WORLD = [
    {
        "name": "a",
        "id": "i-1",
        "type": "small",
        "zone": "z1",
        "region": "r1",
        "addresses": {"InternalIP": "10.0.0.1", "Hostname": "a"},
        "labels": {"cloud.example/rack": "7"},
    },
    {"name": "off", "shutdown": True},
]
KEY = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBlISmtQsAHDS11OZIBeazeLq3wQz8gF3N444y2SzEGP"


@pytest.fixture
def cloud(make_cloud: MakeCloud) -> FakeCloud:
    return make_cloud(instances=WORLD, capabilities=CAPABILITIES)


class TestV2:
    def test_too_many_are_refused(self, make_cloud: MakeCloud) -> None:
        cloud = make_cloud(max_batch=2)
        batch = there(cloud.instances_batch())
        assert batch.max_batch == 2
        assert len(batch.instances_state(nodes("a", "b"))) == 2
        with pytest.raises(BadRequest, match="3 nodes"):
            batch.instances_state(nodes("a", "b", "c"))


class TestOlderForm:
    def test_every_question(self, cloud: FakeCloud) -> None:
        instances = there(cloud.instances())
        for addresses in (instances.node_addresses("a"), instances.node_addresses_by_provider_id("fake://i-1")):
            assert [(one.type, one.address) for one in addresses] == [("InternalIP", "10.0.0.1"), ("Hostname", "a")]
        assert instances.instance_id("a") == instances.external_id("a") == "i-1"
        assert instances.instance_type("a") == instances.instance_type_by_provider_id("fake://i-1") == "small"
        assert instances.current_node_name("host") == "host"
        assert instances.instance_exists_by_provider_id("fake://i-1")
        assert not instances.instance_exists_by_provider_id("fake://i-2")
        assert not instances.instance_shutdown_by_provider_id("fake://i-1")
        assert instances.instance_shutdown_by_provider_id("fake://i-off")
        assert set(cloud.calls.counts()) == {
            "node_addresses", "node_addresses_by_provider_id", "instance_id", "external_id", "instance_type",
            "instance_type_by_provider_id", "current_node_name", "instance_exists_by_provider_id",
            "instance_shutdown_by_provider_id",
        }  # fmt: skip

    def test_ssh_keys(self, cloud: FakeCloud) -> None:
        instances = there(cloud.instances())
        for _ in range(2):
            instances.add_ssh_key_to_all_instances("ada", KEY + b" ada@desk\n")
        newer: object = cloud.instances_v2()
        assert isinstance(newer, SSHKeys)
        newer.add_ssh_key_to_all_instances("bob", KEY)
        cloud.console.add_instance("late")
        assert cloud.console.ssh_keys() == [("ada", KEY.decode()), ("bob", KEY.decode())]
        assert cloud.console.ssh_keys("off") == cloud.console.ssh_keys()
        assert cloud.console.ssh_keys("late") == []
        batch: object = cloud.instances_batch()
        assert isinstance(batch, SSHKeys)
        batch.add_ssh_key_to_all_instances("bob", KEY)
        assert cloud.console.ssh_keys("late") == [("bob", KEY.decode())]
        with pytest.raises(BadRequest, match="of bob is refused: it is damaged"):
            batch.add_ssh_key_to_all_instances("bob", KEY[:-8])
        effects = [call.effect for call in cloud.calls.log("add_ssh_key_to_all_instances")]
        assert effects[:4] == ["created", "unchanged", "created", "updated"]

    def test_ssh_keys_can_be_switched_off(self, make_cloud: MakeCloud) -> None:
        cloud = make_cloud(capabilities=["instances_v2", "instances_batch"])
        assert not isinstance(cloud.instances_v2(), SSHKeys)
        assert not isinstance(cloud.instances_batch(), SSHKeys)


class TestWithoutProviderIDs:
    def test_machines_are_found_by_name_alone(self, make_cloud: MakeCloud) -> None:
        cloud = make_cloud(instances=WORLD, capabilities=CAPABILITIES, provider_ids=False)
        v2, batch, instances = there(cloud.instances_v2()), there(cloud.instances_batch()), there(cloud.instances())
        assert cloud.provider_id_prefixes() == ()
        assert v2.instance_metadata(node("a")).provider_id == ""
        assert v2.instance_exists(node("a", "other://x"))
        assert batch.instances_state(nodes("a"))["a"] is InstanceState.RUNNING
        by_id: list[Callable[[str], object]] = [
            instances.instance_exists_by_provider_id, instances.node_addresses_by_provider_id,
        ]  # fmt: skip
        for question in by_id:
            with pytest.raises(NotImplementedByProvider):
                question("fake://i-1")
        with pytest.raises(NotImplementedByProvider):
            instances.instance_id("a")
        assert instances.instance_type("a") == "small"


class TestOnDemand:
    def test_machines_appear_once_and_stay(self, make_cloud: MakeCloud) -> None:
        cloud = make_cloud(on_demand={"zones": ["z1", "z2"], "network": "10.9.0.0/16"}, instances=[{"name": "here"}])
        v2, batch = there(cloud.instances_v2()), there(cloud.instances_batch())
        first = v2.instance_metadata(node("b"))
        assert (first.provider_id, first.zone) == ("fake://i-b", "z1")
        assert [(a.type, a.address) for a in first.node_addresses] == [("InternalIP", "10.9.0.1"), ("Hostname", "b")]
        answers = batch.instances_metadata(nodes("a", "b", "here"))
        assert answers["b"] == first
        second = answers["a"]
        assert isinstance(second, InstanceMetadata)
        assert second.zone == "z2"
        assert [one.name for one in cloud.console.instances()] == ["a", "b", "here"]
        assert cloud.console.instance("here").zone == "zone-a"

    def test_the_nodes_own_addresses_come_first(self, make_cloud: MakeCloud) -> None:
        v2 = there(make_cloud(on_demand={}).instances_v2())
        told = node("told", metadata={"annotations": {ANNOTATION_PROVIDED_NODE_IP: "172.18.0.2,fd00::2"}})
        has = node("has", status={"addresses": [{"type": "InternalIP", "address": "172.18.0.3"},
                                                {"type": "Hostname", "address": "other"}]})  # fmt: skip
        assert [(a.type, a.address) for a in v2.instance_metadata(told).node_addresses] == [
            ("InternalIP", "172.18.0.2"), ("InternalIP", "fd00::2"), ("Hostname", "told"),
        ]  # fmt: skip
        assert [(a.type, a.address) for a in v2.instance_metadata(has).node_addresses] == [
            ("InternalIP", "172.18.0.3"), ("Hostname", "has"),
        ]  # fmt: skip

    def test_a_node_from_an_earlier_run_keeps_its_id(self, make_cloud: MakeCloud) -> None:
        """In memory every run begins anew; a cluster that was initialised before must not look
        gone."""
        cloud = make_cloud(on_demand={}, capabilities=CAPABILITIES)
        v2, instances = there(cloud.instances_v2()), there(cloud.instances())
        assert v2.instance_metadata(node("old", "fake://i-other")).provider_id == "fake://i-other"
        assert instances.instance_exists_by_provider_id("fake://i-older")
        assert cloud.console.instance("older").id == "i-older"
        assert not instances.instance_exists_by_provider_id("fake://something")
        with pytest.raises(BadRequest):
            v2.instance_exists(node("foreign", "other://1"))

    def test_what_was_removed_stays_away_and_so_does_a_recreated_ones_old_id(self, make_cloud: MakeCloud) -> None:
        cloud = make_cloud(on_demand={})
        v2 = there(cloud.instances_v2())
        assert v2.instance_exists(node("a"))
        cloud.console.remove_instance("a")
        assert not v2.instance_exists(node("a"))
        assert not v2.instance_exists(node("a", "fake://i-a"))
        assert cloud.console.add_instance("a").id != "i-a"
        assert v2.instance_exists(node("a"))
        assert not v2.instance_exists(node("a", "fake://i-a"))

    def test_only_for_the_names_it_is_for(self, make_cloud: MakeCloud) -> None:
        batch = there(make_cloud(on_demand={"names": ["edge-*", "x"]}).instances_batch())
        states = dict(batch.instances_state(nodes("edge-1", "x", "other")))
        assert isinstance(states.pop("other"), InstanceNotFound)
        assert set(states.values()) == {InstanceState.RUNNING}
