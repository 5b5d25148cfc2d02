"""Webhook configurations: defaults, generation, what is refused."""

from __future__ import annotations

from typing import Any

from tests.integration.parity.model import Scenario, delete, get, json_patch, merge, post, put, strategic
from tests.integration.parity.webhooks import MUTATING, VALIDATING, rule

URL = {"url": "https://127.0.0.1:1/x"}


def config(name: str, *hooks: dict[str, Any], kind: str = "Mutating") -> dict[str, Any]:
    """A configuration as it is, which concerns nothing that other rows write."""
    return {
        "kind": f"{kind}WebhookConfiguration",
        "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {"name": name},
        "webhooks": list(hooks),
    }


def hook(**fields: Any) -> dict[str, Any]:
    """A webhook that needs nothing more."""
    return {
        "name": "a.b.c", "clientConfig": URL, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [rule(resources="nothings")], **fields,
    }  # fmt: skip


def without(field: str) -> dict[str, Any]:
    """A webhook that lacks a field."""
    return {key: value for key, value in hook().items() if key != field}


def service(**fields: Any) -> dict[str, Any]:
    """A webhook behind a Service."""
    return hook(clientConfig={"service": {"namespace": "default", "name": "s", **fields}})


def refused(*hooks: dict[str, Any], **more: Any) -> Any:
    """A configuration that must not be created."""
    return post(MUTATING, config("cw-bad", *hooks), expect=422, **more)


def bad_rule(**fields: Any) -> dict[str, Any]:
    """A webhook with one odd rule."""
    return hook(rules=[{**rule(resources="nothings"), **fields}])


SCENARIOS = [
    Scenario(
        "webhook configurations: defaults, generation, order of fields",
        [
            post(MUTATING, config("cw-a", hook(), {**service(path="/x/y"), "name": "d.e.f"}), expect=201),
            post(MUTATING, config("cw-a", hook()), expect=409),
            post(VALIDATING, config("cw-a", hook(rules=[]), kind="Validating"), expect=201),
            post(VALIDATING, config("cw-none", kind="Validating"), expect=201),
            get(f"{MUTATING}/cw-a", expect=200),
            get(MUTATING, query={"fieldSelector": "metadata.name=cw-a"}, expect=200),
            merge(f"{MUTATING}/cw-a", {"metadata": {"labels": {"a": "b"}}}, expect=200),
            json_patch(
                f"{MUTATING}/cw-a",
                [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "YWJj"}],
                expect=200,
            ),
            strategic(f"{MUTATING}/cw-a", {"webhooks": [{"name": "a.b.c", "timeoutSeconds": 3}]}, expect=200),
            put(f"{MUTATING}/cw-a", config("cw-a", hook()), expect=422),
            put(f"{MUTATING}/cw-none", config("cw-none", hook()), expect=404),
            merge(f"{MUTATING}/cw-a", {"webhooks": None}, expect=200),
            post(MUTATING, config("cw-dry", hook()), query={"dryRun": "All"}, expect=201),
            delete(f"{VALIDATING}/cw-a", expect=200),
            delete(VALIDATING, query={"fieldSelector": "metadata.name=cw-none"}, expect=200),
        ],
        [f"{MUTATING}/cw-a", f"{VALIDATING}/cw-a", f"{VALIDATING}/cw-none"],
    ),
    Scenario(
        "webhook configurations that are refused",
        [
            post(MUTATING, config("CW_bad", hook()), expect=422),
            refused(hook(name="")),
            refused(hook(name="a.b")),
            refused(hook(name="A.b.c")),
            refused(hook(), hook()),
            refused(without("sideEffects")),
            refused(hook(sideEffects="Some")),
            refused(hook(sideEffects="Odd")),
            refused(without("admissionReviewVersions")),
            refused(hook(admissionReviewVersions=["v2", "V3", "v2"])),
            refused(hook(failurePolicy="Odd", matchPolicy="Odd", reinvocationPolicy="Odd", timeoutSeconds=31)),
            refused(hook(timeoutSeconds=0)),
            refused(without("clientConfig")),
            refused(hook(clientConfig={**URL, "service": {"namespace": "a", "name": "b"}})),
            refused(hook(clientConfig={"url": "http://u:p@/x?y=z#f"})),
            refused(hook(clientConfig={"url": "https://"})),
            refused(service(name="")),
            refused(service(namespace="", port=70000)),
            refused(service(path="x//Y/")),
            refused(service(path="//")),
            refused(hook(namespaceSelector={"matchLabels": {"a b": "c d"}})),
            refused(
                hook(
                    objectSelector={
                        "matchExpressions": [
                            {"key": "a", "operator": "In"},
                            {"key": "a", "operator": "Exists", "values": ["b"]},
                            {"key": "/", "operator": "Odd"},
                            {"key": "a", "operator": "NotIn", "values": ["b c"]},
                        ]
                    }
                )
            ),
            refused(bad_rule(operations=[])),
            refused(bad_rule(operations=["*", "CREATE", "READ"])),
            refused(bad_rule(apiGroups=[], apiVersions=[], resources=[], scope="Odd")),
            refused(bad_rule(apiGroups=["*", ""], apiVersions=["*", ""])),
            refused(bad_rule(resources=["a/*", "a/b", "*/b", "c/b", ""])),
            refused(bad_rule(resources=["*/*", "a"])),
            refused(bad_rule(resources=["*", "a"])),
            post(
                VALIDATING,
                config("cw-bad", hook(reinvocationPolicy="Never"), kind="Validating"),
                query={"fieldValidation": "Strict"},
                compare="outcome",
                expect=400,
            ),
            post(VALIDATING, config("cw-bad", hook()), compare="outcome", expect=400),
        ],
        [f"{MUTATING}/cw-bad", f"{VALIDATING}/cw-bad"],
    ),
]
