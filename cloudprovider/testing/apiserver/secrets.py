"""Secrets: types and what each demands, stringData, what is immutable.

Follows pkg/apis/core/validation and pkg/registry/core/secret of k8s.io/kubernetes. The rules of keys are those of
config maps.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from cloudprovider.testing.apiserver.configmaps import IMMUTABLE_DATA, LARGEST, key_problems
from cloudprovider.testing.apiserver.errors import (
    JSON,
    Cause,
    forbidden_value,
    invalid_value,
    required,
    too_long,
)
from cloudprovider.testing.apiserver.kinds import NAME_FIELDS, FieldGetter, Strategy, read
from cloudprovider.testing.apiserver.metadata import IMMUTABLE
from cloudprovider.testing.apiserver.names import dns_subdomain

FIELDS: Final[Mapping[str, FieldGetter]] = {**NAME_FIELDS, "type": read("type")}
_ACCOUNT: Final = "kubernetes.io/service-account.name"
_JSON_KEYS: Final = {
    "kubernetes.io/dockercfg": ".dockercfg",
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
}
"""Types whose one key holds JSON."""
_PEM: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\r?\n.+-----END \1-----", re.DOTALL)
_REDACTED: Final = "<secret contents redacted>"
_TLS: Final = ("tls.crt", "tls.key")


class SecretStrategy(Strategy):
    """Rules of secrets: there is no status."""

    def default(self, obj: JSON) -> None:
        """The type; texts of stringData become data, and are never shown."""
        if not obj.get("type"):
            obj["type"] = "Opaque"
        texts = obj.pop("stringData", None)
        if texts:
            encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
            obj["data"] = {**(obj.get("data") or {}), **encoded}

    def prepare_update(self, obj: JSON, old: JSON) -> None:
        """Everything may change that `validate_update` lets."""

    def validate(self, obj: JSON) -> list[Cause]:
        """Keys, size, and the keys that the type demands."""
        data = obj.get("data") or {}
        causes = [invalid_value(f"data[{key}]", key, why) for key in data for why in key_problems(key)]
        if sum(len(base64.b64decode(value or "")) for value in data.values()) > LARGEST:
            causes.append(too_long("data", LARGEST))
        return causes + _demanded(obj["type"], data, obj["metadata"].get("annotations") or {})

    def validate_update(self, obj: JSON, old: JSON) -> list[Cause]:
        """The type stays, and an immutable one as a whole."""
        causes = [] if obj["type"] == old["type"] else [invalid_value("type", obj["type"], IMMUTABLE)]
        if old.get("immutable"):
            if not obj.get("immutable"):
                causes.append(forbidden_value("immutable", IMMUTABLE_DATA))
            if (obj.get("data") or {}) != (old.get("data") or {}):
                causes.append(forbidden_value("data", IMMUTABLE_DATA))
        return causes + self.validate(obj)

    def warnings(self, obj: JSON) -> list[str]:
        """A certificate or key for TLS that is no PEM. That the two do not belong together is not told here."""
        if obj["type"] != "kubernetes.io/tls":
            return []
        for key, shown in zip(_TLS, ("certificate", "key"), strict=True):
            if not _PEM.search(base64.b64decode(obj["data"][key])):
                return [f"tls: failed to find any PEM data in {shown} input"]
        return []

    def validate_name(self, name: str) -> list[str]:
        """A DNS subdomain."""
        return dns_subdomain(name)


def _demanded(kind: str, data: Mapping[str, Any], annotations: Mapping[str, str]) -> list[Cause]:
    if kind == "kubernetes.io/service-account-token":
        return [] if annotations.get(_ACCOUNT) else [required(f"metadata.annotations[{_ACCOUNT}]")]
    if kind in _JSON_KEYS:
        return _json(_JSON_KEYS[kind], data)
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        return [required("data[username]"), required("data[password]")]
    if kind == "kubernetes.io/ssh-auth" and not data.get("ssh-privatekey"):
        return [required("data[ssh-privatekey]")]
    if kind == "kubernetes.io/tls":
        return [required(f"data[{key}]") for key in _TLS if key not in data]
    return []


def _json(key: str, data: Mapping[str, Any]) -> list[Cause]:
    if key not in data:
        return [required(f"data[{key}]")]
    try:
        found = json.loads(base64.b64decode(data[key]))
    except ValueError as error:
        return [invalid_value(f"data[{key}]", _REDACTED, str(error))]
    if not isinstance(found, dict):
        return [invalid_value(f"data[{key}]", _REDACTED, "json: cannot unmarshal it into an object")]
    return []
