"""What is cached, and handed to providers, cannot be changed; else it is an ordinary object."""

from __future__ import annotations

import copy
import json
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes.client import ApiClient
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress
from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import Route
from cloudprovider.internal.readonly import ReadOnlyObject, ordinary, read_only
from controllers.runtime.cache import NODES, SERVICES
from controllers.runtime.cache.decoding import Parser
from controllers.runtime.cache.resources import WireObject
from tests.support.protobuf import message_of

pytestmark = pytest.mark.row("K28")

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n1",
        "uid": "u1",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"zone": "a"},
        "finalizers": ["example.com/held"],
    },
    "spec": {"providerID": "test://n1", "taints": [{"key": "k", "effect": "NoSchedule"}]},
    "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "capacity": {"cpu": "4"}},
}


def kind_of(value: object) -> type:
    return type(value)


def plain() -> V1Node:
    return V1Node.from_dict(NODE)  # type: ignore[return-value]  # never None for an object


MADE: dict[str, Callable[[], Any]] = {
    "json": lambda: Parser(NODES).parse(copy.deepcopy(NODE)),
    "protobuf": lambda: Parser(NODES).parse(WireObject(message_of("Node", copy.deepcopy(NODE)))),
    "made so": lambda: read_only(plain()),
}


@pytest.fixture(params=MADE)
def node(request: pytest.FixtureRequest) -> Any:
    return MADE[request.param]()


CHANGES: dict[str, tuple[Callable[[Any], object], str]] = {
    "assignment": (lambda node: setattr(node.spec, "provider_id", "x"), r"V1NodeSpec.provider_id = "),
    "of the whole": (lambda node: setattr(node, "spec", None), r"V1Node.spec = "),
    "deletion": (lambda node: delattr(node.metadata, "name"), r"del V1ObjectMeta.name"),
    "an item": (lambda node: node.metadata.labels.__setitem__("a", "b"), r"dict.__setitem__"),
    "item deleted": (lambda node: node.metadata.labels.__delitem__("zone"), r"dict.__delitem__"),
    "update": (lambda node: node.metadata.labels.update(a="b"), r"dict.update"),
    "or": (lambda node: node.metadata.labels.__ior__({"a": "b"}), r"dict.__ior__"),
    "pop": (lambda node: node.metadata.labels.pop("zone"), r"dict.pop"),
    "popitem": (lambda node: node.metadata.labels.popitem(), r"dict.popitem"),
    "setdefault": (lambda node: node.metadata.labels.setdefault("a", "b"), r"dict.setdefault"),
    "clear": (lambda node: node.status.capacity.clear(), r"dict.clear"),
    "append": (lambda node: node.spec.taints.append(1), r"list.append"),
    "extend": (lambda node: node.spec.taints.extend([1]), r"list.extend"),
    "insert": (lambda node: node.spec.taints.insert(0, 1), r"list.insert"),
    "element": (lambda node: node.metadata.finalizers.__setitem__(0, "x"), r"list.__setitem__"),
    "element deleted": (lambda node: node.metadata.finalizers.__delitem__(0), r"list.__delitem__"),
    "plus": (lambda node: node.spec.taints.__iadd__([1]), r"list.__iadd__"),
    "times": (lambda node: node.spec.taints.__imul__(2), r"list.__imul__"),
    "remove": (lambda node: node.metadata.finalizers.remove("example.com/held"), r"list.remove"),
    "list popped": (lambda node: node.spec.taints.pop(), r"list.pop"),
    "reverse": (lambda node: node.spec.taints.reverse(), r"list.reverse"),
    "sort": (lambda node: node.metadata.finalizers.sort(), r"list.sort"),
    "list cleared": (lambda node: node.status.addresses.clear(), r"list.clear"),
    "in a list": (lambda node: setattr(node.status.addresses[0], "address", "x"), r"V1NodeAddress.address = "),
}


