"""Kinds: their paths, how raw objects become typed ones, what is dropped on the way, and what they
weigh."""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import subprocess
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models.v1_node import V1Node

from cloudprovider.internal.readonly import SHARED
from controllers.runtime.cache import NODES, SERVICES, MalformedObject, is_newer, key_of, split_key, uid_of, version_of
from controllers.runtime.cache.decoding import Parser
from controllers.runtime.cache.resources import (
    EVENTS,
    LAST_APPLIED,
    LEASES,
    NAMESPACES,
    PERSISTENT_VOLUMES,
    Raw,
    trim_node,
)
from controllers.runtime.cache.store import Cache
from controllers.runtime.metrics import Metrics
from tests.support.anyjson import json_values
from tests.support.nodes import big_node as full_node
from tests.support.pages import ROOT
from tests.unit.runtime.cache.informers import raw_node


def big_node(i: int) -> Raw:
    """A Node with 50 images and all that trimming is about, as kubelets make them."""
    name = f"node-{i:05d}"
    raw = full_node(name)
    raw["metadata"] = raw_node(name, 1000 + i, **raw["metadata"]["labels"])["metadata"]
    raw["metadata"]["managedFields"] = [{"manager": "kubelet", "fieldsV1": {f"f:{k}": {} for k in range(40)}}]
    raw["metadata"]["annotations"] = {LAST_APPLIED: "{}", "node.alpha.kubernetes.io/ttl": "0"}
    raw["spec"] = {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "providerID": f"fake://{i}"}
    raw["status"]["nodeInfo"] |= dict.fromkeys(("machineID", "systemUUID", "bootID"), f"{i:032d}")
    raw["status"] |= {
        "addresses": [{"type": t, "address": f"10.1.0.{i % 256}"} for t in ("InternalIP", "ExternalIP", "Hostname")],
        "volumesInUse": ["csi^vol"], "volumesAttached": [{"name": "v", "devicePath": ""}], "config": {},
        "runtimeHandlers": [{"name": ""}], "features": {"supplementalGroupsPolicy": True},
    }  # fmt: skip
    return raw


class TestPaths:
    def test_every_shape(self) -> None:
        assert NODES.path() == "/api/v1/nodes"
        assert NODES.path(name="n1") == "/api/v1/nodes/n1"
        assert NODES.path(name="n1", subresource="status") == "/api/v1/nodes/n1/status"
        assert SERVICES.path() == "/api/v1/services"
        assert SERVICES.path("default") == "/api/v1/namespaces/default/services"
        assert SERVICES.path("default", "web", "status") == "/api/v1/namespaces/default/services/web/status"
        assert LEASES.path("kube-system", "ccm") == "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ccm"
        assert EVENTS.path("default") == "/api/v1/namespaces/default/events"
        assert PERSISTENT_VOLUMES.path(name="pv") == "/api/v1/persistentvolumes/pv"
        assert NAMESPACES.path(name="kube-system") == "/api/v1/namespaces/kube-system"

    def test_names_are_quoted_and_keys_have_paths(self) -> None:
        assert NODES.path(name="a/../b?c") == "/api/v1/nodes/a%2F..%2Fb%3Fc"
        assert NODES.key_path("n1", "status") == "/api/v1/nodes/n1/status"
        assert SERVICES.key_path("default/web") == "/api/v1/namespaces/default/services/web"
        assert (NODES.api_version, LEASES.api_version) == ("v1", "coordination.k8s.io/v1")

    def test_parts_that_do_not_fit_are_refused(self) -> None:
        with pytest.raises(ValueError, match="not namespaced"):
            NODES.path("default")
        with pytest.raises(ValueError, match="a namespace is needed"):
            SERVICES.path(name="web")
        with pytest.raises(ValueError, match="without a name"):
            NODES.path(subresource="status")


