"""What /configz and /flagz serve, and the line about the flags at the start: complete, in Go's
shape, no secrets."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from controllers.catalog import CATALOG
from controllers.flags.effective import GROUP, OWN, changed, configz, flagz
from controllers.flags.ignored import IGNORED
from controllers.flags.parse import parse, table
from controllers.manager.migration import LeaderMigration
from controllers.options import DURATION, STRING, URL, option
from controllers.options.declare import Flag
from controllers.registration.entry import Context, Controller, ControllerEntry
from controllers.registration.options import Options
from tests.support.gomanager import GO_FLAGS


def never(_context: Context) -> Controller:
    raise AssertionError("nothing is built here")


@attrs.frozen(kw_only=True)
class VendorOptions:
    region: str = option("r-1", STRING, "acme-region", "acme", "Where.")
    key: str = option("", STRING, "acme-key", "acme", "What nobody sees.", secret=True)
    endpoint: str = option("", URL, "acme-endpoint", "acme", "The cloud's API.")
    pause: float = option(1.0, DURATION, "acme-pause", "acme", "How long.")


LONGER = (*CATALOG, ControllerEntry(name="acme-controller", construct=never, options=(VendorOptions,)))


def options(*argv: str) -> Options:
    outcome = parse(["--cloud-provider=fake", "--leader-elect=false", *argv], LONGER)
    assert outcome.problems == ()
    assert outcome.options is not None
    return outcome.options


def test_configz_has_gos_shape() -> None:
    given = options(
        "--controllers=*,-route", "--kube-api-qps=50", "--node-monitor-period=30s", "--cluster-cidr=10.0.0.0/8"
    )
    found = configz(given, LONGER)
    assert json.loads(json.dumps(found)) == found
    go = found[GROUP]
    assert (go["kind"], go["apiVersion"]) == ("CloudControllerManagerConfiguration", f"{GROUP}/v1alpha1")
    assert go["Generic"]["Controllers"] == ["*", "-node-route-controller"]
    assert go["Generic"]["ClientConnection"] == {
        "acceptContentTypes": "",
        "contentType": "application/vnd.kubernetes.protobuf",
        "kubeconfig": "",
        "qps": 50.0,
        "burst": 0,
    }
    assert go["Generic"]["LeaderElection"]["leaderElect"] is False
    assert go["KubeCloudShared"]["CloudProvider"] == {"Name": "fake", "CloudConfigFile": ""}
    assert go["KubeCloudShared"]["ClusterCIDR"] == "10.0.0.0/8"
    assert go["KubeCloudShared"]["RouteReconciliationPeriod"] == "5m0s"
    assert go["NodeController"] == {"ConcurrentNodeSyncs": 32, "ConcurrentNodeStatusUpdates": 0}
    assert go["NodeLifecycleController"] == {"NodeMonitorPeriod": "30s", "ConcurrentNodeLifecycleSyncs": 16}
    assert go["ServiceController"] == {"ConcurrentServiceSyncs": 64}
    assert go["NodeStatusUpdateFrequency"] == "5m0s"


GO = """
kind apiVersion Generic.Port Generic.Address Generic.MinResyncPeriod Generic.ControllerStartInterval Generic.Controllers
Generic.ClientConnection.kubeconfig Generic.ClientConnection.acceptContentTypes Generic.ClientConnection.contentType
Generic.ClientConnection.qps Generic.ClientConnection.burst
Generic.LeaderElection.leaderElect Generic.LeaderElection.leaseDuration Generic.LeaderElection.renewDeadline
Generic.LeaderElection.retryPeriod Generic.LeaderElection.resourceLock Generic.LeaderElection.resourceName
Generic.LeaderElection.resourceNamespace
Generic.Debugging.enableProfiling Generic.Debugging.enableContentionProfiling Generic.LeaderMigrationEnabled
Generic.LeaderMigration.leaderName Generic.LeaderMigration.resourceLock Generic.LeaderMigration.controllerLeaders
KubeCloudShared.CloudProvider.Name KubeCloudShared.CloudProvider.CloudConfigFile
KubeCloudShared.ExternalCloudVolumePlugin KubeCloudShared.UseServiceAccountCredentials
KubeCloudShared.AllowUntaggedCloud KubeCloudShared.RouteReconciliationPeriod KubeCloudShared.ClusterName
KubeCloudShared.ClusterCIDR KubeCloudShared.AllocateNodeCIDRs KubeCloudShared.CIDRAllocatorType
KubeCloudShared.ConfigureCloudRoutes KubeCloudShared.NodeSyncPeriod
NodeController.ConcurrentNodeSyncs NodeController.ConcurrentNodeStatusUpdates
NodeLifecycleController.NodeMonitorPeriod NodeLifecycleController.ConcurrentNodeLifecycleSyncs
ServiceController.ConcurrentServiceSyncs NodeStatusUpdateFrequency Webhook.Webhooks
"""
"""The paths in /configz of a Go manager on k8s.io/cloud-provider 0.37.2, read off it on
2026-11-22."""


def paths(value: Any, path: str = "") -> set[str]:
    if not isinstance(value, dict):
        return {path}
    return {found for key, one in value.items() for found in paths(one, f"{path}.{key}" if path else key)}


@pytest.mark.row("O10")
def test_configz_has_the_paths_of_a_go_manager_and_no_others_whatever_a_program_leaves_out() -> None:
    assert paths(configz(options(), LONGER)[GROUP]) == set(GO.split())
    assert paths(configz(Options(), CATALOG)[GROUP]) == set(GO.split())


def test_what_go_lacks_stands_beside_it_by_section() -> None:
    own = configz(options("--cloud-api-timeout=90s"), LONGER)[OWN]
    assert own["cloud calls"]["cloud-api-timeout"] == "1m30s"
    assert own["acme"] == {"acme-region": "r-1", "acme-key": "CLASSIFIED", "acme-endpoint": "", "acme-pause": "1s"}


def test_each_call_makes_a_new_object() -> None:
    given = options()
    configz(given, LONGER)[GROUP]["Generic"]["Controllers"].append("changed")
    configz(given, LONGER)[GROUP]["Webhook"]["Webhooks"].append("changed")
    assert "changed" not in json.dumps(configz(given, LONGER))


def test_every_setting_is_in_both() -> None:
    given = options()
    text, everything = flagz(given), json.dumps(configz(given, LONGER)[OWN])
    without_effect = {row.flag.name for row in IGNORED}
    for flag in table(LONGER):
        if flag.name in without_effect | {"help", "version"}:
            continue
        assert f"\n{flag.name}=" in text, flag.name
        assert flag.name in GO_FLAGS or f'"{flag.name}"' in everything, flag.name


def test_flagz_is_sorted_and_has_gos_head() -> None:
    head, *lines = flagz(options("--controllers=cloud-node")).strip().splitlines()
    assert head == "cloud-controller-manager flagz"
    assert lines[0].startswith("Warning: ")
    values = lines[2:]
    assert lines[1] == ""
    assert values == sorted(values)
    assert "controllers=cloud-node" in values
    assert "node-monitor-period=5s" in values


SECRETS = ("--acme-key=correct-horse", "--acme-endpoint=https://user:correct-horse@api.example/x")


def test_no_secret_is_shown() -> None:
    given = options(*SECRETS)
    assert "correct-horse" not in repr(options(SECRETS[0]))
    for text in (flagz(given), json.dumps(configz(given, LONGER)), " ".join(changed(given, table(LONGER)))):
        assert "correct-horse" not in text
        assert "CLASSIFIED" in text
        assert "api.example/x" in text


def test_a_bad_value_of_a_secret_option_is_not_told_either() -> None:
    def refuse(_value: str) -> str | None:
        return "must be longer"

    @attrs.frozen(kw_only=True)
    class Checked:
        key: str = option("x", STRING, "acme-key", "acme", "What nobody sees.", check=refuse, secret=True)

    with pytest.raises(ValueError, match=r"^key=CLASSIFIED \(--acme-key\): must be longer$"):
        Checked(key="hunter2")
    entry = ControllerEntry(name="acme-controller", construct=never, options=(Checked,))
    for argv in (["--acme-key=hunter2"], ["--acme-key", "hunter2"]):
        outcome = parse(["--cloud-provider=fake", "--leader-elect=false", *argv], (*CATALOG, entry))
        assert outcome.problems == ("--acme-key=CLASSIFIED: must be longer",)


def test_the_log_names_what_differs_from_the_defaults() -> None:
    argv = ("--cloud-api-qps=3", "--controllers=*,-route", "--node-monitor-period=5s")
    assert changed(options(*argv), table(LONGER)) == [
        "--cloud-provider=fake",
        "--controllers=*,-route",
        "--leader-elect=false",
        "--cloud-api-qps=3",
    ]
    assert changed(options("--leader-elect=false"), table(LONGER, "fake")) == ["--leader-elect=false"]


VALUES = (
    "true", "false", "CloudAllocator", "json", "10.0.0.0/8", "127.0.0.1:1", "h0", "7", "0.7", "7s", "1m", "1h", "12",
    "30", "1000", "65", "/etc/hosts", "https://h.example", "VersionTLS13", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "persistentvolume-labeler", "cloud-node-controller", "fd00::/64", "10.0.0.1", "Fail", "application/json",
    "ipv6,ipv4",
)  # fmt: skip
COMPANIONS = {
    "tls-cert-file": ["--tls-private-key-file=/k"],
    "tls-private-key-file": ["--tls-cert-file=/c"],
    "webhook-tls-cert-file": ["--webhook-tls-private-key-file=/k"],
    "webhook-tls-private-key-file": ["--webhook-tls-cert-file=/c"],
    "leader-migration-config": ["--leader-elect", "--enable-leader-migration"],
    "enable-leader-migration": ["--leader-elect"],
    "kube-api-burst": ["--kube-api-qps=3"],
    "cloud-api-burst": ["--cloud-api-qps=3"],
    "allocate-node-cidrs": ["--cluster-cidr=10.0.0.0/8"],
}
ONLY = {"cloud-provider", "leader-elect-resource-lock"}
"""Flags with one good value here: what the other tests give."""
HIDDEN = {"help", "version", *ONLY, *(row.flag.name for row in IGNORED)}
SHOWN = [row for row in table(LONGER) if row.name not in HIDDEN and not row.secret]


@pytest.mark.row("O10")
def test_every_option_of_another_value_shows() -> None:
    """It shows at one place, with the value that was given: nothing in /configz is there for the
    shape alone."""
    base = ["--cloud-provider=fake", "--leader-elect=false"]
    before = parse(base, LONGER).options
    assert before is not None
    was, said = leaves(configz(before, LONGER)), flagz(before).splitlines()

    def shows(row: Flag[Any]) -> bool:
        companions = COMPANIONS.get(row.name, [])
        for word in VALUES:
            given = parse([*base, *companions, f"--{row.name}={word}"], LONGER).options
            if given is None:
                continue
            now = leaves(configz(given, LONGER))
            [line] = [line for line in flagz(given).splitlines() if line.startswith(f"{row.name}=")]
            if line in said:
                continue
            moved = [text(now[path]) for path in now if now[path] != was.get(path)]
            return len(moved) == 1 + len(companions) and line.removeprefix(f"{row.name}=") in moved
        raise AssertionError(f"no value of VALUES is a good one for --{row.name}: add one")

    assert [row.name for row in SHOWN if not shows(row)] == []


def text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {path: value}
    return {found: one for key, inner in value.items() for found, one in leaves(inner, f"{path}.{key}").items()}


@pytest.mark.row("O10")
def test_what_no_option_sets_is_what_is_done() -> None:
    go = configz(options(), LONGER)[GROUP]
    assert go["Generic"]["MinResyncPeriod"] == "0s"  # TestNoResync of the informer
    assert go["KubeCloudShared"]["CIDRAllocatorType"] == "RangeAllocator"
    assert go["KubeCloudShared"]["NodeSyncPeriod"] == "0s"
    told = configz(options("--min-resync-period=12h", "--contention-profiling"), LONGER)[GROUP]
    assert told == go, "a flag without effect changes nothing"


@pytest.mark.row("O10")
def test_a_leader_migration_is_shown_as_it_was_read() -> None:
    moving = LeaderMigration("moving", {"route-controller": "*"}).as_configz()
    assert configz(options(), LONGER, moving)[GROUP]["Generic"]["LeaderMigration"] == {
        "leaderName": "moving",
        "resourceLock": "leases",
        "controllerLeaders": [{"name": "route-controller", "component": "*"}],
    }
