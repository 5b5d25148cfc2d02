"""The console: what people do to the cloud by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloudprovider.testing.fake import FakeCloud, raises
from tests.support.there import there
from tests.unit.fake.conftest import MakeCloud
from tests.unit.fake.objects import node, volume


@pytest.fixture
def cloud(make_cloud: MakeCloud) -> FakeCloud:
    return make_cloud(instances=[{"name": "a", "type": "big", "labels": {"k": "v"}}])


def exists(cloud: FakeCloud, name: str, provider_id: str = "") -> bool:
    v2 = there(cloud.instances_v2())
    return v2.instance_exists(node(name, provider_id))


def test_machines_come_and_go(cloud: FakeCloud) -> None:
    made = cloud.console.add_instance("b", type="small", addresses={"InternalIP": "10.0.0.9"})
    assert made.addresses == (("InternalIP", "10.0.0.9"),)
    assert exists(cloud, "b", "fake://i-b")
    assert [one.name for one in cloud.console.instances()] == ["a", "b"]
    cloud.console.remove_instance("b")
    assert not exists(cloud, "b")
    assert [one.name for one in cloud.console.instances()] == ["a"]


def test_machines_change(cloud: FakeCloud) -> None:
    v2 = there(cloud.instances_v2())
    cloud.console.set_shutdown("a")
    assert v2.instance_shutdown(node("a"))
    cloud.console.set_shutdown("a", False)
    assert not v2.instance_shutdown(node("a"))
    cloud.console.change_instance("a", type="huge", zone="z9")
    assert v2.instance_metadata(node("a")).instance_type == "huge"
    assert v2.instance_metadata(node("a")).zone == "z9"


def test_no_two_machines_ever_have_one_id(cloud: FakeCloud) -> None:
    ids = [cloud.console.instance("a").id]
    ids.append(cloud.console.recreate_instance("a").id)
    ids.append(cloud.console.add_instance("a").id)
    cloud.console.remove_instance("a")
    ids.append(cloud.console.add_instance("a").id)
    ids.append(cloud.console.recreate_instance("a").id)
    assert len(set(ids)) == 5
    assert exists(cloud, "a", f"fake://{ids[-1]}")
    assert not any(exists(cloud, "a", f"fake://{gone}") for gone in ids[:-1])
    assert cloud.console.add_instance("a", id="i-chosen").id == "i-chosen"


def test_a_recreated_machine_is_of_the_same_kind(cloud: FakeCloud) -> None:
    old, new = cloud.console.instance("a"), cloud.console.recreate_instance("a")
    assert (new.type, new.labels, new.addresses, new.zone) == (old.type, old.labels, old.addresses, old.zone)
    assert new.id != old.id


def test_what_is_not_there_is_named_and_nothing_is_logged(cloud: FakeCloud) -> None:
    console = cloud.console
    attempts: list[Callable[[], object]] = [
        lambda: console.remove_instance("x"), lambda: console.change_instance("x", type="y"),
        lambda: console.set_shutdown("x"), lambda: console.recreate_instance("x"), lambda: console.instance("x"),
        lambda: console.load_balancer("x"), lambda: console.delete_load_balancer("x"),
        lambda: console.change_load_balancer("x"), lambda: console.remove_route("x"),
        lambda: console.change_route("x"), lambda: console.remove_volume("x"),
    ]  # fmt: skip
    for attempt in attempts:
        with pytest.raises(KeyError, match="x"):
            attempt()
    with pytest.raises(ValueError, match="nope"):
        console.add_instance("b", nope=1)
    assert cloud.calls.log() == ()


def test_routes_and_volumes(cloud: FakeCloud) -> None:
    routes, labeler = there(cloud.routes()), there(cloud.pv_labeler())
    assert cloud.console.add_route("vpn", "10.9.0.0/16").foreign
    cloud.console.add_route("ours", "10.244.0.0/24", cluster="c", foreign=False, target_node="a")
    cloud.console.change_route("ours", target_node="b")
    assert [one.target_node for one in routes.list_routes("c")] == ["b", ""]
    cloud.console.remove_route("vpn")
    assert [one.name for one in cloud.console.routes()] == ["ours"]
    cloud.console.add_volume("v", region="r")
    assert labeler.get_labels_for_volume(volume("v"))
    cloud.console.remove_volume("v")
    assert cloud.calls.count() == 2, "only the capabilities' calls count"


def test_the_log_tells_hands_from_clients(cloud: FakeCloud) -> None:
    cloud.console.set_shutdown("a")
    cloud.console.set_shutdown("a")
    cloud.console.add_volume("v")
    cloud.console.add_volume("v")
    cloud.console.remove_instance("a")
    assert [(call.method, call.key, call.effect) for call in cloud.calls.log()] == [
        ("console.change_instance", "a", "updated"),
        ("console.change_instance", "a", "unchanged"),
        ("console.add_volume", "v", "created"),
        ("console.add_volume", "v", "updated"),
        ("console.remove_instance", "a", "deleted"),
    ]
    assert all(call.finished is not None for call in cloud.calls.log())


def test_it_is_neither_delayed_nor_struck_by_faults(make_cloud: MakeCloud) -> None:
    cloud = make_cloud(latency={"*": "1h"})
    cloud.faults.on("*", raises())
    cloud.console.add_instance("a")
    assert cloud.console.instance("a").id == "i-a"
    assert cloud.calls.counts() == {}
