"""Admission webhooks: their configurations, whom they are asked about, what they are told, what their answers do."""

from __future__ import annotations

from typing import Any

from tests.integration.parity.model import Scenario, Step, asked, delete, get, merge, post, put
from tests.integration.parity.volumes import VOLUMES, volume
from tests.support.hooks import READY

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
    probe = {"matchLabels": {"parity": name, "probe": ""}}
    ready = hook(READY, rule("CREATE", resources="configmaps"), objectSelector=probe)
    return {
        "kind": f"{kind}WebhookConfiguration",
        "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {"name": name},
        "webhooks": [{**mine, **one} for one in [*hooks, ready]],
    }


def configured(name: str, *hooks: dict[str, Any], kind: str = "Mutating") -> list[Step]:
    """Create a configuration, and wait until the server goes by it."""
    probe = {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "probe", "labels": {"parity": name, "probe": ""}},
    }
    return [
        post(MUTATING if kind == "Mutating" else VALIDATING, configuration(name, *hooks, kind=kind), expect=201),
        post(MAPS, probe, query={"dryRun": "All"}, until=400),
    ]


def mine(name: str, config: str, **spec: Any) -> dict[str, Any]:
    """A volume that the webhooks of a configuration are asked about."""
    return {**volume(name, **spec), "metadata": {"name": name, "labels": {"parity": config}}}


def small(name: str, config: str, labels: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    """A ConfigMap that the webhooks of a configuration are asked about."""
    return {
        "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": name, "labels": {"parity": config, **(labels or {})}}, "data": {"a": "b"}, **fields,
    }  # fmt: skip


def outcomes(title: str, config: str, kind: str, *paths: str, **more: Any) -> Scenario:
    """One webhook after another answers a creation in its own way; `more` is for each of them."""
    hooks = [
        hook(
            path, rule("CREATE", resources="configmaps"), objectSelector={"matchLabels": {"path": label(path)}}, **more
        )
        for path in paths
    ]
    names = [f"{config}-{label(path)}" for path in paths]
    steps = [
        post(MAPS, small(name, config, {"path": label(path)}), compare="outcome" if path in VAGUE else "all")
        for name, path in zip(names, paths, strict=True)
    ]
    collection = MUTATING if kind == "Mutating" else VALIDATING
    return Scenario(
        f"webhooks: {title}, {kind.lower()}",
        [*configured(config, *hooks, kind=kind), *steps, asked()],
        [f"{collection}/{config}", *(f"{MAPS}/{name}" for name in names)],
    )


def label(path: str) -> str:
    """A webhook's path as a label."""
    return path.strip("/").replace("/", "-")


