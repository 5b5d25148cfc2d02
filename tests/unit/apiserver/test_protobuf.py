"""Bodies in Protobuf mean what the same objects in JSON mean. The samples are Go's own, made by
`tests/integration/parity/samplegen`: every field of every kind set, and none."""

from __future__ import annotations

import base64
import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cloudprovider.testing.apiserver import StatusError, protobuf
from cloudprovider.testing.apiserver.schema import Context, struct
from tests.unit.apiserver.conftest import Client

SAMPLES = json.loads(Path(__file__).with_name("protobuf.json").read_text())
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def name_of(sample: dict[str, Any]) -> str:
    obj = sample["json"]
    return f"{obj['apiVersion']} {obj['kind']}"


def cleaned(obj: dict[str, Any]) -> dict[str, Any]:
    name = f"Events{obj['kind']}" if obj["apiVersion"].startswith("events") else obj["kind"]
    context = Context()
    found = struct(name).clean(obj, None, "", context)
    assert context.unknown == []
    return found


def part(number: int, data: bytes) -> bytes:
    """One field of a message; short ones only."""
    return bytes([number << 3 | 2, len(data)]) + data


def body(version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\0" + part(1, part(1, version.encode()) + part(2, kind.encode())) + part(2, raw)


def sample_of(kind: str) -> bytes:
    return base64.b64decode(next(one["protobuf"] for one in SAMPLES if one["json"]["kind"] == kind))


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_an_object_is_the_same_as_in_json(sample: dict[str, Any]) -> None:
    decoded = protobuf.decode(base64.b64decode(sample["protobuf"]))
    assert cleaned(decoded) == cleaned(sample["json"])


def test_every_numbered_field_of_a_full_sample_is_found() -> None:
    assert {name_of(one) for one in SAMPLES} >= {"v1 Node", "v1 PersistentVolume", "coordination.k8s.io/v1 Lease"}
    node = protobuf.decode(sample_of("Node"))
    assert node["metadata"].keys() >= {"name", "uid", "labels", "ownerReferences", "managedFields"}
    assert node["status"].keys() >= {"addresses", "capacity", "conditions", "nodeInfo", "images"}


def test_the_server_takes_them_and_answers_in_json(client: Client) -> None:
    named, spec = part(1, part(1, b"a")), part(1, b"me") + b"\x10\x0f"  # leaseDurationSeconds: 15
    lease = body("coordination.k8s.io/v1", "Lease", named + part(2, spec))
    made = client.ask("POST", LEASES, lease, protobuf.MEDIA_TYPE)
    assert (made.code, made.body["kind"]) == (201, "Lease")
    assert made.body["spec"] == {"holderIdentity": "me", "leaseDurationSeconds": 15}
    options = body("v1", "DeleteOptions", part(5, b"All"))
    assert client.ask("DELETE", f"{LEASES}/a", options, protobuf.MEDIA_TYPE).code == 200
    assert client.get(f"{LEASES}/a").code == 200  # it was a dry run
    assert client.ask("POST", "/api/v1/nodes", body("v1", "Pod", b""), protobuf.MEDIA_TYPE).code == 400


def test_what_is_no_protobuf_is_refused_whatever_it_is() -> None:
    whole = sample_of("Node")
    dice = random.Random(7)
    broken = [b"", b"{}", whole[:50], b"k8s\0\x0a\xff\xff\xff\xff\xff", b"k8s\0" + bytes(range(256))]
    for data in broken:
        with pytest.raises(StatusError, match="protobuf"):
            protobuf.decode(data)
    for _ in range(300):  # some of these are still readable; none may raise anything else
        at = dice.randrange(4, len(whole))
        with suppress(StatusError):
            protobuf.decode(whole[:at] + bytes([dice.randrange(256)]) + whole[at + dice.randrange(3) :])
