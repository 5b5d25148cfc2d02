"""The provider's configuration: the JSON file given by --cloud-config, or variables of the environment.

Checked as a whole before anything starts, so that one look at the error mends every mistake.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from cloudprovider import CloudConfig, CloudProviderError
from samplecloud_provider.cloud import Instance

_TYPES: dict[str, tuple[type, ...]] = {
    "region": (str,),
    "state_file": (str,),
    "vpc": (str,),
    "subnet": (str,),
    "load_balancer_range": (str,),
    "idle_timeout": (int, float),
    "build_seconds": (int, float),
    "instances": (list,),
}


class ConfigMistakes(CloudProviderError):
    """Everything that is wrong with the configuration, in one line."""


@frozen
class Config:
    """The settings; see README.md for an example."""

    region: str = "local"
    """The region of every instance."""

    state_file: str = ""
    """Where the cloud lives; empty keeps it in memory."""

    vpc: str = ""
    """The network that load balancers are built in."""

    subnet: str = ""
    """The part of it."""

    load_balancer_range: str = "198.51.100.0/24"
    """Where load balancers get their addresses from."""

    idle_timeout: float = 60.0
    """After how many seconds load balancers close a quiet connection, where the Service's annotation says nothing."""

    build_seconds: float = 0.0
    """How long the cloud takes to build a load balancer."""

    instances: tuple[Instance, ...] = ()
    """What a new cloud starts with."""


def read(source: CloudConfig | None) -> Config:
    """The checked configuration; the defaults without a file. Raises `ConfigMistakes`."""
    if source is None or not (source.path or source.data):  # nothing, or flags alone
        return Config()
    try:
        raw = json.loads(source.text())
    except json.JSONDecodeError as exc:
        # Without the cause, whose attributes hold the whole file.
        raise ConfigMistakes(f"{source.path}: no JSON, at line {exc.lineno}: {exc.msg}") from None
    if not isinstance(raw, dict):
        raise ConfigMistakes(f"{source.path}: must hold a JSON object")
    mistakes: list[str] = []
    for key, value in raw.items():
        if key not in _TYPES:
            mistakes.append(f"unknown setting {key!r} (known: {', '.join(_TYPES)})")
        elif not isinstance(value, _TYPES[key]) or isinstance(value, bool):
            mistakes.append(f"{key} has the wrong type")
    if not mistakes:
        mistakes += _values(raw)
    instances = _instances(raw.get("instances", []), raw.get("region", "local"), mistakes) if not mistakes else ()
    if mistakes:
        raise ConfigMistakes("; ".join(f"{source.path}: {mistake}" for mistake in mistakes))
    return Config(**{**raw, "instances": instances})


def from_environment(environ: Mapping[str, str]) -> Config:
    """VPC_ID and SUBNET_ID, which are required, and STATE_FILE. Raises `ConfigMistakes`, which names all that lack."""
    missing = [name for name in ("VPC_ID", "SUBNET_ID") if not environ.get(name, "").strip()]
    if missing:
        raise ConfigMistakes("; ".join(f"{name} is not set, or blank" for name in missing))
    return Config(
        vpc=environ["VPC_ID"].strip(), subnet=environ["SUBNET_ID"].strip(), state_file=environ.get("STATE_FILE", "")
    )


def _values(raw: Mapping[str, Any]) -> list[str]:
    mistakes = []
    if raw.get("build_seconds", 0) < 0:
        mistakes.append("build_seconds must not be negative")
    try:
        ipaddress.ip_network(raw.get("load_balancer_range", "198.51.100.0/24"))
    except ValueError:
        mistakes.append("load_balancer_range is no range of IP addresses")
    return mistakes


def _instances(entries: list[Any], region: str, mistakes: list[str]) -> tuple[Instance, ...]:
    instances: dict[str, Instance] = {}
    for index, entry in enumerate(entries):
        try:
            instance = Instance.from_json({"region": region, **entry})
        except (TypeError, ValueError, KeyError) as exc:
            mistakes.append(f"instances[{index}]: {type(exc).__name__} {exc}")
            continue
        if instance.id in instances:
            mistakes.append(f"instances[{index}]: the id is taken already")
        instances[instance.id] = instance
    return tuple(instances.values())
