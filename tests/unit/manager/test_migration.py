"""Leader migration's configuration: strictly decoded, every mistake at once; and what becomes of
each controller."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controllers.catalog import CATALOG
from controllers.manager.migration import ANY, DEFAULT, LeaderMigration, MigrationProblems, parse, read, share

GOOD = """
apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: moving
controllerLeaders:
- {name: route, component: kube-controller-manager}
- {name: service-lb-controller, component: cloud-controller-manager}
- {name: node-ipam, component: "*"}
"""


def wrong(text: str) -> tuple[str, ...]:
    with pytest.raises(MigrationProblems) as caught:
        parse(text)
    return caught.value.problems


def test_a_good_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(GOOD)
    assert read(str(tmp_path / "config.yaml")) == LeaderMigration(
        "moving",
        {
            "route": "kube-controller-manager",
            "service-lb-controller": "cloud-controller-manager",
            "node-ipam": ANY,
        },
    )


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha1"])
def test_older_versions_name_the_lock(version: str) -> None:
    text = GOOD.replace("/v1\n", f"/{version}\n")
    assert parse(text + "resourceLock: leases\n").lease == "moving"
    assert wrong(text + "resourceLock: endpoints\n") == (
        "resourceLock must be leases, not 'endpoints': Kubernetes has no other lock any more",
    )


def test_no_file_is_gos_default() -> None:
    assert read("") is DEFAULT
    assert DEFAULT.lease == "cloud-provider-extraction-migration"


def test_a_json_file_and_no_controllers() -> None:
    about = {"apiVersion": "controllermanager.config.k8s.io/v1", "kind": "LeaderMigrationConfiguration"}
    text = json.dumps({**about, "leaderName": "x"})
    assert parse(text) == LeaderMigration("x", {})


@pytest.mark.row("M4")
def test_every_mistake_is_told_at_once() -> None:
    text = """
apiVersion: kubelet.config.k8s.io/v1
kind: KubeletConfiguration
leaderName: ""
foo: bar
resourceLock: endpoints
controllerLeaders:
- {name: route}
- {component: x, color: red}
- service
- {name: route, component: 7}
"""
    assert wrong(text) == (
        "apiVersion is 'kubelet.config.k8s.io/v1'; must be one of controllermanager.config.k8s.io/v1, "
        "controllermanager.config.k8s.io/v1beta1, controllermanager.config.k8s.io/v1alpha1",
        "kind is 'KubeletConfiguration'; must be LeaderMigrationConfiguration",
        "unknown field 'foo'",
        "leaderName must be given, as a text that is not empty",
        "resourceLock must be leases, not 'endpoints': Kubernetes has no other lock any more",
        "controllerLeaders[0].component must be given, as a text that is not empty",
        "controllerLeaders[1]: unknown field 'color'",
        "controllerLeaders[1].name must be given, as a text that is not empty",
        "controllerLeaders[2] must be an object with name and component",
        "controllerLeaders[3].component must be given, as a text that is not empty",
        "controllerLeaders[3]: route has a component already",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "line 1: must hold names with values"),
        ("? [a]\n: b", "line 1: is not YAML: found unhashable key"),
        ("a: [", "is not YAML: "),
        ("\x1b[1mleaderName\x1b[0m: moving", "is not YAML that can be read (ReaderError)"),
        (GOOD.replace("moving", "2026-13-45"), "is not YAML that can be read (ValueError)"),
        (GOOD + "leaderName: other\n", "leaderName is given twice"),
        (GOOD + "resourceLock: leases\n", "unknown field 'resourceLock'"),  # v1 has none
        (GOOD.replace("moving", "7"), "leaderName must be given, as a text that is not empty"),
        (GOOD.replace("moving", "my lease"), "leaderName 'my lease' must be small letters, digits, - and ."),
        (GOOD + "metadata: {}\n", "unknown field 'metadata'"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    [told] = wrong(text)
    assert problem in told


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(MigrationProblems, match="cannot be read: No such file or directory"):
        read(str(tmp_path / "none"))


NODE, LIFECYCLE, ROUTE, SERVICE, *OURS = CATALOG


@pytest.mark.parametrize(
    ("migration", "main", "migrated", "elsewhere"),
    [
        (None, CATALOG, (), ()),
        (DEFAULT, (NODE, *OURS), (LIFECYCLE, ROUTE, SERVICE), ()),
        (parse(GOOD), (NODE, LIFECYCLE, *OURS), (SERVICE,), ((ROUTE, "kube-controller-manager"),)),
        (LeaderMigration("x", {"node-controller": ANY}), CATALOG, (), ()),
    ],
    ids=["none", "Go's default", "by name, alias and component", "two controllers share this client's name"],
)
def test_which_lease_a_controller_runs_under(migration: Any, main: Any, migrated: Any, elsewhere: Any) -> None:
    found = share(CATALOG, migration)
    assert (found.main, found.elsewhere) == (main, elsewhere)
    assert found.migrated == migrated
