"""ConfigMaps: validation, and what is immutable. Follows pkg/apis/core/validation of k8s.io/kubernetes."""

from __future__ import annotations

import base64
import re
from typing import Final

from cloudprovider.testing.apiserver.errors import JSON, Cause, forbidden_value, invalid_value, too_long
from cloudprovider.testing.apiserver.kinds import Strategy
from cloudprovider.testing.apiserver.names import dns_subdomain

_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
LARGEST: Final = 1024 * 1024
"""The most bytes that the values of a config map or secret may have together."""
_KEY_RULE: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
IMMUTABLE_DATA: Final = "field is immutable when `immutable` is set"


def key_problems(key: str) -> list[str]:
    """Why this is no key of a config map or secret: it must do as the name of a file."""
    found = [] if len(key.encode()) <= 253 else ["must be no more than 253 characters"]
    if not _KEY.fullmatch(key):
        found.append(_KEY_RULE)
    if key in (".", ".."):
        found.append(f"must not be '{key}'")
    elif key.startswith(".."):
        found.append("must not start with '..'")
    return found


class ConfigMapStrategy(Strategy):
    """Rules of config maps: there is no status."""

    def validate(self, obj: JSON) -> list[Cause]:
        """Keys, and the size of all values together."""
        causes: list[Cause] = []
        size = 0
        bags = {"data": obj.get("data") or {}, "binaryData": obj.get("binaryData") or {}}
        for bag, other in (("data", "binaryData"), ("binaryData", "data")):
            for key, value in bags[bag].items():
                causes += [invalid_value(f"{bag}[{key}]", key, why) for why in key_problems(key)]
                if key in bags[other]:
                    causes.append(invalid_value(f"{bag}[{key}]", key, f"duplicate of key present in {other}"))
                size += len(value.encode()) if bag == "data" else len(base64.b64decode(value))
        if size > LARGEST:
            causes.append(too_long("[]", LARGEST))
        return causes

    def validate_update(self, obj: JSON, old: JSON) -> list[Cause]:
        """An immutable one stays as it is."""
        causes: list[Cause] = []
        if old.get("immutable"):
            if not obj.get("immutable"):
                causes.append(forbidden_value("immutable", IMMUTABLE_DATA))
            causes += [
                forbidden_value(bag, IMMUTABLE_DATA)
                for bag in ("data", "binaryData")
                if (obj.get(bag) or {}) != (old.get(bag) or {})
            ]
        return [*causes, *self.validate(obj)]

    def validate_name(self, name: str) -> list[str]:
        """A DNS subdomain."""
        return dns_subdomain(name)
