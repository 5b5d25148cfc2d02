"""ConfigMaps: reading, changing, keys, what is immutable."""

from __future__ import annotations

from typing import Any

from tests.integration.parity.model import Scenario, delete, get, merge, post

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
]
