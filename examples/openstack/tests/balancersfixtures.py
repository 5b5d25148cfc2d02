"""The fixtures of `balancersbench`."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from balancersbench import Bench, a_node, login
from kubernetes.client.models.v1_node import V1Node
from openstack.connection import Connection
from openstack_provider.rest import ask
from openstackdouble import Double, served

from tests.lab.openstack.cloud import OpenStack


@pytest.fixture(scope="module")
def double() -> Iterator[Double]:
    with served() as cloud:
        yield cloud


@pytest.fixture(scope="module", params=["double", "openstack"])
def cloud(request: pytest.FixtureRequest) -> Double | OpenStack:
    found: Double | OpenStack = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def sdk(cloud: Double | OpenStack) -> Connection:
    return login(cloud).sdk


@pytest.fixture(scope="module")
def machines(cloud: Double | OpenStack, sdk: Connection) -> list[V1Node]:
    prefix = f"node-{uuid4().hex[:6]}"
    if isinstance(cloud, OpenStack):
        if not cloud.ask("GET", "nova", "/v2.1/servers")["servers"]:
            cloud.create_server("first")
        made = cloud.clone_servers(10, prefix)
    else:
        made = {f"{prefix}-{number}": cloud.create_server(f"{prefix}-{number}") for number in range(10)}
    ports = ask(sdk.network, "GET", "/ports")["ports"]
    found = {one["device_id"]: one["fixed_ips"][0]["ip_address"] for one in ports if one["device_id"]}
    return [a_node(name, server, found[server]) for name, server in made.items()]


@pytest.fixture
def bench(cloud: Double | OpenStack, sdk: Connection, machines: list[V1Node]) -> Iterator[Bench]:
    """Ends with nothing left of what its Services had."""
    made = Bench(cloud, machines, sdk)
    before = made.left()
    yield made
    for manager, service in made.services:
        made.delete(manager, service)
    assert made.left() <= before


@pytest.fixture
def broken(bench: Bench) -> Double:
    """The double: nobody makes the services answer so."""
    if not isinstance(bench.cloud, Double):
        pytest.skip("only the double can be made to answer so")
    return bench.cloud
