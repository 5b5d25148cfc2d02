"""The interfaces: every method of Go's, working defaults, value types that cannot be changed."""

from __future__ import annotations

import copy
import enum
import inspect
import pickle
import threading
from abc import ABC

import attrs
import pytest
from kubernetes.client.models import V1Node, V1NodeAddress, V1ObjectMeta, V1Service

import cloudprovider
from cloudprovider import (
    CallCancelled,
    CallDeadlineExceeded,
    CloudProviderError,
    Clusters,
    InformerUser,
    InstanceMetadata,
    InstanceNotFound,
    Instances,
    InstancesBatch,
    InstancesV2,
    Interface,
    LoadBalancer,
    LocalInstance,
    OwnedLoadBalancers,
    OwnedResources,
    PodCIDRs,
    PVLabeler,
    RetryError,
    Route,
    Routes,
    SSHKeys,
    Throttled,
    UnknownProvider,
    Zone,
    Zones,
)

# Go's cloud.go, in snake case, with what must be written (abstract) apart from what has a default.
GO: list[tuple[type[ABC], str, str]] = [
    (
        Interface,
        "provider_name",
        "initialize load_balancer instances instances_v2 instances_batch zones clusters routes pod_cidrs pv_labeler "
        "local_instance owned_resources has_cluster_id provider_id_prefixes same_provider_id scrub_dns",
    ),
    (Clusters, "list_clusters master", ""),
    (
        LoadBalancer,
        "get_load_balancer ensure_load_balancer update_load_balancer ensure_load_balancer_deleted",
        "get_load_balancer_name load_balancer_revision depends_on target_traits check_service",
    ),
    (OwnedLoadBalancers, "owned_load_balancers", "delete_owned_load_balancer"),
    (
        Instances,
        "node_addresses node_addresses_by_provider_id instance_id instance_type instance_type_by_provider_id "
        "add_ssh_key_to_all_instances current_node_name instance_exists_by_provider_id "
        "instance_shutdown_by_provider_id",
        "external_id",
    ),
    (InstancesV2, "instance_exists instance_shutdown instance_metadata", ""),
    (SSHKeys, "add_ssh_key_to_all_instances", ""),
    (InstancesBatch, "instances_metadata instances_state", "max_batch"),
    (Routes, "list_routes create_route delete_route", ""),
    (Zones, "get_zone get_zone_by_provider_id get_zone_by_node_name", ""),
    (PodCIDRs, "pod_cidrs", "max_batch"),
    (PVLabeler, "get_labels_for_volume", ""),
    (LocalInstance, "local_metadata", "local_node_name"),
    (OwnedResources, "list_owned_resources delete_owned_resource", ""),
]


@pytest.mark.parametrize(("interface", "abstract", "default"), GO, ids=lambda part: getattr(part, "__name__", ""))
def test_interfaces_have_gos_methods(interface: type[ABC], abstract: str, default: str) -> None:
    public = {name for name in vars(interface) if not name.startswith("_")}
    assert public == {*abstract.split(), *default.split()}
    assert inspect.isabstract(interface)
    assert getattr(interface, "__abstractmethods__") == set(abstract.split())  # noqa: B009 - unknown to the type checker


class Least(Interface):
    """As little as a provider can be."""

    def provider_name(self) -> str:
        return "least"


def test_a_provider_with_nothing_but_a_name_works() -> None:
    class Reader(Least):
        def set_informers(self, informers: cloudprovider.Listers) -> None: ...

    least = Least()
    accessors = ["load_balancer", "instances", "instances_v2", "instances_batch", "zones", "clusters", "routes"]
    assert [getattr(least, name)() for name in [*accessors, "pod_cidrs", "pv_labeler", "local_instance"]] == [None] * 10
    assert least.has_cluster_id() is True
    assert tuple(least.provider_id_prefixes()) == ("least://",)
    assert least.scrub_dns(["10.0.0.10"], ["a.local"]) == (["10.0.0.10"], ["a.local"])
    assert not isinstance(least, InformerUser)
    assert isinstance(Reader(), InformerUser), "one that takes informers is recognised"


