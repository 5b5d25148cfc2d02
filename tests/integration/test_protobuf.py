"""What is read as Protobuf from the real kube-apiserver is what it sends as JSON: objects of all
five kinds, errors, a watch that has expired, bookmarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from cloudprovider.testing.waiting import eventually
from controllers.runtime.api import ClientBuilder, ClientSettings, Gone, NotFound, RestClient, ServerError, Unauthorized
from controllers.runtime.cache.decoding import Encoding
from controllers.runtime.cache.informer import Informer
from controllers.runtime.cache.listing import is_too_large
from controllers.runtime.cache.resources import (
    ENDPOINT_SLICES,
    LEASES,
    NODES,
    PERSISTENT_VOLUMES,
    SERVICES,
    Resource,
    WireObject,
)
from controllers.runtime.cache.store import Cache
from controllers.runtime.cache.watch import ListWatch
from controllers.runtime.clock import SYSTEM_CLOCK
from controllers.runtime.metrics import Metrics
from controllers.runtime.protobuf import ACCEPT, CONTENT_TYPE, JSON, is_protobuf
from tests.integration.conftest import REAL, Cluster
from tests.support.models import given_fields
from tests.support.nodes import big_node
from tests.support.protobuf import message_of, seal

pytestmark = pytest.mark.parametrize("api", [REAL], indirect=True)

WAIT = 30.0
ODD = 'ü \u2028 <&> \\ " \t 日本 \U0001f600 \u0001'
NODE = "/api/v1/nodes"
PV = "/api/v1/persistentvolumes"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


def objects() -> list[tuple[str, dict[str, Any]]]:
    rich = big_node("rich")
    rich["metadata"] |= {
        "annotations": {"example.com/odd": ODD, "example.com/empty": ""},
        "finalizers": ["example.com/one"],
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "name": "x",
                "uid": "u",
                "controller": False,
                "blockOwnerDeletion": True,
            }
        ],
    }
    rich["spec"] |= {
        "providerID": "x://1",
        "podCIDR": "10.0.0.0/24",
        "podCIDRs": ["10.0.0.0/24"],
        "unschedulable": True,
    }
    rich["spec"]["taints"].append({"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"})
    rich["status"]["conditions"].append({"type": "Odd", "status": "Unknown", "message": ODD})
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}}
    ports = [
        {"name": "a", "port": 80, "targetPort": "http", "appProtocol": "example.com/x"},
        {"name": "b", "port": 81, "targetPort": 8081, "protocol": "UDP"},
    ]
    service = {
        "type": "LoadBalancer", "ports": ports, "selector": {"a": ""}, "sessionAffinity": "ClientIP",
        "loadBalancerSourceRanges": ["10.0.0.0/8"], "externalTrafficPolicy": "Local",
        "loadBalancerClass": "example.com/a",
        "allocateLoadBalancerNodePorts": False, "publishNotReadyAddresses": True, "externalIPs": ["192.0.2.1"],
    }  # fmt: skip
    headless = {"clusterIP": "None", "selector": {"b": "c"}}
    claim = {"capacity": {"storage": "1.5Gi"}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}
    csi = {"driver": "d", "volumeHandle": "h", "volumeAttributes": {"x": ODD}, "readOnly": True}
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z1", "z2"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}
    iscsi = {
        "targetPortal": "10.0.0.1",
        "iqn": "iqn.2001-04.com.example:s",
        "lun": 0,
        "initiatorName": "iqn.2001-04.com.example:i",
    }
    lease = {
        "holderIdentity": "", "leaseDurationSeconds": 15, "leaseTransitions": 0,
        "acquireTime": "2026-01-02T03:04:05.000000Z", "renewTime": "2026-01-02T03:04:05.123456Z",
    }  # fmt: skip

    def made(kind: str, name: str, spec: dict[str, Any], version: str = "v1") -> dict[str, Any]:
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}

    def slice_of(name: str) -> dict[str, Any]:
        metadata = {"name": name, "labels": {"kubernetes.io/service-name": "rich"}}
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata,
            "addressType": "IPv4",
        }

    endpoint = {
        "addresses": ["10.1.0.1"], "conditions": {"ready": False, "serving": True, "terminating": True},
        "hostname": "web-0", "nodeName": "rich", "zone": "z1", "hints": {"forZones": [{"name": "z1"}]},
        "targetRef": {"kind": "Pod", "namespace": "default", "name": "web-0", "uid": "u"},
    }  # fmt: skip
    slice_ports = [{"name": "a", "port": 80, "protocol": "TCP", "appProtocol": "example.com/x"}, {"name": ""}]
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    services = "/api/v1/namespaces/default/services"
    external = {"type": "ExternalName", "externalName": "x.example"}
    block = {"csi": csi, "nodeAffinity": affinity, "volumeMode": "Block"}
    plain = {"iscsi": iscsi, "storageClassName": "", "mountOptions": ["ro"]}
    return [
        (NODE, rich),
        (NODE, bare),
        (services, made("Service", "rich", service)),
        (services, made("Service", "headless", headless)),
        (services, made("Service", "named", external)),
        (PV, made("PersistentVolume", "csi", claim | block)),
        (PV, made("PersistentVolume", "iscsi", claim | plain)),
        (PV, made("PersistentVolume", "nfs", claim | {"nfs": {"server": "s", "path": "/p"}})),
        (PV, made("PersistentVolume", "path", claim | {"hostPath": {"path": "/p", "type": ""}})),
        (leases, made("Lease", "rich", lease, "coordination.k8s.io/v1")),
        (leases, made("Lease", "bare", {}, "coordination.k8s.io/v1")),
        (SLICES, {**slice_of("rich"), "endpoints": [endpoint, {"addresses": ["10.1.0.2"]}], "ports": slice_ports}),
        (SLICES, {**slice_of("bare"), "endpoints": [], "ports": []}),
    ]  # fmt: skip


@pytest.fixture
def both(api: Cluster) -> Iterator[dict[str, RestClient]]:
    """A client for each encoding, with all rights."""
    kubeconfig = str(api.server.write_kubeconfig(api.kubeconfig.with_name("admin.kubeconfig")))
    builders = {
        wanted: ClientBuilder.from_options(kubeconfig=kubeconfig, settings=ClientSettings(content_type=wanted))
        for wanted in (CONTENT_TYPE, JSON)
    }
    yield {wanted: builder.rest("shared-informers") for wanted, builder in builders.items()}
    for builder in builders.values():
        builder.close()


def test_every_kind_is_the_same_by_list_and_by_watch(api: Cluster, both: dict[str, RestClient]) -> None:
    for resource in ALL:
        assert is_protobuf(both[CONTENT_TYPE].request("GET", resource.path(), accept=ACCEPT).headers["content-type"])
    watching = {(wanted, one): started(rest, one) for wanted, rest in both.items() for one in ALL}
    try:
        for path, raw in objects():
            api.create(path, raw)
        api.patch(f"{NODE}/rich", {"metadata": {"labels": {"changed": "yes"}}})
        invalid_text(api, both[JSON])
        listing = {(wanted, one): started(rest, one) for wanted, rest in both.items() for one in ALL}
        try:
            for one, at_least in zip(ALL, (3, 4, 4, 2, 2), strict=True):
                eventually(partial(agree, one, watching, listing), WAIT)
                found = [content(informers[wanted, one]) for informers in (watching, listing) for wanted in both]
                assert len(found[0]) >= at_least
                for other in found[1:]:
                    assert other == found[0]
        finally:
            for informer in listing.values():
                informer.stop()
    finally:
        for informer in watching.values():
            informer.stop()


ALL: tuple[Resource[Any], ...] = (NODES, SERVICES, PERSISTENT_VOLUMES, LEASES, ENDPOINT_SLICES)


def agree(one: Resource[Any], *informers: Mapping[tuple[str, Resource[Any]], Informer[Any]]) -> bool:
    """Whether all are at the same versions of that kind."""
    return len({version(each[wanted, one]) for each in informers for wanted in (CONTENT_TYPE, JSON)}) == 1


def started(rest: RestClient, resource: Resource[Any]) -> Informer[Any]:
    informer = Informer(rest, resource, metrics=Metrics())
    informer.start()
    eventually(informer.has_synced, WAIT)
    return informer


def version(informer: Informer[Any]) -> frozenset[tuple[str, str]]:
    assert not informer.health().quarantined
    return frozenset((str(one.metadata.name), str(one.metadata.resource_version)) for one in informer.lister.list())


def content(informer: Informer[Any]) -> dict[str, Any]:
    """All that is cached, by key, with which fields were given."""
    cached = {key: informer.lister.get(key) for key in informer.lister.keys()}  # noqa: SIM118 - no dict
    return {key: (one, given_fields(one)) for key, one in cached.items() if one is not None}


def invalid_text(api: Cluster, rest: RestClient) -> None:
    """A node whose condition's message is no UTF-8, which only a client in Protobuf can write."""
    api.create(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "invalid"}})
    status = {"conditions": [{"type": "Odd", "status": "True", "message": "MARK"}]}
    message = message_of("Node", {"metadata": {"name": "invalid"}, "status": status})
    body = seal("v1", "Node", message).replace(b"MARK", b"a\xe2\x82\xff")
    rest.request("PUT", f"{NODE}/invalid/status", body=body, content_type=CONTENT_TYPE)
    assert rest.get(f"{NODE}/invalid")["status"]["conditions"][0]["message"] == "a\ufffd\ufffd\ufffd"