class TestKeys:
    NAMES = st.text(st.characters(exclude_characters="/"), min_size=1)

    @given(st.just("") | NAMES, NAMES)
    def test_there_and_back(self, namespace: str, name: str) -> None:
        key = f"{namespace}/{name}" if namespace else name
        assert split_key(key) == (namespace, name)

    @pytest.mark.parametrize("key", ["", "/", "a/", "/a", "a/b/c"])
    def test_what_is_no_key(self, key: str) -> None:
        with pytest.raises(ValueError, match="not a key"):
            split_key(key)

    def test_of_objects(self) -> None:
        assert key_of(NODES.parse(raw_node("n1", 1))) == "n1"
        meta = {"name": "web", "namespace": "default", "resourceVersion": "1"}
        assert key_of(SERVICES.parse({"metadata": meta, "spec": {}})) == "default/web"
        with pytest.raises(ValueError, match="no key"):
            key_of(V1Node())
        assert (uid_of(V1Node()), version_of(V1Node())) == ("", "")

    def test_versions(self) -> None:
        assert is_newer("10", "9") is True
        assert is_newer("9", "10") is False
        assert is_newer("x", "x") is False
        assert is_newer("10", "x9") is None
        assert is_newer("", "1") is None


class TestParsing:
    def test_kind_and_version_are_filled_in_as_list_items_lack_them_and_unknown_fields_are_no_fault(self) -> None:
        raw = raw_node("n1", 1)
        del raw["kind"], raw["apiVersion"]
        raw["status"]["fieldOfTheFuture"] = {"a": [1]}
        raw["future"] = 1
        node = NODES.parse(raw)
        assert (node.kind, node.api_version) == ("Node", "v1")
        assert node.metadata is not None

    @pytest.mark.parametrize(
        ("where", "value"),
        [
            ("metadata", None),
            ("metadata", []),
            ("metadata", {}),
            ("metadata", {"name": "n"}),
            ("metadata", {"name": 3}),
            ("metadata", {"resourceVersion": "1"}),
            ("metadata", {"name": "n", "resourceVersion": 1}),
            ("spec", "text"),
            ("spec", {"podCIDR": 7}),
            ("spec", {"taints": 7}),
            ("status", [1]),
            ("status", {"conditions": [3]}),
            ("status", {"addresses": [{"type": "InternalIP"}]}),
            ("status", {"nodeInfo": {"kernelVersion": None}}),
        ],
    )
    def test_whatever_is_wrong_is_a_malformed_object(self, where: str, value: Any) -> None:
        with pytest.raises(MalformedObject):
            NODES.parse({**raw_node("n1", 1), where: value})

    @given(json_values())
    def test_no_other_exception_ever(self, value: Any) -> None:
        for field in ("metadata", "spec", "status"):
            for raw in (value, {field: value}, {**raw_node("n1", 1), field: {"labels": value, "conditions": value}}):
                with contextlib.suppress(MalformedObject):
                    NODES.parse(raw)

    def test_a_namespaced_object_needs_its_namespace(self) -> None:
        with pytest.raises(MalformedObject, match="namespace"):
            SERVICES.parse({"metadata": {"name": "web", "resourceVersion": "1"}})

    def test_the_message_says_where_and_never_repeats_values(self) -> None:
        raw = raw_node("n1", 1)
        raw["spec"] = {"providerID": ["hunter2"]}
        with pytest.raises(MalformedObject) as caught:
            NODES.parse(raw)
        assert "providerID" in str(caught.value)
        assert "hunter2" not in str(caught.value)

    @pytest.mark.parametrize(
        ("resource", "extra"),
        [
            (SERVICES, {"spec": {"ports": [{"port": 80, "targetPort": "http"}, {"port": 81, "targetPort": 8081}]}}),
            (
                PERSISTENT_VOLUMES,
                {"spec": {"capacity": {"storage": "1Gi"}, "csi": {"driver": "d", "volumeHandle": "h"}}},
            ),
            (EVENTS, {"involvedObject": {"kind": "Node"}, "eventTime": None, "lastTimestamp": "2026-11-21T03:00:00Z"}),
            (LEASES, {"spec": {"renewTime": "2026-11-21T03:00:00.123456Z", "leaseDurationSeconds": 15}}),
            (NAMESPACES, {"status": {"phase": "Active"}}),
        ],
    )
    def test_every_kind_parses_what_servers_send(self, resource: Any, extra: Raw) -> None:
        meta = {"name": "a", "resourceVersion": "1", **({"namespace": "b"} if resource.namespaced else {})}
        parsed = resource.parse({"metadata": meta, **extra})
        assert parsed.kind == resource.kind