def test_the_older_external_id_and_the_name_of_a_load_balancer_have_defaults() -> None:
    class Old(Instances):
        def instance_id(self, node_name: str) -> str:
            return f"i-{node_name}"

    class Partial(LoadBalancer):
        pass

    Old.__abstractmethods__ = Partial.__abstractmethods__ = frozenset()
    old: Instances = Old()  # type: ignore[abstract]  # the rest of the methods is of no concern here
    assert old.external_id("n1") == "i-n1"
    partial = Partial()  # type: ignore[abstract]  # the same
    service = V1Service(metadata=V1ObjectMeta(name="s", uid="0f3d-11"))
    assert partial.get_load_balancer_name("kubernetes", service) == "a0f3d11"


def test_max_batch_may_be_left_a_class_attribute_or_a_property() -> None:
    class Default(InstancesBatch):
        def instances_metadata(self, nodes: object) -> dict[str, InstanceMetadata]:
            return {}

        def instances_state(self, nodes: object) -> dict[str, cloudprovider.InstanceState]:
            return {}

    class Attribute(Default):
        max_batch = 7

    @attrs.define
    class Field(Default):
        max_batch: int = 8

    assert (Default().max_batch, Attribute().max_batch, Field().max_batch, Field(9).max_batch) == (100, 7, 8, 9)


def test_metadata_keeps_copies_and_cannot_be_changed() -> None:
    labels = {"a": "1"}
    addresses = [V1NodeAddress(type="InternalIP", address="10.0.0.1")]
    metadata = InstanceMetadata(provider_id="x://1", node_addresses=addresses, additional_labels=labels)
    labels["b"] = "2"
    addresses.clear()
    assert metadata.additional_labels == {"a": "1"}
    assert [address.address for address in metadata.node_addresses] == ["10.0.0.1"]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        metadata.zone = "b"  # type: ignore[misc]  # that is the point
    assert metadata == copy.deepcopy(metadata)
    assert metadata != attrs.evolve(metadata, zone="b")


@pytest.mark.parametrize("value", [Zone("a", "b"), Route("r", "n", "10.0.0.0/24"), InstanceMetadata()])
def test_values_are_frozen_and_survive_copying(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(value, attrs.fields(type(value))[0].name, "x")  # type: ignore[arg-type]  # every value is an attrs class
    assert InstanceMetadata().additional_labels is not InstanceMetadata().additional_labels


def test_states_stop_signals_and_objects_are_what_the_contract_says() -> None:
    assert issubclass(cloudprovider.InstanceState, enum.Enum)
    assert [state.name for state in cloudprovider.InstanceState] == ["RUNNING", "SHUTDOWN", "GONE"]
    stop: cloudprovider.StopSignal = threading.Event()
    assert stop.wait(0) is False
    assert inspect.get_annotations(InstancesV2.instance_exists)["node"] == "V1Node"
    assert V1Node.__module__ == "kubernetes.client.models.v1_node", "the official client's"


# Errors


def test_errors_carry_seconds_and_their_own_text() -> None:
    error = RetryError("still building", 2.5)
    assert (str(error), error.retry_after) == ("still building", 2.5)
    assert RetryError("at once", 0).retry_after == 0.0
    assert (Throttled().retry_after, str(Throttled())) == (None, "the cloud throttles this client")
    assert str(Throttled("slow down", 3)) == "slow down (retry after 3 s)"


@pytest.mark.parametrize(
    "error",
    [
        RetryError("x", 1),
        Throttled("x", 1),
        Throttled(),
        InstanceNotFound("gone"),
        CallCancelled("x"),
        CallDeadlineExceeded("x"),
    ],
)
def test_errors_survive_pickling(error: CloudProviderError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_pythons_not_implemented_error_is_no_answer_and_registry_errors_name_what_is_known() -> None:
    assert not issubclass(NotImplementedError, CloudProviderError)
    assert not issubclass(cloudprovider.NotImplementedByProvider, NotImplementedError)
    error = UnknownProvider("no such thing.", provider="x", known=["b", "a"])
    assert str(error) == "no such thing. Known providers: a, b."
    assert (error.provider, error.known) == ("x", ("a", "b"))
