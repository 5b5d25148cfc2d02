"""The provider's configuration: a YAML or JSON file given by --cloud-config, and the environment for what is not in it.

No secret belongs here: credentials come to boto3 in its own ways. All mistakes are reported at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import yaml
from attrs import fields, frozen

from cloudprovider import CloudConfig, CloudProviderError

ENVIRONMENT = {"cluster": "AWS_CLUSTER_NAME", "region": "AWS_REGION", "vpc": "AWS_VPC_ID"}
"""The variables that count where the file has no such setting."""


class ConfigMistakes(CloudProviderError):
    """Everything that is wrong with the configuration."""


@frozen(kw_only=True)
class Config:
    """The settings."""

    cluster: str = ""
    """The cluster's name in the tag kubernetes.io/cluster/<name>. Required, and the same as --cluster-name."""

    region: str = ""
    """Without it boto3's (AWS_DEFAULT_REGION, the shared file), else that of the machine that this runs on."""

    vpc: str = ""
    """The network of the load balancers; without it the one network that the cluster's tagged subnets lie in."""

    node_ip_families: tuple[str, ...] = ("ipv4",)
    """Which addresses nodes get: ipv4, ipv6, or both, the preferred one first."""

    manage_security_groups: bool = True
    """Whether the nodes' security group gets rules for the load balancers. False: you keep the node ports open."""


def read(source: CloudConfig | None, environ: Mapping[str, str] = os.environ) -> Config:
    """The checked configuration. Raises `ConfigMistakes`, which names all."""
    raw = _document(source)
    mistakes = [f"unknown setting {name}" for name in raw if name not in {field.name for field in fields(Config)}]
    values: dict[str, Any] = {}
    for name in ("cluster", "region", "vpc"):
        values[name] = raw.get(name, environ.get(ENVIRONMENT.get(name, ""), ""))
        if not isinstance(values[name], str):
            mistakes.append(f"{name} must be a text, not {values[name]!r}")
    if not values["cluster"]:
        mistakes.append(
            f"cluster is not set: give the cluster's name in AWS's tags, here or in {ENVIRONMENT['cluster']}"
        )
    values["node_ip_families"] = families = raw.get("node_ip_families", ["ipv4"])
    if not isinstance(families, list) or not families or set(map(str, families)) - {"ipv4", "ipv6"}:
        mistakes.append(f"node_ip_families must be a list of ipv4 and ipv6, not {families!r}")
    values["manage_security_groups"] = managed = raw.get("manage_security_groups", True)
    if not isinstance(managed, bool):
        mistakes.append(f"manage_security_groups must be true or false, not {managed!r}")
    if mistakes:
        raise ConfigMistakes("\n".join(mistakes))
    return Config(**{**values, "node_ip_families": tuple(values["node_ip_families"])})


def _document(source: CloudConfig | None) -> Mapping[str, Any]:
    if source is None or not source.data.strip():
        return {}
    try:
        document = yaml.safe_load(source.text())
    except yaml.MarkedYAMLError as exc:
        line = exc.problem_mark.line + 1 if exc.problem_mark is not None else 0
        raise ConfigMistakes(f"{source.path}: neither YAML nor JSON, at line {line}: {exc.problem}") from None
    if not isinstance(document, dict):
        raise ConfigMistakes(f"{source.path}: must hold settings, as in cluster: prod")
    return document
