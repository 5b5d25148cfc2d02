"""EndpointSlices in the cache: what is kept of them, and that those of a Service are found by its
name whatever comes over the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.runtime.cache.resources import ENDPOINT_SLICES, MalformedObject, service_of
from controllers.runtime.cache.store import ADDED, DELETED, MODIFIED, Cache, Lister
from controllers.runtime.metrics import Metrics

SERVICE = "kubernetes.io/service-name"


def raw(name: str, version: int, service: str = "", uid: str = "", **fields: Any) -> dict[str, Any]:
    labels = {SERVICE: service} if service else {}
    metadata = {"name": name, "namespace": "shop", "uid": uid or f"u-{name}", "resourceVersion": str(version)}
    return {"metadata": {**metadata, "labels": labels}, "addressType": "IPv4", "endpoints": [], "ports": [], **fields}


def test_what_tells_which_pod_it_is_is_dropped() -> None:
    endpoint = {
        "addresses": ["10.1.0.1"],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "nodeName": "n1",
        "zone": "z1",
        "hostname": "web-0",
        "targetRef": {"kind": "Pod", "name": "web-0"},
        "hints": {"forZones": [{"name": "z1"}]},
    }
    found = ENDPOINT_SLICES.parse(raw("web-1", 1, "web", endpoints=[endpoint]))
    assert found.endpoints is not None
    [kept] = found.endpoints
    assert (kept.hostname, kept.target_ref, kept.hints) == (None, None, None)
    assert kept.conditions is not None
    assert (kept.node_name, kept.zone, kept.addresses, kept.conditions.ready) == ("n1", "z1", ["10.1.0.1"], True)
    assert service_of(found) == "shop/web"
    assert ENDPOINT_SLICES.parse(raw("web-1", 1, endpoints=None, ports=None)).endpoints is None


def test_a_malformed_one_costs_itself_alone() -> None:
    with pytest.raises(MalformedObject):
        ENDPOINT_SLICES.parse(raw("web-1", 1, endpoints=["odd"]))


STEP = st.tuples(
    st.sampled_from(["add", "delete", "list"]),
    st.sampled_from("abc"),
    st.sampled_from(["", "web", "api"]),
    st.sampled_from(["u1", "u2"]),
)


@given(steps=st.lists(STEP, max_size=20))
def test_the_index_is_what_a_look_at_all_would_find(steps: list[tuple[str, str, str, str]]) -> None:
    cache = Cache(ENDPOINT_SLICES, Metrics())
    lister: Lister[Any] = cache
    cache.replace([], "1")
    there: dict[str, dict[str, Any]] = {}
    for version, (act, name, service, uid) in enumerate(steps, 2):
        if act == "list":
            there = {name: raw(name, version, service, uid)}
            cache.replace([cache.read(_copy(one)) for one in there.values()], str(version))
        elif act == "add":
            event = MODIFIED if name in there else ADDED
            there[name] = raw(name, version, service, uid)
            cache.apply(event, cache.read(_copy(there[name])))
        elif name in there:
            gone = {**there.pop(name)}
            gone["metadata"] = {**gone["metadata"], "resourceVersion": str(version)}
            cache.apply(DELETED, cache.read(_copy(gone)))
        for key in ("shop/web", "shop/api", "shop/none", ""):
            expected = {id(one) for one in lister.list() if key and service_of(one) == key}
            assert {id(one) for one in lister.indexed(key)} == expected
    assert len(lister.list()) == len(there)


def _copy(one: Mapping[str, Any]) -> dict[str, Any]:
    return {**one, "metadata": {**one["metadata"], "labels": {**one["metadata"]["labels"]}}}
