"""ConfigMaps: reading, changing, keys, what is immutable."""

from __future__ import annotations

from typing import Any

from tests.integration.parity.model import Scenario, delete, get, merge, post, put

MAPS = "/api/v1/namespaces/kube-system/configmaps"


def config_map(name: str, **fields: Any) -> dict[str, Any]:
    """A ConfigMap to send."""
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, **fields}


SCENARIOS = [
    Scenario(
        "config maps: created, read, changed, removed",
        [
            post(MAPS, config_map("cp-a", data={"client-ca-file": "x", "b": ""}), expect=201),
            get(f"{MAPS}/cp-a", expect=200),
            merge(f"{MAPS}/cp-a", {"data": {"client-ca-file": "y", "b": None}}, expect=200),
            merge(f"{MAPS}/cp-a", {"binaryData": {"c": "AAE="}}, expect=200),
            get(MAPS, query={"fieldSelector": "metadata.name=cp-a"}, expect=200),
            delete(f"{MAPS}/cp-a", expect=200),
            get(f"{MAPS}/cp-a", expect=404),
        ],
        cleanup=[f"{MAPS}/cp-a"],
    ),
    Scenario(
        "config maps: keys, values and immutable ones",
        [
            post(MAPS, config_map("cp-b", data={"a b": ""}), expect=422),
            post(MAPS, config_map("cp-b", data={"..": ""}), compare="outcome", expect=422),
            post(MAPS, config_map("cp-b", data={"a": ""}, binaryData={"a": ""}), compare="outcome", expect=422),
            post(MAPS, config_map("cp-b", data={"a": 1}), compare="outcome", expect=400),
            post(MAPS, config_map("cp-b", data={"a": "x" * (1024 * 1024 + 1)}), compare="outcome", expect=422),
            post(MAPS, config_map("Cp_b"), expect=422),
            post(MAPS, config_map("cp-b", data={"a": "1"}, immutable=True), expect=201),
            merge(f"{MAPS}/cp-b", {"data": {"a": "2"}}, expect=422),
            merge(f"{MAPS}/cp-b", {"immutable": None}, expect=422),
            merge(f"{MAPS}/cp-b", {"metadata": {"labels": {"a": "b"}}}, expect=200),
        ],
        cleanup=[f"{MAPS}/cp-b"],
    ),
    Scenario(
        "config maps: binary data, and keys in detail",
        [
            post(MAPS, config_map("cp-c", binaryData={"b": "AAE=", "e": ""}, data={"t": "\u00e4"}), expect=201),
            merge(f"{MAPS}/cp-c", {"binaryData": {"b": "AAI="}}, expect=200),
            merge(f"{MAPS}/cp-c", {"binaryData": {"t": "AAI="}}, compare="outcome", expect=422),
            merge(f"{MAPS}/cp-c", {"binaryData": {"b": "?"}}, compare="outcome", expect=422),
            put(f"{MAPS}/cp-c", config_map("cp-c", immutable=True, binaryData={"b": "AAE="}), expect=200),
            merge(f"{MAPS}/cp-c", {"binaryData": {"b": "AAI="}}, expect=422),
            merge(f"{MAPS}/cp-c", {"data": {"t": "x"}, "immutable": False}, expect=422),
            put(f"{MAPS}/cp-none", config_map("cp-none"), expect=404),
            post(MAPS, config_map("cp-bad", data={"..": ""}), expect=422),
            post(MAPS, config_map("cp-bad", data={"..a": ""}), expect=422),
            post(MAPS, config_map("cp-bad", binaryData={"": ""}), expect=422),
            post(MAPS, config_map("cp-bad", data={"k" * 254: ""}), expect=422),
            post(MAPS, config_map("cp-bad", data={"a": "x" * 1024 * 1024}, binaryData={"b": "AA=="}), expect=422),
        ],
        [f"{MAPS}/cp-c", f"{MAPS}/cp-bad"],
    ),
]
