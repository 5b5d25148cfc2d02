"""Admission webhooks: their configurations, whom they are asked about, what they are told, what their answers do."""

from __future__ import annotations

from typing import Any

from tests.integration.parity.hooks import READY
from tests.integration.parity.model import (
    Scenario,
    Step,
    asked,
    merge,
    post,
)
from tests.integration.parity.volumes import VOLUMES, volume

MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MAPS = "/api/v1/namespaces/default/configmaps"


def rule(*operations: str, resources: str = "persistentvolumes", group: str = "", **more: Any) -> dict[str, Any]:
    """A rule for these operations."""
    return {
        "operations": list(operations or ["*"]), "apiGroups": [group], "apiVersions": ["*"],
        "resources": resources.split(), **more,
    }  # fmt: skip


def hook(path: str, *rules: dict[str, Any], name: str = "", **more: Any) -> dict[str, Any]:
    """A webhook at this path of the table's server."""
    named = name or path.strip("/").replace("/", "-")
    return {
        "name": f"{named}.parity.example.org",
        "clientConfig": {"url": "${hooks}" + path, "caBundle": "${ca}"},
        "rules": list(rules or [rule()]),
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }


def configuration(name: str, *hooks: dict[str, Any], kind: str = "Mutating") -> dict[str, Any]:
    """Webhooks for objects with the label parity=NAME."""
    mine = {"objectSelector": {"matchLabels": {"parity": name}}}
    ready = hook(READY, rule("CREATE", resources="configmaps"))
    return {
        "kind": f"{kind}WebhookConfiguration",
        "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {"name": name},
        "webhooks": [{**mine, **one} for one in [*hooks, ready]],
    }


def configured(name: str, *hooks: dict[str, Any], kind: str = "Mutating") -> list[Step]:
    """Create a configuration, and wait until the server goes by it."""
    probe = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "probe", "labels": {"parity": name}}}
    return [
        post(MUTATING if kind == "Mutating" else VALIDATING, configuration(name, *hooks, kind=kind), expect=201),
        post(MAPS, probe, query={"dryRun": "All"}, until=400),
    ]


def mine(name: str, config: str, **spec: Any) -> dict[str, Any]:
    """A volume that the webhooks of a configuration are asked about."""
    return {**volume(name, **spec), "metadata": {"name": name, "labels": {"parity": config}}}


SCENARIOS = [
    Scenario(
        "webhooks: a volume gets labels and affinity when it is created",
        [
            *configured("wp-zone", hook("/zone", rule("CREATE"))),
            post(VOLUMES, mine("wp-pv", "wp-zone"), expect=201),
            asked(),
            merge(f"{VOLUMES}/wp-pv", {"metadata": {"annotations": {"a": "b"}}}, expect=200),
            post(VOLUMES, volume("wp-other"), expect=201),
            asked(),
        ],
        [f"{MUTATING}/wp-zone", f"{VOLUMES}/wp-pv", f"{VOLUMES}/wp-other"],
    ),
]
