"""Wrong answers one by one: exactly what each kind of junk looks like, and that none is mistaken for another."""

from __future__ import annotations

import random
from typing import Any

import attrs
import pytest
from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import InstanceMetadata, InstanceNotFound, InstanceState, Zone
from cloudprovider.helpers import address_problems, label_problems, label_value_problems, provider_id_problems
from cloudprovider.testing.fake import Junk, Wrong
from cloudprovider.testing.fake.junk import fitting_junk, spoil, spoil_one
from cloudprovider.testing.fake.methods import METHODS

STATUS = V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip="192.0.2.1")])
BAD_STATUS = V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip="not-an-address")])
TRUE = InstanceMetadata("acme://i-1", "big", (V1NodeAddress(type="InternalIP", address="10.0.0.1"),), "z", "r")


def spoilt(method: str, junk: Junk, truth: Any = None) -> Any:
    fault = Wrong(answer="junk", junk=junk)
    return spoil(fault, METHODS[method], [("a", "fake://i-a")], truth, [], random.Random(1))


@pytest.mark.parametrize(
    ("method", "junk", "expected"),
    [
        ("instance_exists", Junk.NONE, None),
        ("instance_exists", Junk.TYPE, "junk"),
        ("instance_shutdown", Junk.TYPE, "junk"),
        ("instance_metadata", Junk.TYPE, "junk"),
        ("instance_metadata", Junk.EMPTY, InstanceMetadata()),
        ("node_addresses", Junk.EMPTY, ()),
        ("instance_type", Junk.TYPE, 42),
        ("instance_type", Junk.EMPTY, ""),
        ("instance_type", Junk.PLACES, "not a label value!"),
        ("master", Junk.TYPE, 42),
        ("master", Junk.EMPTY, ""),
        ("get_zone", Junk.EMPTY, Zone()),
        ("get_zone", Junk.TYPE, "junk"),
        ("get_load_balancer", Junk.EMPTY, V1LoadBalancerStatus(ingress=[])),
        ("ensure_load_balancer", Junk.NONE, None),
        ("ensure_load_balancer", Junk.ADDRESSES, BAD_STATUS),
        ("list_routes", Junk.NONE, None),
        ("list_clusters", Junk.TYPE, "junk"),
        ("get_labels_for_volume", Junk.NONE, None),
    ],
)  # fmt: skip
def test_plain_junk(method: str, junk: Junk, expected: object) -> None:
    assert spoilt(method, junk, STATUS) == expected
    assert type(spoilt(method, junk, STATUS)) is type(expected)


def test_junk_is_what_the_helpers_call_bad() -> None:
    for method in ("instance_metadata", "node_addresses"):
        answer = spoilt(method, Junk.ADDRESSES, TRUE)
        addresses = answer.node_addresses if isinstance(answer, InstanceMetadata) else answer
        assert len(addresses) == 3
        assert all(address_problems(address) for address in addresses)
    zone = spoilt("get_zone", Junk.PLACES)
    assert label_value_problems(zone.failure_domain)
    assert label_value_problems(zone.region)
    labels = spoilt("get_labels_for_volume", Junk.LABELS)
    assert sum(bool(label_problems({key: value})) for key, value in labels.items()) == 2
    none, bad = spoilt("list_routes", Junk.PLACES)
    assert none is None
    assert bad.destination_cidr == "not-a-cidr"


def test_metadata_is_spoilt_in_one_place() -> None:
    def differing(junk: Junk) -> set[str]:
        answer = spoilt("instance_metadata", junk, TRUE)
        return {name for name in attrs.asdict(TRUE, recurse=False) if getattr(answer, name) != getattr(TRUE, name)}

    assert differing(Junk.ADDRESSES) == {"node_addresses"}
    assert differing(Junk.PROVIDER_ID) == differing(Junk.OTHER_PROVIDER_ID) == {"provider_id"}
    assert differing(Junk.LABELS) == {"additional_labels"}
    assert differing(Junk.PLACES) == {"zone", "region", "instance_type"}
    places = spoilt("instance_metadata", Junk.PLACES, TRUE)
    assert all(label_value_problems(value) for value in (places.zone, places.region, places.instance_type))
    assert provider_id_problems(spoilt("instance_metadata", Junk.PROVIDER_ID, TRUE).provider_id)
    assert spoilt("instance_metadata", Junk.OTHER_PROVIDER_ID, TRUE).provider_id == "acme://i-somebody-else"


@pytest.mark.parametrize("method", ["instances_metadata", "instances_state"])
def test_a_batchs_values(method: str) -> None:
    def one(junk: Junk | None, truth: Any) -> Any:
        return spoil_one(Wrong(answer="junk", junk=junk), METHODS[method], "a", truth, random.Random(1))

    truth = TRUE if method == "instances_metadata" else InstanceState.RUNNING
    assert one(Junk.NONE, truth) is None
    assert one(Junk.TYPE, truth) == "junk"
    assert isinstance(one(Junk.ERRORS, truth), ValueError)
    if method == "instances_metadata":
        assert one(Junk.EMPTY, InstanceNotFound("a")) == InstanceMetadata()
        assert one(Junk.PROVIDER_ID, InstanceNotFound("a")).provider_id == "no provider id"


def test_what_fits() -> None:
    assert fitting_junk(METHODS["create_route"]) == ()
    assert fitting_junk(METHODS["instance_exists"]) == (Junk.NONE, Junk.TYPE, Junk.MUTATED)
    assert Junk.UNASKED in fitting_junk(METHODS["instances_state"])
    assert Junk.NONE not in fitting_junk(METHODS["get_load_balancer"]), "there it is an honest answer"
