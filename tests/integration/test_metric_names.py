"""A running manager shows the metrics of the Go manager, under their names and with their labels.

Those of webhooks are in test_webhooks.py.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.waiting import eventually
from tests.support.https import ask, free_port
from tests.support.nodes import small_node
from tests.support.process import MODULE, Start
from tests.support.services import lb_service

QUEUE = {
    f"workqueue_{part}": {"name"}
    for part in (
        "adds_total",
        "depth",
        "longest_running_processor_seconds",
        "queue_duration_seconds_bucket",
        "retries_total",
        "unfinished_work_seconds",
        "work_duration_seconds_bucket",
    )
}
SAMPLES: dict[str, set[str]] = QUEUE | {
    "node_controller_cloud_provider_taint_removal_delay_seconds_bucket": set(),
    "node_controller_initial_node_sync_delay_seconds_bucket": set(),
    "service_controller_loadbalancer_sync_total": set(),
    "service_controller_nodesync_error_total": set(),
    "service_controller_nodesync_latency_seconds_bucket": set(),
    "service_controller_update_loadbalancer_host_latency_seconds_bucket": set(),
    "route_controller_route_sync_total": {"outcome", "trigger"},
    "running_managed_controllers": {"manager", "name"},
    "rest_client_requests_total": {"code", "host", "method"},
    "rest_client_request_duration_seconds_bucket": {"host", "verb"},
    "apiserver_delegated_authn_request_total": {"code"},
    "apiserver_delegated_authn_request_duration_seconds_bucket": {"code"},
    "apiserver_delegated_authz_request_total": {"code"},
    "apiserver_delegated_authz_request_duration_seconds_bucket": {"code"},
    "kubernetes_healthcheck": {"name", "type"},
    "kubernetes_healthchecks_total": {"name", "status", "type"},
    "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_bucket": set(),
    "cloud_node_lifecycle_controller_cloud_provider_calls_total": {"operation", "result"},
    "cloudprovider_api_requests_total": {"provider", "method", "outcome"},
    "cloudprovider_api_request_duration_seconds_bucket": {"provider", "method"},
}
"""Each sample with the labels that it has, `le` apart."""
LEADER = {"leader_election_master_status": {"name"}}
"""With leader election alone."""
QUEUES = {"Nodes", "service", "node", "Routes"}
CLOUD = """
generate: [{count: 1}]
"""


def test_the_page_of_metrics_names_every_metric_of_the_go_manager() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
    families = {name.removesuffix("_bucket") for name in SAMPLES.keys() | LEADER.keys()}
    assert not sorted(name for name in families if name not in page and not name.startswith("workqueue_"))
    assert all(f'`{{name="{queue}"}}`' in page or f'workqueue_*{{name="{queue}"}}' in page for queue in QUEUES)


def test_every_metric_of_the_go_manager_is_there(start: Start, tmp_path: Path) -> None:
    (tmp_path / "cloud.yaml").write_text(CLOUD)
    token, port = secrets.token_hex(16), free_port()
    with EmbeddedAPIServer() as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        server.access.add_user(token, "prometheus")
        server.create(small_node("node-0000", cidrs=["10.244.0.0/24"], ready="False"))
        server.create(lb_service("web"))
        process = start(
            "--cloud-provider=fake",
            "--cloud-config=cloud.yaml",
            "--kubeconfig=kubeconfig",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--allocate-node-cidrs",
            "--cluster-cidr=10.244.0.0/16",
            "--node-monitor-period=500ms",
            command=MODULE,
        )

        def shown() -> dict[str, list[dict[str, str]]]:
            found: dict[str, list[dict[str, str]]] = {}
            for family in text_string_to_metric_families(ask(port, "/metrics", token=token)[1]):
                for one in family.samples:
                    found.setdefault(one.name, []).append(dict(one.labels))
            return found

        def missing() -> set[str]:
            try:
                return SAMPLES.keys() - shown().keys()
            except OSError:  # it does not listen yet
                return {"everything"}

        eventually(lambda: not missing(), 60, lambda: (sorted(missing()), process.log))
        found = shown()
    labels = {name: found[name][0].keys() - {"le"} for name in SAMPLES}
    assert labels == SAMPLES
    for name, wanted in LEADER.items():
        assert name not in found or found[name][0].keys() == wanted
    for name in QUEUE:
        assert {one["name"] for one in found[name]} >= QUEUES, name
    controllers = {one["name"] for one in found["running_managed_controllers"]}
    assert {"cloud-node-controller", "service-lb-controller", "node-route-controller"} <= controllers
    assert {one["manager"] for one in found["running_managed_controllers"]} == {"cloud-controller-manager"}