VAGUE = ("/text", "/bad-type", "/bad-patch")
"""Answers whose messages are those of Go's parsers."""
DENIALS = ("/deny", "/deny-reason", "/deny-bare", "/deny-success", "/deny-details")
FAILURES = ("/wrong-uid", "/absent", "/text", "/status/500", "/status/502", "/status/404", "/status/503")
PATCHES = ("/label-a", "/bad-label", "/bad-type", "/bad-patch", "/unknown-field", "/patch-only", "/type-only", "/warn")
OLD = ("/allow", "/label-a", "/wrong-uid", "/patch-only", "/type-only", "/absent", "/deny", "/warn")
NODES = "/api/v1/nodes"
SERVICES = "/api/v1/namespaces/default/services"
SPACES = "/api/v1/namespaces"
DEAD = {"url": "https://127.0.0.1:1/hook", "caBundle": "${ca}"}

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
    Scenario(
        "webhooks: what they are told about each write",
        [
            *configured(
                "wp-told", hook("/allow", rule(resources="persistentvolumes persistentvolumes/status configmaps"))
            ),
            *configured("wp-told", hook("/warn", rule(resources="*/*")), kind="Validating"),
            post(
                VOLUMES, mine("wp-t", "wp-told"), query={"fieldValidation": "Strict", "fieldManager": "me"}, expect=201
            ),
            asked(),
            merge(f"{VOLUMES}/wp-t", {"metadata": {"labels": {"x": "y"}}}, query={"fieldManager": "me"}, expect=200),
            asked(),
            merge(f"{VOLUMES}/wp-t/status", {"status": {"phase": "Bound"}}, expect=200),
            asked(),
            merge(f"{VOLUMES}/wp-t", {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}, query={"dryRun": "All"}),
            asked(),
            delete(f"{VOLUMES}/wp-t", {"propagationPolicy": "Background"}, expect=200),
            asked(),
            merge(f"{VOLUMES}/wp-t", {"metadata": {"finalizers": None}}, expect=200),
            asked(),
            post(
                MAPS,
                {**small("", "wp-told"), "metadata": {"generateName": "wp-gen-", "labels": {"parity": "wp-told"}}},
                save={"map": "metadata.name"},
                expect=201,
            ),
            asked(),
            put(f"{MAPS}/${{map}}", small("${map}", "wp-told"), expect=200),
            asked(),
            delete(MAPS, query={"labelSelector": "parity=wp-told"}, expect=200),
            asked(),
        ],
        [f"{MUTATING}/wp-told", f"{VALIDATING}/wp-told", f"{VOLUMES}/wp-t"],
    ),
    Scenario(
        "webhooks: order, and who is asked again",
        [
            *configured("wp-z", hook("/label-b", rule("CREATE", resources="nodes"))),
            *configured(
                "wp-a",
                hook(
                    "/allow",
                    rule("CREATE", resources="nodes"),
                    reinvocationPolicy="IfNeeded",
                    objectSelector={"matchLabels": {"parity": "wp-z"}},
                ),
                hook(
                    "/label-a",
                    rule("CREATE", resources="nodes"),
                    name="once",
                    objectSelector={"matchLabels": {"parity": "wp-z"}},
                ),
                hook("/deny", rule("CREATE", resources="nodes"), objectSelector={"matchLabels": {"a": "2"}}),
            ),
            post(NODES, {"kind": "Node", "metadata": {"name": "wp-n", "labels": {"parity": "wp-z"}}}, expect=201),
            asked(),
        ],
        [f"{MUTATING}/wp-a", f"{MUTATING}/wp-z", f"{NODES}/wp-n"],
    ),
    Scenario(
        "webhooks: whom their rules and selectors mean",
        [
            *configured(
                "wp-sel",
                hook("/label-a", rule(resources="configmaps/*"), name="subresources"),
                hook("/label-a", rule(resources="*", group="*"), name="all"),
                hook("/label-a", rule(resources="*", scope="Cluster"), name="cluster"),
                hook("/label-a", rule(resources="nodes configmaps", scope="Namespaced"), name="namespaced"),
                hook("/label-a", rule("UPDATE", "DELETE", resources="nodes configmaps"), name="later"),
                hook("/label-a", rule(resources="configmaps", group="apps"), name="group"),
                hook("/label-a", {**rule(resources="configmaps"), "apiVersions": ["v2"]}, name="version"),
                hook(
                    "/allow",
                    rule(resources="*"),
                    name="in-default",
                    namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "default"}},
                ),
                hook(
                    "/allow",
                    rule(resources="*"),
                    name="elsewhere",
                    namespaceSelector={
                        "matchExpressions": [
                            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]}
                        ]
                    },
                ),
                hook(
                    "/allow",
                    rule(resources="*"),
                    name="objects",
                    objectSelector={
                        "matchExpressions": [
                            {"key": "x", "operator": "Exists"},
                            {"key": "y", "operator": "DoesNotExist"},
                            {"key": "x", "operator": "In", "values": ["1", "2"]},
                        ]
                    },
                ),
            ),
            post(MAPS, small("wp-s", "wp-sel"), expect=201),
            asked(),
            merge(f"{MAPS}/wp-s", {"metadata": {"labels": {"x": "1"}}}, expect=200),
            asked(),
            merge(f"{MAPS}/wp-s", {"metadata": {"labels": {"x": None, "parity": None}}}, expect=200),
            asked(),
            post(
                NODES,
                {"kind": "Node", "metadata": {"name": "wp-s", "labels": {"parity": "wp-sel", "x": "1"}}},
                expect=201,
            ),
            asked(),
            post(
                SPACES, {"kind": "Namespace", "metadata": {"name": "wp-s", "labels": {"parity": "wp-sel"}}}, expect=201
            ),
            asked(),
        ],
        [f"{MUTATING}/wp-sel", f"{MAPS}/wp-s", f"{NODES}/wp-s", f"{SPACES}/wp-s"],
    ),
    outcomes("denials", "wp-deny", "Mutating", *DENIALS),
    outcomes("denials", "wp-deny", "Validating", *DENIALS),
    outcomes("answers that make no sense", "wp-fail", "Mutating", *FAILURES),
    outcomes("answers that make no sense", "wp-fail", "Validating", *FAILURES, "/label-a", "/type-only"),
    outcomes(
        "failures that may be",
        "wp-open",
        "Mutating",
        *FAILURES,
        "/patch-only",
        "/bad-patch",
        "/deny",
        failurePolicy="Ignore",
    ),
    outcomes("patches", "wp-patch", "Mutating", *PATCHES),
    outcomes("AdmissionReview v1beta1", "wp-beta", "Mutating", *OLD, admissionReviewVersions=["v2", "v1beta1", "v1"]),
    outcomes("AdmissionReview v1beta1", "wp-beta", "Validating", *OLD, admissionReviewVersions=["v1beta1"]),
    Scenario(
        "webhooks: that cannot be reached",
        [
            *configured(
                "wp-dead",
                hook(
                    "/dead",
                    rule("CREATE", resources="configmaps"),
                    clientConfig=DEAD,
                    objectSelector={"matchLabels": {"x": "dead"}},
                ),
                hook(
                    "/dead",
                    rule("CREATE", resources="configmaps"),
                    clientConfig=DEAD,
                    name="ignored",
                    failurePolicy="Ignore",
                    objectSelector={"matchLabels": {"x": "ignored"}},
                ),
                hook(
                    "/allow",
                    rule("CREATE", resources="configmaps"),
                    objectSelector={"matchLabels": {"x": "ca"}},
                    clientConfig={"url": "${hooks}/allow", "caBundle": "${other_ca}"},
                ),
                hook(
                    "/slow",
                    rule("CREATE", resources="configmaps"),
                    objectSelector={"matchLabels": {"x": "slow"}},
                    timeoutSeconds=1,
                ),
            ),
            post(MAPS, small("wp-d", "wp-dead", {"x": "dead"}), expect=500),
            post(MAPS, small("wp-d", "wp-dead", {"x": "ca"}), expect=500),
            post(MAPS, small("wp-d", "wp-dead", {"x": "slow"}), expect=500),
            get(f"{MAPS}/wp-d", expect=404),
            post(MAPS, small("wp-d", "wp-dead", {"x": "ignored"}), expect=201),
        ],
        [f"{MUTATING}/wp-dead", f"{MAPS}/wp-d"],
    ),
    Scenario(
        "webhooks: deletions and patches of what is not there",
        [
            *configured(
                "wp-del",
                hook("/label-a", rule("DELETE", resources="configmaps")),
                hook("/no-finalizer", rule("CREATE")),
            ),
            *configured("wp-del", hook("/deny", rule("DELETE", resources="services nodes")), kind="Validating"),
            post(MAPS, small("wp-del", "wp-del"), expect=201),
            delete(f"{MAPS}/wp-del", expect=500),
            delete(f"{MAPS}/wp-none", expect=404),
            post(VOLUMES, mine("wp-del", "wp-del"), expect=201),
            post(
                SERVICES,
                {
                    "kind": "Service",
                    "metadata": {"name": "wp-del", "labels": {"parity": "wp-del"}},
                    "spec": {"type": "NodePort", "ports": [{"port": 80}]},
                },
                expect=201,
            ),
            delete(f"{SERVICES}/wp-del", expect=409),
            delete(SERVICES, query={"labelSelector": "parity=wp-del"}, expect=409),
            get(f"{SERVICES}/wp-del", expect=200),
            delete(f"{MUTATING}/wp-del", expect=200),
            delete(f"{VALIDATING}/wp-del", expect=200),
        ],
        [f"{MUTATING}/wp-del", f"{VALIDATING}/wp-del", f"{MAPS}/wp-del", f"{VOLUMES}/wp-del", f"{SERVICES}/wp-del"],
    ),
]
