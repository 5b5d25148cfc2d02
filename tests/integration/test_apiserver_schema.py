"""The embedded API server's table of types says what the real server's OpenAPI documents say."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest

from tests.lab.envtest.server import RealAPIServer
from tests.support.api import API

pytestmark = pytest.mark.real

DOCUMENTS = (
    "/openapi/v3/api/v1",
    "/openapi/v3/apis/coordination.k8s.io/v1",
    "/openapi/v3/apis/certificates.k8s.io/v1",
    "/openapi/v3/apis/authentication.k8s.io/v1",
    "/openapi/v3/apis/authorization.k8s.io/v1",
)


@pytest.fixture(scope="module")
def documented(real_api_server: RealAPIServer) -> dict[str, list[dict[str, Any]]]:
    """The real server's schemas by the last part of their names."""
    api = API(real_api_server.url, real_api_server.token, real_api_server.ca_file)
    found: dict[str, list[dict[str, Any]]] = {}
    for path in DOCUMENTS:
        for name, schema in api.get(path)["components"]["schemas"].items():
            found.setdefault(name.rpartition(".")[2], []).append(schema)
    return found


def test_fields_patch_strategies_and_merge_keys_are_those_of_openapi(
    documented: dict[str, list[dict[str, Any]]],
) -> None:
    table = json.loads(files("cloudprovider.testing.apiserver.kinds").joinpath("schema.json").read_text())
    assert len(table) > 50
    unknown = [name for name in table if name not in documented]
    assert unknown == []
    for name, fields in table.items():
        ours = {field: _patch(text) for field, text in fields.items()}
        theirs = [
            {
                field: (details.get("x-kubernetes-patch-strategy", ""), details.get("x-kubernetes-patch-merge-key", ""))
                for field, details in schema.get("properties", {}).items()
            }
            for schema in documented[name]
        ]
        assert ours in theirs, name


def _patch(text: str) -> tuple[str, str]:
    options = dict(flag.partition("=")[::2] for flag in text.split(" ")[1:])
    return options.get("patch", ""), options.get("key", "")