def test_errors_mean_the_same(api: Cluster, both: dict[str, RestClient]) -> None:
    said: dict[str, list[str]] = {}
    for wanted, rest in both.items():
        accept = ACCEPT if wanted == CONTENT_TYPE else JSON
        with pytest.raises(NotFound) as missing:
            rest.request("GET", f"{NODE}/none", accept=accept)
        query = {"resourceVersion": "99999999", "resourceVersionMatch": "NotOlderThan"}
        with pytest.raises(ServerError) as future:
            rest.request("GET", NODE, query=query, accept=accept)
        assert is_too_large(future.value)
        assert future.value.retry_after == 1
        assert missing.value.details == {"name": "none", "kind": "nodes"}
        said[wanted] = [str(missing.value), str(future.value).partition(", current")[0]]
    assert said[CONTENT_TYPE] == said[JSON]
    kubeconfig = str(api.server.write_kubeconfig(api.kubeconfig.with_name("wrong.kubeconfig"), token="wrong"))
    with ClientBuilder.from_options(kubeconfig=kubeconfig) as builder, pytest.raises(Unauthorized) as refused:
        builder.rest("x").request("GET", NODE, accept=ACCEPT)
    assert refused.value.message.startswith("Unauthorized; sent was")


@pytest.mark.row("K2")
def test_a_watch_that_expired_is_told_in_either_encoding(api: Cluster, both: dict[str, RestClient]) -> None:
    """410, as an ERROR event in an answer of 200 or as the answer's status: both are Gone."""
    api.create(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    api.server.restart()  # its cache of changes begins anew, so that version 1 is too old
    told = []
    for wanted, rest in both.items():
        with pytest.raises(Gone) as gone:
            watch_from_one(rest, wanted)
        told.append((gone.value.status, gone.value.reason))
    assert told == [(410, "Expired")] * 2


def watch_from_one(rest: RestClient, wanted: str) -> None:
    watch = ListWatch(rest, Cache(NODES, Metrics()), metrics=Metrics(), clock=SYSTEM_CLOCK)
    query = {"watch": "true", "resourceVersion": "1", "timeoutSeconds": "5"}
    with closing(rest.stream(NODE, query=query, read_timeout=10, accept=Encoding(rest, NODES).accept)) as pieces:
        for piece in pieces:
            assert pieces.protobuf == is_protobuf(wanted)
            watch._decode(piece, pieces.protobuf)


def test_bookmarks_are_read(both: dict[str, RestClient]) -> None:
    """The one that ends a list in a watch (sendInitialEvents) comes at once, others each minute."""
    query = {
        "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "10",
        "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan",
    }  # fmt: skip
    rest = both[CONTENT_TYPE]
    encoding = Encoding(rest, NODES)
    with closing(rest.stream(NODE, query=query, read_timeout=10, accept=encoding.accept)) as pieces:
        events = (encoding.read_event(piece, pieces.protobuf) for piece in pieces)
        sent = next(sent for kind, sent in events if kind == "BOOKMARK")
    assert isinstance(sent, WireObject)
    assert int(sent.message.metadata.resourceVersion) > 0
    assert sent.message.metadata.annotations == {"k8s.io/initial-events-end": "true"}
