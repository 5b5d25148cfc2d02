"""Every alert rule in Prometheus' own rule tester: one Prometheus, two clusters, of which b is ill.

Each fault fires its alert for cluster b, once; without a fault nothing fires. Needs promtool, in
PATH or named by PROMTOOL; CI installs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.generate import ALERTS

PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")
pytestmark = pytest.mark.skipif(
    PROMTOOL is None and not os.environ.get("REQUIRE_PROMTOOL"),
    reason="promtool (Debian's package prometheus) is not here",
)

MANAGER = 'running_managed_controllers{{manager="cloud-controller-manager",name="x",{who}}}'
LEADS = 'leader_election_master_status{{name="cloud-controller-manager",{who}}}'
MINUTES = 180  # of series, a sample a minute
WELL = {MANAGER: "1x180", LEADS: "1x180"}
"""The series of a manager at work; `{who}` is for the labels of its cluster and instance."""


def gauge(name: str, value: int) -> dict[str, str]:
    return {f"{name}{{{{{{who}}}}}}": f"{value}x{MINUTES}"}


def counter(series: str, step: int = 1, start: str = "0") -> dict[str, str]:
    """Grows each minute, from the tenth on."""
    name, _, labels = series.partition("{")
    return {f"{name}{{{{{labels.rstrip('}')},{{who}}}}}}".replace("{{,", "{{"): f"{start}x10 0+{step}x{MINUTES}"}


CALLS = 'cloudprovider_api_requests_total{method="list_routes",provider="acme",outcome="%s"}'
FAULTS: dict[str, dict[str, str]] = {
    "CloudControllerManagerDown": {MANAGER: "1x10 _x170", LEADS: "1x10 _x170"},
    "CloudControllerManagerNoLeader": {MANAGER: "0x180", LEADS: "0x180"},
    "CloudControllerManagerRestarts": {
        "process_start_time_seconds{{{who}}}": "100x5 400x5 700x5 1000x5 1300x5 1600x60"
    },
    "CloudNodesUninitialized": gauge("node_controller_oldest_uninitialized_node_age_seconds", 900),
    "CloudNodesWithoutProviderID": gauge("node_controller_nodes_without_provider_id", 2),
    "CloudNodeDeletionsHeldBack": gauge("node_lifecycle_held_nodes", 2),
    "CloudCallsReadyNodesGone": gauge("node_lifecycle_contradicting_nodes", 2),
    "CloudInstanceStateUnknown": gauge("node_lifecycle_unknown_nodes", 2),
    "CloudLoadBalancersWait": gauge("service_controller_oldest_service_without_address_age_seconds", 1000),
    "CloudLoadBalancersHaveOldTargets": gauge("service_controller_oldest_targets_lag_seconds", 1000),
    "CloudLoadBalancerUpdatesFail": counter("service_controller_nodesync_error_total{}"),
    "CloudLoadBalancersOrphaned": gauge("service_controller_orphaned_load_balancers", 1),
    "CloudServicesWithoutController": gauge("service_controller_unserved_deletions", 1),
    "CloudRoutesFail": counter('route_controller_route_sync_total{outcome="error",trigger="periodic"}'),
    "CloudProviderErrors": counter(CALLS % "error") | counter(CALLS % "success"),
    "CloudProviderCallsHang": {'cloudprovider_api_requests_overdue{{provider="acme",{who}}}': "1x180"},
    "CloudProviderThrottles": counter(CALLS % "throttled") | counter(CALLS % "success", 100),
    "CloudControllerManagerForbidden": counter('rest_client_requests_total{code="403",method="GET"}'),
    "CloudControllerManagerAPIErrors": counter('rest_client_requests_total{code="500",method="GET"}')
    | counter('rest_client_requests_total{code="200",method="GET"}'),
    "CloudControllerManagerReconcileErrors": counter('controller_reconcile_errors_total{name="x"}', 20),
    "CloudControllerManagerStuck": {'workqueue_longest_running_processor_seconds{{name="x",{who}}}': "700x180"},
    "CloudControllerManagerMalformedObjects": {'informer_quarantined_objects{{resource="nodes",{who}}}': "1x180"},
    "CloudControllerManagerHistoryReset": {'informer_history_resets_total{{resource="nodes",{who}}}': "0x10 1x170"},
    "CloudControllerManagerEventsDropped": counter('event_recorder_dropped_total{component="x",reason="full"}', 5),
}
AT = {"CloudControllerManagerRestarts": "30m", "CloudControllerManagerHistoryReset": "40m"}
"""When it is looked at, where not after 170 minutes."""
OTHERS = ("CloudNodeDeletionsHeldBack", "CloudRoutesFail", "CloudControllerManagerForbidden")
"""What no other fault may fire."""


def rules() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}


def series_of(cluster: str, faults: dict[str, str]) -> list[dict[str, str]]:
    who = f'cluster="{cluster}",instance="{cluster}1"'
    return [{"series": name.format(who=who), "values": values} for name, values in (WELL | faults).items()]


def judged(folder: Path, tests: list[dict[str, Any]]) -> str:
    """What promtool has against these tests, "" for nothing."""
    assert PROMTOOL is not None, "REQUIRE_PROMTOOL is set, and there is no promtool"
    shutil.copy(ALERTS, folder / "alerts.yaml")
    (folder / "tests.yaml").write_text(
        yaml.safe_dump({"rule_files": ["alerts.yaml"], "evaluation_interval": "2m", "tests": tests})
    )
    done = subprocess.run(
        [PROMTOOL, "test", "rules", "tests.yaml"], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def looked(name: str, series: list[dict[str, str]], expected: dict[str, list[dict[str, str]]]) -> dict[str, Any]:
    """A test of promtool. `expected`: the labels of the alerts that fire, by the alert's name."""
    return {
        "name": name, "interval": "1m", "input_series": series,
        "promql_expr_test": [
            {
                "expr": f'group by (cluster) (ALERTS{{alertname="{alert}",alertstate="firing"}})',
                "eval_time": AT.get(alert, "170m"),
                "exp_samples": [
                    {"labels": "{" + ",".join(f'{key}="{one[key]}"' for key in one) + "}", "value": 1} for one in labels
                ],
            }
            for alert, labels in expected.items()
        ],
    }  # fmt: skip


def test_every_rule_is_here() -> None:
    assert rules().keys() == FAULTS.keys()


@pytest.mark.row("O19")
def test_each_fires_for_the_cluster_that_is_ill_and_for_no_other(tmp_path: Path) -> None:
    both = [*series_of("a", {}), *series_of("b", {})]
    tests = [looked("all is well", both, {alert: [] for alert in FAULTS})]
    for alert, faults in FAULTS.items():
        series = [*series_of("a", {}), *series_of("b", faults)]
        tests.append(looked(alert, series, {**{other: [] for other in OTHERS}, alert: [{"cluster": "b"}]}))
    assert judged(tmp_path, tests) == ""


@pytest.mark.row("O19")
def test_a_manager_that_nobody_ever_saw_is_down(tmp_path: Path) -> None:
    series = [{"series": "up", "values": "1x180"}]
    assert judged(tmp_path, [looked("never", series, {"CloudControllerManagerDown": [{}]})]) == ""


def test_series_without_the_label_are_one_cluster(tmp_path: Path) -> None:
    plain = [
        {"series": one["series"].replace('cluster="b",', ""), "values": one["values"]}
        for one in series_of("b", FAULTS["CloudNodesUninitialized"])
    ]
    assert judged(tmp_path, [looked("plain", plain, {"CloudNodesUninitialized": [{}]})]) == ""