class TestTrimming:
    def test_what_goes_and_what_stays(self) -> None:
        raw = big_node(1)
        before = copy.deepcopy(raw)
        trim_node(raw)
        gone = {"images", "volumesInUse", "volumesAttached", "config", "runtimeHandlers", "features"}
        assert raw["status"] == {k: v for k, v in before["status"].items() if k not in gone}
        assert raw["spec"] == before["spec"]
        assert raw["metadata"].pop("annotations") == {"node.alpha.kubernetes.io/ttl": "0"}
        assert raw["metadata"] == {
            k: v for k, v in before["metadata"].items() if k not in ("managedFields", "annotations")
        }

    def test_empty_parts_are_no_trouble(self) -> None:
        nothing: list[Raw | None] = [{}, None]
        for empty in nothing:
            raw: Raw = {"metadata": {"name": "n", "annotations": empty}, "status": empty, "spec": empty}
            trim_node(raw)
            assert raw["status"] == empty


def test_parsing_gives_what_the_models_own_from_dict_gives() -> None:
    raw = big_node(1)
    raw["status"]["nodeInfo"]["of a later version"] = {"x": 1}
    raw["of a later version"] = [1]
    raw["spec"]["taints"] = [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05Z"}]
    trim_node(raw)
    expected = V1Node.from_dict(json.loads(json.dumps({**raw, "kind": "Node", "apiVersion": "v1"})))
    assert expected is not None
    assert NODES.parse(raw) == expected
    assert NODES.parse(raw).to_dict() == expected.to_dict()


class TestCompacting:
    def test_nothing_visible_changes(self) -> None:
        plain = NODES.parse(big_node(1))
        parser = Parser(NODES)
        parser.parse(big_node(2))
        compact = parser.parse(big_node(1))
        assert compact == plain
        assert compact.to_dict() == plain.to_dict()
        assert compact.model_dump() == plain.model_dump()
        assert compact.model_fields_set == plain.model_fields_set
        assert copy.deepcopy(compact) == plain

    def test_equal_strings_and_field_sets_are_shared(self) -> None:
        parser = Parser(NODES)
        first, second = (parser.parse(json.loads(json.dumps(big_node(i)))) for i in (1, 2))
        a, b = first.to_dict(), second.to_dict()
        for label, other in zip(a["metadata"]["labels"], b["metadata"]["labels"], strict=True):
            assert label is other
        reasons = [node["status"]["conditions"][0]["reason"] for node in (a, b)]
        assert reasons[0] is reasons[1]
        assert first.__pydantic_fields_set__ is second.__pydantic_fields_set__

    def test_the_table_of_strings_is_bounded(self) -> None:
        parser = Parser(NODES)
        for i in range(400):
            parser.parse(raw_node(f"n{i}", i + 1, **{f"label-{i}-{k}": "x" for k in range(50)}))
        assert len(parser._strings) < 8192 + 200


def weigh(way: str) -> float:
    """Bytes of a cached node, by the way that it comes. For a new process."""
    texts = [json.dumps(big_node(i)) for i in range(600)]  # the first 30 weigh more
    cache = Cache(NODES, Metrics())
    cache.replace([cache.read(json.loads(texts[0]))], "1")
    gc.collect()
    tracemalloc.start()
    if way == "list":
        cache.replace([cache.read(json.loads(text)) for text in texts], "9999")
    else:
        for text in texts[1:]:
            cache.apply("ADDED", cache.read(json.loads(text)))
    gc.collect()
    assert len(cache) == 600
    return tracemalloc.get_traced_memory()[0] / len(texts)


@pytest.mark.parametrize("way", ["list", "event"])
def test_a_node_of_twelve_kilobytes_weighs_five_in_the_cache(way: str) -> None:
    """In a process that has made no models before: see `cloudprovider/internal/readonly.py`."""
    code = f"from {__name__} import weigh; print(weigh({way!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    each = float(done.stdout)
    most = 5_500 if SHARED else 7_500
    assert each < most, f"{each:.0f} bytes"
