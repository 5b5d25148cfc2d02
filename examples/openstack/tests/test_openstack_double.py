"""The double and OpenStack's own services answer alike: the same statuses, the same keys, the same
types, for the same requests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from keystoneauth1.exceptions import Unauthorized
from openstack.connection import Connection
from openstack.exceptions import ConflictException, HttpException, NotFoundException
from openstackdouble import Double, served
from openstackwalk import RECORDED, walk

from tests.lab.openstack.cloud import OpenStack

pytest_plugins = ["tests.lab.openstack.fixtures"]


@pytest.fixture
def cloud() -> Iterator[Double]:
    """An empty one."""
    with served() as double:
        yield double


def differences(recorded: Any, made: Any, where: str = "") -> Iterator[str]:
    """How the shapes differ. Nothing and an empty list have no shape: they agree with all."""
    if recorded is None or made is None:
        return
    if type(recorded) is not type(made):
        yield f"{where}: {type(recorded).__name__}, not {type(made).__name__}"
    elif isinstance(recorded, dict):
        if recorded.keys() != made.keys():
            yield f"{where}: lacks {recorded.keys() - made.keys()}, has {made.keys() - recorded.keys()}"
        for key in recorded.keys() & made.keys():
            yield from differences(recorded[key], made[key], f"{where}.{key}")
    elif isinstance(recorded, list) and recorded and made:
        yield from differences(recorded[0], made[0], f"{where}[0]")


def compared(recorded: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    """All differences of two walks."""
    found = [f"{name}: not recorded" for name in seen.keys() ^ recorded.keys()]
    for name in seen.keys() & recorded.keys():
        was, now = recorded[name], seen[name]
        if was["status"] != now["status"]:
            found.append(f"{name}: {now['status']} {json.dumps(now['answer'])[:200]}, recorded {was['status']}")
            continue
        found += differences(was["answer"], now["answer"], name)
        for key in (was["answer"] or {}).keys() if name in COUNTED else ():
            if (one := len(was["answer"][key])) != (other := len(now["answer"][key])):
                found.append(f"{name}: {other} of {key}, recorded {one}")
    return found


COUNTED = (
    "servers", "page 1", "page 3", "server names", "networks", "external networks", "subnets", "ports of servers",
    "port by address", "ports' page 1", "rules", "groups by name", "groups by tag", "balancers by name",
    "balancers by tags", "balancers by any tag", "balancers by no tag", "listeners", "members", "monitors", "pools",
    "address of the port", "address by itself", "addresses by tag",
)  # fmt: skip
"""Listings whose lengths must agree too."""


def test_the_double_answers_as_recorded(cloud: Double) -> None:
    assert compared(json.loads(RECORDED.read_text()), walk(cloud).seen) == []
    assert cloud.octavia.things["loadbalancers"] == cloud.nova.servers == {}


@contextmanager
def sdk(cloud: Double, **more: Any) -> Iterator[Connection]:
    """openstacksdk, as a provider uses it."""
    auth = {"auth_url": cloud.auth_url, "username": cloud.user, "password": cloud.password,
            "project_name": cloud.project, "user_domain_id": "default", "project_domain_id": "default"}  # fmt: skip
    with Connection(auth=auth, region_name=cloud.region, **more) as connection:
        yield connection


def test_openstacksdk_lists_pages_and_builds(cloud: Double) -> None:
    cloud.nova.page = 2
    servers = {name: cloud.create_server(name) for name in ("node-1", "node-2", "node-3")}
    cloud.nova.set_state(servers["node-2"], "SHUTOFF")
    with sdk(cloud, compute_default_microversion="2.96") as connection:
        listed = {one.name: one for one in connection.compute.servers()}
        assert {name: one.id for name, one in listed.items()} == servers
        assert listed["node-2"].status == "SHUTOFF"
        assert listed["node-1"].flavor.original_name == "m1.medium"
        assert cloud.counts()["nova GET /v2.1/servers/detail"] == 2
        cloud.nova.hidden.add(servers["node-3"])
        assert {one.name for one in connection.compute.servers()} == {"node-1", "node-2"}
        ports = list(connection.network.ports(device_id=servers["node-1"]))
        assert [ip["ip_address"] for ip in ports[0].fixed_ips] == [listed["node-1"].addresses["nodes"][0]["addr"]]
        made = connection.load_balancer.create_load_balancer(name="a", vip_subnet_id=cloud.subnet)
        assert made.provisioning_status == "PENDING_CREATE"
        with pytest.raises(ConflictException):
            connection.load_balancer.update_load_balancer(made, name="b")
        assert connection.load_balancer.get_load_balancer(made.id).provisioning_status == "PENDING_CREATE"
        assert connection.load_balancer.get_load_balancer(made.id).provisioning_status == "ACTIVE"


def test_an_application_credential_logs_in(cloud: Double) -> None:
    credential = {
        "auth_url": cloud.auth_url, "application_credential_id": cloud.application_credential_id,
        "application_credential_secret": cloud.application_credential_secret,
    }  # fmt: skip
    with Connection(auth_type="v3applicationcredential", auth=credential, region_name=cloud.region) as connection:
        assert [one.name for one in connection.network.networks()] == ["nodes", "public"]
    wrong = {**credential, "application_credential_secret": "wrong"}
    with (
        Connection(auth_type="v3applicationcredential", auth=wrong, region_name=cloud.region) as connection,
        pytest.raises(Unauthorized),
    ):
        list(connection.network.networks())


def test_a_token_ends_and_another_is_given(cloud: Double) -> None:
    with sdk(cloud) as connection:
        list(connection.network.networks())
        cloud.end_tokens()
        list(connection.network.networks())
    assert cloud.counts()["keystone POST /v3/auth/tokens"] == 2
    assert cloud.counts()["neutron GET /v2.0/networks"] == 3


def test_a_build_is_held_fails_and_can_only_be_deleted(cloud: Double) -> None:
    cloud.octavia.held, cloud.octavia.outcome = True, "ERROR"
    with sdk(cloud) as connection:
        balancers = connection.load_balancer
        made = balancers.create_load_balancer(name="a", vip_subnet_id=cloud.subnet)
        assert {balancers.get_load_balancer(made.id).provisioning_status for _ in range(5)} == {"PENDING_CREATE"}
        cloud.octavia.held = False
        balancers.get_load_balancer(made.id)
        assert balancers.get_load_balancer(made.id).provisioning_status == "ERROR"
        with pytest.raises(ConflictException):
            balancers.update_load_balancer(made.id, name="b")
        fip = connection.network.create_ip(floating_network_id=cloud.external, port_id=made.vip_port_id)
        balancers.delete_load_balancer(made.id, cascade=True)
        assert balancers.get_load_balancer(made.id).provisioning_status == "PENDING_DELETE"
        with pytest.raises(NotFoundException):
            balancers.get_load_balancer(made.id)
        assert connection.network.get_ip(fip.id).port_id is None


def test_answers_in_place_of_the_clouds_own(cloud: Double) -> None:
    cloud.answers["GET neutron /v2.0/ports"] = (503, {})
    with sdk(cloud) as connection:
        with pytest.raises(HttpException, match="503"):
            list(connection.network.ports())
        cloud.answers.clear()
        assert [one.device_owner for one in connection.network.ports()] == ["network:router_interface"]
        routes = [{"destination": "10.244.1.0/24", "nexthop": "10.24.0.9"}]
        with cloud.exhausted(), pytest.raises(HttpException, match="router_route"):
            connection.network.add_extra_routes_to_router(cloud.router, {"router": {"routes": routes}})


def test_the_services_answer_as_recorded(openstack: OpenStack) -> None:
    seen = walk(openstack)
    if os.environ.get("RECORD"):  # for a new release of OpenStack, or a new step
        RECORDED.write_text(seen.recording())
    assert compared(json.loads(RECORDED.read_text()), seen.seen) == []