def test_every_change_is_refused_with_its_name_and_the_fix(node: Any) -> None:
    wrong = []
    for change, (make, named) in CHANGES.items():
        try:
            make(node)
        except ReadOnlyObject as error:
            if not re.search(rf"{named}.*copy\.deepcopy", str(error)):
                wrong.append(f"{change}: {error}")
        else:
            wrong.append(f"{change}: was not refused")
    assert wrong == []
    assert node == MADE["made so"]()


def test_it_passes_for_an_ordinary_object(node: Any) -> None:
    passes: bool = isinstance(node, V1Node)
    assert passes
    assert V1Node.model_validate(node) == plain()
    assert V1Node(metadata=node.metadata, spec=node.spec, status=node.status).metadata == plain().metadata
    assert isinstance(node.metadata.labels, dict)
    assert isinstance(node.spec.taints, list)
    assert type(node).__name__ == "V1Node"
    assert repr(node) == repr(plain())


def test_it_equals_an_ordinary_one_both_ways(node: Any) -> None:
    other: Any = plain()
    assert node == other
    assert other == node
    other.spec.provider_id = "test://n2"
    assert node != other
    assert other != node
    assert node != node.metadata
    assert node != "n1"


def test_it_is_serialised_as_an_ordinary_one(node: Any) -> None:
    client: Any = ApiClient()
    other = plain()
    assert client.sanitize_for_serialization(node) == client.sanitize_for_serialization(other)
    assert node.to_dict() == other.to_dict()
    assert node.to_json() == other.to_json()
    assert node.to_str() == other.to_str()
    assert node.model_dump() == other.model_dump()
    assert json.dumps(node.metadata.labels) == '{"zone": "a"}'


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "in a list": lambda node: copy.deepcopy([node])[0],
    "model_copy": lambda node: node.model_copy(deep=True),
    "pickle": lambda node: pickle.loads(pickle.dumps(node)),
    "ordinary": ordinary,
}


@pytest.mark.parametrize("how", COPIES)
def test_a_deep_copy_is_an_ordinary_object(node: Any, how: str) -> None:
    made = COPIES[how](node)
    assert kind_of(made) is V1Node
    assert made == node
    made.metadata.labels["zone"] = "b"
    made.spec.taints.append(made.spec.taints[0])
    made.spec.taints[0].key = "other"
    made.status = None
    assert node == plain()
    assert made.model_fields_set == node.model_fields_set


def test_a_shallow_copy_may_replace_fields(node: Any) -> None:
    made = node.model_copy(update={"spec": None})
    assert kind_of(made) is V1Node
    assert made.spec is None
    assert made.metadata is node.metadata
    labels = copy.copy(node.metadata.labels)
    labels["more"] = "x"
    assert {**node.metadata.labels, "more": "x"} == labels
    assert type(copy.copy(node.metadata.finalizers)) is list
    assert pickle.loads(pickle.dumps(node.metadata.labels)) == node.metadata.labels


def test_services_are_read_only_too() -> None:
    raw = {"metadata": {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "1"}, "spec": {"ports": []}}
    for found in (
        Parser(SERVICES).parse(copy.deepcopy(raw)),
        Parser(SERVICES).parse(WireObject(message_of("Service", raw))),
    ):
        with pytest.raises(ReadOnlyObject, match=r"V1Service.spec = "):
            found.spec = None
        assert kind_of(copy.deepcopy(found)) is V1Service


def test_what_comes_from_no_cache_is_made_read_only() -> None:
    volume: Any = V1PersistentVolume.from_dict({"metadata": {"name": "a", "labels": {"x": "y"}}})
    made: Any = read_only(volume)
    with pytest.raises(ReadOnlyObject):
        made.metadata.labels["x"] = "z"
    volume.metadata.labels["x"] = "z"
    assert made.metadata.labels == {"x": "y"}
    assert read_only(made) is made, "nothing is copied twice"
    route = Route("r", "n", "10.0.0.0/24", True, (V1NodeAddress(type="InternalIP", address="10.0.0.1"),))
    handed = read_only(route)
    assert handed == route
    with pytest.raises(ReadOnlyObject):
        handed.target_node_addresses[0].address = "x"
    assert read_only("text") == "text"
