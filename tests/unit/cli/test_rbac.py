"""The RBAC manifest is generated from the rules of the controllers, and the one in the repository
is what comes out."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml

from controllers.catalog import CATALOG
from controllers.cli.rbac import COMMON_RULES, Grant, chart_permissions, grants, main, manifest
from controllers.manager.permissions import common_rules, required_permissions
from controllers.registration.entry import ControllerEntry, Rule, enabled
from controllers.registration.options import LeaderElectionOptions
from controllers.runtime.base import ControllerBase
from tests.support.rights import RBAC

ALONE = common_rules(LeaderElectionOptions(leader_elect=False))
MANAGERS = {rule.resource for rule in ALONE}
"""What the manager itself asks for without leader election, whichever controllers run."""


def entry(name: str, *rules: Rule) -> ControllerEntry:
    return ControllerEntry(name=name, construct=lambda context: None, rules=rules)


def rule(resource: str, *verbs: str, **fields: Any) -> Rule:
    return Rule(resource=resource, verbs=verbs, consequence="something does not work", **fields)


def role(entries: list[ControllerEntry], kind: str, common: tuple[Rule, ...] = COMMON_RULES) -> dict[str, Any]:
    [found] = [one for one in yaml.safe_load_all(manifest(entries, None, common)) if one["kind"] == kind]
    assert isinstance(found, dict)
    return found


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> list[Any]:
    """The documents of this command line."""
    assert main(argv) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


@pytest.mark.row("X6")
def test_the_manifest_in_the_repository_is_generated() -> None:
    assert RBAC.read_text() == manifest(enabled(("*",), CATALOG)), (
        "python -m controllers.cli.rbac > examples/deploy/kustomize/base/rbac.yaml"
    )


@pytest.mark.row("X6")
def test_every_verb_of_the_manifest_is_one_that_a_controller_asks_for() -> None:
    granted = {
        (one["resources"][0], verb) for one in role(list(CATALOG), "ClusterRole")["rules"] for verb in one["verbs"]
    }
    asked = {(one.resource, verb) for controller in CATALOG for one in controller.rules for verb in one.verbs}
    assert granted == asked | {(one.resource, verb) for one in COMMON_RULES if not one.namespace for verb in one.verbs}
    assert not [verb for _, verb in granted if verb in ("*", "deletecollection", "escalate", "bind")]
    assert not [resource for resource, verb in granted if verb == "update"], "objects are patched, never sent whole"
    assert ("nodes", "patch") in granted


@pytest.mark.row("X6")
def test_controllers_that_are_left_out_get_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    documents = printed(capsys, "--controllers=cloud-node", "--leader-elect=false")
    rules = {(one["resources"][0]): one["verbs"] for document in documents for one in document.get("rules", ())}
    assert set(rules) == {"nodes", "nodes/status", "events"} | MANAGERS
    assert "delete" not in rules["nodes"]
    [events] = [one for one in documents if one["kind"] == "Role" and one["metadata"]["namespace"] == "default"]
    assert [one["resources"] for one in events["rules"]] == [["events"]]
    bindings = [one for one in documents if one["kind"] == "RoleBinding"]
    assert [one["metadata"]["namespace"] for one in bindings] == ["default", "kube-system"]
    binding = bindings[0]
    assert binding["roleRef"]["kind"] == "Role"
    assert binding["subjects"][0]["namespace"] == "kube-system"


@pytest.mark.row("X6")
def test_the_lease_is_granted_by_its_name_in_its_namespace_alone(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--leader-elect-resource-name=blue", "--leader-elect-resource-namespace=clouds"]
    documents = printed(capsys, "--controllers=cloud-node", *flags)
    roles = {one["metadata"]["namespace"]: one["rules"] for one in documents if one["kind"] == "Role"}
    group = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    assert roles["clouds"] == [
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        group | {"verbs": ["create"]},
        group | {"resourceNames": ["blue"], "verbs": ["get", "watch", "update"]},
    ]
    assert not [rule for name in roles.keys() - {"clouds"} for rule in roles[name] if rule["resources"] == ["leases"]]


def test_an_unknown_controller_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--controllers=nodes"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "no controller is called 'nodes'" in told.err


@pytest.mark.row("X6")
def test_objects_known_by_name_are_granted_by_name_but_their_creation() -> None:
    lease = rule(
        "leases", "create", "get", "update", group="coordination.k8s.io", namespace="kube-system", names=("ccm", "node")
    )
    found = role([entry("leader", lease)], "Role", ALONE)
    assert found["metadata"]["namespace"] == "kube-system"
    group = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    assert [one for one in found["rules"] if one["resources"] == ["leases"]] == [
        group | {"verbs": ["create"]},
        group | {"resourceNames": ["ccm", "node"], "verbs": ["get", "update"]},
    ]


@pytest.mark.row("X6")
def test_what_a_wider_rule_covers_is_not_said_twice() -> None:
    found = grants(
        [
            entry("a", rule("events", "create", "patch", namespace="default"), rule("nodes", "get", names=("n1",))),
            entry("b", rule("events", "create"), rule("nodes", "get", "list")),
        ],
        ALONE,
    )
    own = [one for one in found if one.resource not in MANAGERS]
    everywhere = Grant(namespace="", group="", resource="events", names=(), verbs=("create",), needed_by=("a", "b"))
    assert own == [
        everywhere,
        attrs.evolve(everywhere, resource="nodes", verbs=("get", "list")),
        attrs.evolve(everywhere, namespace="default", verbs=("patch",), needed_by=("a",)),
    ]


def test_the_second_lease_of_a_migration_is_granted_only_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config").write_text(
        "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: moving\n"
    )
    for flags, lease in (
        ([], ""),
        (["--enable-leader-migration"], "cloud-provider-extraction-migration"),
        (["--enable-leader-migration", f"--leader-migration-config={tmp_path / 'config'}"], "moving"),
    ):
        documents = printed(capsys, "--controllers=cloud-node", *flags)
        rules = [rule for one in documents for rule in one.get("rules", ())]
        named = {
            name: rule["verbs"]
            for rule in rules
            if rule["resources"] == ["leases"]
            for name in rule.get("resourceNames", ())
        }
        own = {"cloud-controller-manager": ["get", "watch", "update"]}
        assert named == own | ({lease: ["get", "watch", "update"]} if lease else {})
    assert main(["--enable-leader-migration", f"--leader-migration-config={tmp_path / 'none'}"]) == 2
    assert "--leader-migration-config: cannot be read" in capsys.readouterr().err


def by_account(documents: list[Any]) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """(account, namespace) to the verbs and resources that its roles grant there."""
    bound = {
        (one["roleRef"]["name"], one["metadata"].get("namespace", "")): one["subjects"][0]["name"]
        for one in documents
        if one["kind"].endswith("Binding")
    }
    return {
        (bound[one["metadata"]["name"], namespace], namespace): {
            (verb, resource) for rule in one["rules"] for verb in rule["verbs"] for resource in rule["resources"]
        }
        for one in documents
        if "rules" in one and ((namespace := one["metadata"].get("namespace", "")) is not None)
    }


@pytest.mark.row("X6")
def test_with_service_accounts_each_controller_has_its_own_rights_and_the_manager_only_reads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ("--use-service-account-credentials", "--controllers=*,-route", "--provider-accounts=acme")
    documents = printed(capsys, *flags)
    accounts = [one["metadata"]["name"] for one in documents if one["kind"] == "ServiceAccount"]
    assert accounts == ["cloud-controller-manager", "node-controller", "service-controller", "acme"]
    found = by_account(documents)
    assert found["node-controller", ""] == {
        ("get", "nodes"),
        ("patch", "nodes"),
        ("delete", "nodes"),
        ("patch", "nodes/status"),
    }
    assert found["service-controller", ""] == {
        ("patch", "services"),
        ("patch", "services/status"),
        ("create", "events"),
        ("patch", "events"),
    }
    own = found["cloud-controller-manager", ""]
    assert {verb for verb, resource in own if resource in ("nodes", "services")} == {"list", "watch"}
    assert not [resource for verb, resource in own if verb in ("patch", "update", "delete")]
    assert ("create", "serviceaccounts/token") in found["cloud-controller-manager", "kube-system"]
    [tokens] = [
        rule for one in documents for rule in one.get("rules", ()) if rule["resources"] == ["serviceaccounts/token"]
    ]
    assert tokens["resourceNames"] == ["node-controller", "service-controller", "acme"]


@pytest.mark.parametrize("controller", CATALOG, ids=lambda controller: controller.name)
def test_a_controllers_account_has_the_name_of_its_client(controller: ControllerEntry) -> None:
    [kind] = [
        one
        for one in vars(importlib.import_module(controller.module)).values()
        if isinstance(one, type) and issubclass(one, ControllerBase) and one is not ControllerBase
    ]
    assert controller.account == kind.CLIENT


def test_what_is_asked_at_the_start_names_the_account_of_each_rule() -> None:
    asked = required_permissions(CATALOG)
    assert {rule.account for rule in asked} == {
        "",
        "node-controller",
        "route-controller",
        "service-controller",
        "pvl-controller",
        "ssh-key-controller",
        "kubelet-serving-csr",
    }
    for rule in asked:
        assert rule.account == "" or not {"list", "watch"} & set(rule.verbs)
    [node] = [one for one in asked if one.account == "node-controller" and "delete" in one.verbs]
    assert "of the service account kube-system/node-controller: " in node.fix()


@pytest.mark.row("X6")
def test_the_charts_permissions_are_generated() -> None:
    file = RBAC.parents[2] / "chart" / "files" / "permissions.yaml"
    assert file.read_text() == chart_permissions(CATALOG), "run: make generate"


@pytest.mark.row("X6")
def test_a_verb_that_a_wider_rule_covers_is_marked_with_who_brings_that_rule() -> None:
    found = yaml.safe_load(
        chart_permissions(
            [entry("a", rule("events", "create", namespace="default")), entry("b", rule("events", "create"))]
        )
    )
    assert [one["name"] for one in found["controllers"]] == ["a", "b"]
    events = {one["namespace"]: one["verbs"] for one in found["rules"] if one["resource"] == "events"}
    assert events == {
        "": [{"verb": "create", "neededBy": ["b"]}],
        "default": [{"verb": "create", "neededBy": ["a"], "unless": ["b"]}],
        "kube-system": [
            {"verb": "create", "neededBy": ["the manager"], "unless": ["b"]},
            {"verb": "patch", "neededBy": ["the manager"]},
        ],
    }


@pytest.mark.row("X11")
def test_webhooks_take_one_secret_and_two_configurations_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert "secrets" not in str(printed(capsys))
    documents = printed(capsys, "--webhooks")
    rules = [
        found
        for one in documents
        for found in one.get("rules", ())
        if "webhook" in str(found) or "secrets" in str(found)
    ]
    assert all(found.get("resourceNames") == ["cloud-controller-manager-webhook"] for found in rules)
    verbs = {(resource, verb) for found in rules for resource in found["resources"] for verb in found["verbs"]}
    assert verbs == {
        ("secrets", "get"),
        ("secrets", "patch"),
        ("mutatingwebhookconfigurations", "get"),
        ("mutatingwebhookconfigurations", "patch"),
        ("validatingwebhookconfigurations", "get"),
        ("validatingwebhookconfigurations", "patch"),
    }
    [secret] = [one for one in documents if one["kind"] == "Secret"]
    assert "data" not in secret, "what is applied again must not take the certificate away"
    assert "stringData" not in secret
    [policy] = [one for one in documents if one["kind"] == "ValidatingAdmissionPolicy"]
    [binding] = [one for one in documents if one["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    assert "system:serviceaccount:kube-system:cloud-controller-manager" in str(policy["spec"]["matchConditions"])


def test_endpoint_slices_are_granted_only_to_a_provider_that_reads_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "endpointslices" not in capsys.readouterr().out
    for more in ([], ["--use-service-account-credentials"]):
        assert main(["--endpoint-slices", *more]) == 0
        found = [
            rule
            for document in yaml.safe_load_all(capsys.readouterr().out)
            if document["kind"] == "ClusterRole"
            for rule in document["rules"]
            if rule["resources"] == ["endpointslices"]
        ]
        # Once: the caches are the manager's, also where each controller has an account.
        assert found == [
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}
        ]
