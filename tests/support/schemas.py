"""JSON schemas for kubeconform, made from what the real API server publishes: no other source is
needed.

The server describes each group and version under /openapi/v3, custom resources included. For every
kind one file holds its schema with all that it refers to; fields that the server does not know are
errors, as with kubeconform's own ``-strict`` schemas.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cloudprovider.testing.waiting import eventually
from tests.support.api import API

_GROUPS = (
    "api/v1",
    "apis/apps/v1",
    "apis/admissionregistration.k8s.io/v1",
    "apis/networking.k8s.io/v1",
    "apis/policy/v1",
    "apis/rbac.authorization.k8s.io/v1",
    "apis/monitoring.coreos.com/v1",
)


def write_schemas(api: API, folder: Path) -> str:
    """Write a schema for every kind of the groups that manifests use; returns kubeconform's
    ``-schema-location``."""
    folder.mkdir(parents=True)
    for group in _GROUPS:
        # That of custom resources is published a moment after they are served.
        eventually(lambda group=group: group in api.get("/openapi/v3")["paths"], 30)  # type: ignore[misc]  # bound now
        components = api.get(f"/openapi/v3/{group}")["components"]["schemas"]
        definitions = {name: strict(schema) for name, schema in components.items()}
        for name, schema in components.items():
            for kind in schema.get("x-kubernetes-group-version-kind", ()):
                group_name = kind["group"] or kind["version"]  # what kubeconform takes for the group of "v1"
                path = folder / f"{group_name}-{kind['version']}-{kind['kind'].lower()}.json"
                document = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": definitions}}
                path.write_text(json.dumps(document))
    return f"{folder}/{{{{ .Group }}}}-{{{{ .ResourceAPIVersion }}}}-{{{{ .ResourceKind }}}}.json"


def strict(schema: Any) -> Any:
    """The same schema, in which objects have no other fields than those named. Pure."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(value) for name, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("x-kubernetes-preserve-unknown-fields") is not True:
        made.setdefault("additionalProperties", False)
    return made
