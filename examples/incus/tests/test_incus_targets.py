"""A forward keeps its node while no instance of the nodes can take the traffic: without a
server."""

from __future__ import annotations

from typing import Any

import pytest
from incus_provider.config import Config
from incus_provider.forwards import TARGET, marks, with_target
from incus_provider.loadbalancer import IncusLoadBalancers
from incus_provider.resources import Forward, Instance
from test_incus_rules import UUID, instance

from cloudprovider import RetryError
from cloudprovider.testing.conformance import new_node, new_service

OTHER = "1b4e28ba-2fa1-41d2-883f-0016d3cca427"
SERVICE = new_service("web", "1b4e28ba-2fa1-11d2-883f-0016d3cca427")
NODES = [new_node(name, f"incus://default/{uuid}") for name, uuid in (("n1", UUID), ("n2", OTHER))]
AIMED = with_target(
    Forward(listen_address="192.0.2.1", config=marks("c", "a1", SERVICE)), f"incus://default/{UUID}", "198.19.240.7"
)


class Client:
    """The server's forward and its instances, and what is changed."""

    project = "default"

    def __init__(self, *instances: Instance) -> None:
        self.instances = instances
        self.changed: list[Any] = []

    def get(self, kind: object, path: str, **_: object) -> tuple[Any, ...]:
        return (AIMED,) if "forwards" in path else self.instances

    def change(self, _method: str, _path: str, body: Any) -> None:
        self.changed.append(body)


def balancers(client: Any) -> IncusLoadBalancers:
    return IncusLoadBalancers(client, Config(url="unix:///x", network="br-nodes"))


@pytest.mark.parametrize("instances", [(), (instance("Stopped"),)], ids=["a short listing", "switched off"])
def test_it_stays_with_its_node_and_the_call_is_made_again(instances: tuple[Instance, ...]) -> None:
    client = Client(*instances)
    with pytest.raises(RetryError, match="none of 2 nodes"):
        balancers(client).update_load_balancer("c", SERVICE, NODES)
    assert client.changed == []


def test_a_node_that_left_the_list_gets_no_traffic() -> None:
    client = Client()
    with pytest.raises(RetryError):
        balancers(client).update_load_balancer("c", SERVICE, NODES[1:])
    [changed] = client.changed
    assert TARGET not in changed["config"]
    balancers(client).update_load_balancer("c", SERVICE, [])


def test_another_node_takes_over() -> None:
    other = {"volatile.uuid": OTHER}
    client = Client(instance("Stopped"), instance(name="n2", config=other))
    balancers(client).update_load_balancer("c", SERVICE, NODES)
    [changed] = client.changed
    assert changed["config"][TARGET] == f"incus://default/{OTHER}"
