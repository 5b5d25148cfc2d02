"""Values of a wrong type are refused where they are built, with the field, what it wants, and what
came."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import CloudConfig, InstanceMetadata, OwnedLoadBalancer, Route, Taint, Zone

ADDRESS = V1NodeAddress(type="InternalIP", address="10.0.0.1")


@pytest.mark.parametrize(
    ("build", "fields", "told"),
    [
        (InstanceMetadata, {"provider_id": None}, "InstanceMetadata.provider_id must be a str; it is of type NoneType"),
        (InstanceMetadata, {"provider_id": b"x://1"}, "provider_id must be a str; it is of type bytes: b'x://1'"),
        (InstanceMetadata, {"instance_type": 4}, "InstanceMetadata.instance_type must be a str; it is of type int: 4"),
        (InstanceMetadata, {"region": ["eu"]}, "InstanceMetadata.region must be a str; it is of type list: ['eu']"),
        (InstanceMetadata, {"node_addresses": "10.0.0.1"}, "must be a sequence of V1NodeAddress, such as [V1NodeAddr"),
        (InstanceMetadata, {"node_addresses": "10.0.0.1"}, "it is of type str: 10.0.0.1"),
        (InstanceMetadata, {"node_addresses": None}, "it is of type NoneType: None"),
        (InstanceMetadata, {"node_addresses": ["10.0.0.1"]}, "it is of type str: 10.0.0.1"),
        (InstanceMetadata, {"node_addresses": {"InternalIP": "10.0.0.1"}}, "it is of type dict: {'InternalIP': "),
        (InstanceMetadata, {"additional_labels": [("a", "b")]}, "must be a mapping of names to values"),
        (
            InstanceMetadata,
            {"additional_labels": {"a": 1}},
            "mapping of str to str; it is of type str: 'a': 1",
        ),
        (InstanceMetadata, {"taints": ["gpu:NoSchedule"]}, 'must be a sequence of Taint, such as [Taint("example.com'),
        (InstanceMetadata, {"taints": None}, "it is of type NoneType: None"),
        (InstanceMetadata, {"annotations": {"a": 1}}, "InstanceMetadata.annotations must be a mapping of str to str"),
        (Taint, {"key": None, "effect": "NoSchedule"}, "Taint.key must be a str; it is of type NoneType: None"),
        (InstanceMetadata, {"additional_labels": {1: "a"}}, "must be a mapping of str to str"),
        (Zone, {"region": None}, "Zone.region must be a str; it is of type NoneType: None"),
        (Zone, {"failure_domain": 1}, "Zone.failure_domain must be a str; it is of type int: 1"),
        (Route, {"name": 1}, "Route.name must be a str"),
        (Route, {"target_node": None}, "Route.target_node must be a str"),
        (Route, {"destination_cidr": None}, "Route.destination_cidr must be a str"),
        (Route, {"enable_node_addresses": "no"}, "enable_node_addresses must be True or False; it is of type str: no"),
        (Route, {"blackhole": None}, "Route.blackhole must be True or False"),
        (Route, {"owned": "no"}, "Route.owned must be True, False or None; it is of type str: no"),
        (Route, {"target_node_addresses": ("1.1.1.1",)}, "target_node_addresses must be a sequence of V1NodeAddress"),
        (CloudConfig, {"path": None}, "CloudConfig.path must be a str; it is of type NoneType: None"),
        (CloudConfig, {"data": "token"}, "CloudConfig.data must be bytes, not str"),
        (OwnedLoadBalancer, {"name": None}, "OwnedLoadBalancer.name must be a str"),
        (OwnedLoadBalancer, {"service_uid": None}, "OwnedLoadBalancer.service_uid must be a str"),
    ],
)
def test_the_error_names_field_wish_and_value(build: type[Any], fields: dict[str, Any], told: str) -> None:
    needed = {"Route": ("name", "target_node", "destination_cidr"), "OwnedLoadBalancer": ("name", "service")}
    given: dict[str, Any] = {**dict.fromkeys(needed.get(build.__name__, ()), "x"), **fields}
    if build is CloudConfig:
        given = {"path": "", "data": b"", **fields}
    with pytest.raises(TypeError) as caught:
        build(**given)
    assert told in str(caught.value)


def test_any_collection_of_addresses_becomes_a_tuple() -> None:
    for given in ([ADDRESS], (ADDRESS,), iter([ADDRESS]), (one for one in [ADDRESS])):
        assert InstanceMetadata(node_addresses=given).node_addresses == (ADDRESS,)


def test_a_long_value_is_cut() -> None:
    with pytest.raises(TypeError) as caught:
        Zone(region=["x" * 10_000])  # type: ignore[arg-type]
    assert len(str(caught.value)) < 200
