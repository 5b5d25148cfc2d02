"""The Helm chart and the kustomize overlays of examples/deploy: what they render, and that a real
API server takes it.

helm, kustomize and kubeconform are the programs themselves, built from their Go modules; the
schemas that kubeconform compares with are those that the real API server publishes, the definitions
of monitors and PrometheusRule those of the Prometheus operator's module.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudprovider.commands.cli import main
from cloudprovider.testing.waiting import eventually
from controllers.catalog import CATALOG, WEBHOOKS
from controllers.cli.rbac import grants
from controllers.manager.permissions import common_rules
from controllers.registration.entry import enabled
from controllers.webhooks.rbac_rules import NAME, NAMESPACE, WEBHOOK_RULES
from tests.generate import DELETIONS, ROOT, deletions, rendered_files, written_files
from tests.integration.conftest import REAL, Cluster
from tests.lab.envtest.build import operator_definitions
from tests.support.api import API
from tests.support.charts import CHART, KUSTOMIZE, REQUIRED, Object, build, identity, render, run
from tests.support.remembered import remembered
from tests.support.rollout import evictions, updated
from tests.support.schemas import write_schemas

UNINITIALIZED = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
FRESH_CONTROL_PLANE = [
    UNINITIALIZED,
    {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"},
    {"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"},
]
"""The taints of a control-plane node that just joined: by the kubelet, kubeadm, the node lifecycle
controller, and a network plugin that waits for addresses."""
OURS = {"namespace": NAMESPACE, "name": NAME}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MONITORING = {"podMonitor": {"enabled": True}, "alerts": {"enabled": True}, "dashboard": {"enabled": True}}
VARIANTS: dict[str, dict[str, Any]] = {
    "deployment": {"kind": "Deployment"},
    "daemonset": {"tlsSecretName": "serving-certificate"},
    "one controller": {"controllers": ["cloud-node"]},
    "monitoring": {"monitoring": MONITORING},
    "webhooks": {"webhooks": {"names": ["*"]}},
    "webhooks of others": {"webhooks": {"names": ["no-peanuts"], "tlsSecretName": "webhook", "port": 9443}},
    "hosted control plane": {"kind": "Deployment", "controlPlaneOnly": False, "hostNetwork": False},
    "what other charts have": {
        "kind": "Deployment",
        "hostNetwork": False,
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["192.0.2.53"]},
        "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["cloud.example"]}],
        "initContainers": [{"name": "fetch", "image": "example.com/fetch", "command": ["fetch"]}],
        "podSecurityContext": {"runAsNonRoot": True, "runAsUser": 1000},
        "probes": {"liveness": {"timeoutSeconds": 20}},
        "commonAnnotations": {"example.com/owner": "clouds"},
        "cloudConfig": {"path": "/vault/secrets/cloud.conf"},
        "topologySpreadConstraints": [],
        "affinity": {},
        "resources": {},
        "revisionHistoryLimit": 3,
        "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {}}]},
        "extraObjects": [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "{{ .Release.Name }}-one", "namespace": "{{ .Release.Namespace }}"},
            },
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: two, namespace: default}\n",
        ],
        "monitoring": {
            "serviceMonitor": {"enabled": True},
            "podMonitor": {
                "annotations": {"example.com/scraped": "true"},
                "relabelings": [{"targetLabel": "cluster", "replacement": "blue"}],
                "metricRelabelings": [{"action": "drop", "sourceLabels": ["__name__"], "regex": "python_.*"}],
                "tlsConfig": {"ca": {"configMap": {"name": "ca", "key": "ca.crt"}}},
            },
        },
    },
    "a config of one's own ConfigMap": {"cloudConfig": {"configMapName": "acme", "key": "acme.yaml"}},
    "everything": {
        "controllers": ["*", "-node-route-controller"],
        "loadBalancerClasses": ["acme.example/lb", ""],
        "flags": {"node-monitor-period": "10s", "v": 2, "kube-api-burst": 1000000, "node-deletion-breaker": False},
        "cloudConfig": {"content": "region: north\n"},
        "env": [{"name": "REGION", "value": "north"}],
        "envFrom": [{"secretRef": {"name": "credentials"}}],
        "apiServer": {"host": "10.0.0.10", "port": 6443},
        "image": {"repository": "example.com/acme/ccm", "digest": f"sha256:{'0' * 64}"},
        "imagePullSecrets": [{"name": "registry"}],
        "extraTolerations": [{"key": "dedicated", "operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "podAnnotations": {"example.com/note": "true"},
        "podLabels": {"team": "clouds"},
        "extraVolumes": [{"name": "scratch", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "serviceAccount": {"create": True, "name": "acme", "annotations": {"example.com/role": "ccm"}},
        "leaderElection": {"leaseName": "acme", "leaseNamespace": "default"},
    },
}


DAEMONSET = KUSTOMIZE / "overlays" / "daemonset"
ONE_AT_A_TIME = {"maxSurge": 0, "maxUnavailable": 1}


def one(objects: list[Object], kind: str) -> Object:
    [found] = [obj for obj in objects if obj["kind"] == kind]
    return found


def pod_of(objects: list[Object]) -> Object:
    [workload] = [obj for obj in objects if obj["kind"] in ("Deployment", "DaemonSet")]
    template = workload["spec"]["template"]
    assert template["metadata"]["labels"].items() >= workload["spec"]["selector"]["matchLabels"].items()
    spec = template["spec"]
    assert isinstance(spec, dict)
    return spec


def tolerates(pod: Object, taint: Mapping[str, str]) -> bool:
    """As the scheduler decides, and the eviction for taints NoExecute: no toleration of a limited
    time counts."""
    return any(
        toleration.get("key") in (None, taint["key"])
        and toleration.get("effect") in (None, taint["effect"])
        and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))
        and "tolerationSeconds" not in toleration
        for toleration in pod["tolerations"]
    )


def args_of(pod: Object) -> list[str]:
    [container] = pod["containers"]
    return list(container["args"])


@pytest.mark.row("M7")
@pytest.mark.parametrize("source", ["deployment", "daemonset", "overlays/deployment", "overlays/daemonset"])
def test_the_pod_starts_in_a_cluster_that_has_no_network_yet(source: str) -> None:
    pod = pod_of(build(KUSTOMIZE / source) if "/" in source else render(VARIANTS[source]))
    assert [taint for taint in FRESH_CONTROL_PLANE if not tolerates(pod, taint)] == []
    assert pod["hostNetwork"] is True
    assert pod["dnsPolicy"] == "Default"  # the host's resolver: not the cluster's, which waits for this program
    assert pod["priorityClassName"] == "system-cluster-critical"
    [term] = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]}
    [container] = pod["containers"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        get = container[probe]["httpGet"]
        assert (get["scheme"], get["host"], get["port"]) == ("HTTPS", "127.0.0.1", "https")  # needs no pod IP
    # Its fields of the pod's status are empty, and an error for the kubelet, as long as the node
    # has no address.
    assert "status.hostIP" not in json.dumps(pod)
    assert "status.podIP" not in json.dumps(pod)


def test_a_deployments_pod_that_is_drained_or_whose_node_died_goes_elsewhere() -> None:
    pod = pod_of(render(VARIANTS["deployment"]))
    assert not tolerates(pod, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    assert not tolerates(pod, {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"})


def test_the_container_has_no_rights_on_its_node() -> None:
    pod = pod_of(render())
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert container["resources"].keys() == {"requests", "limits"}


def test_replicas_keep_apart() -> None:
    objects = render(VARIANTS["deployment"])
    workload = one(objects, "Deployment")
    assert workload["spec"]["replicas"] == 2
    # With the host's ports a new pod cannot start beside the old one.
    assert workload["spec"]["strategy"] == {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    hosts, _ = pod_of(objects)["topologySpreadConstraints"]
    assert (hosts["topologyKey"], hosts["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "DoNotSchedule")
    assert one(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    daemonset = render(VARIANTS["daemonset"])
    assert "topologySpreadConstraints" not in pod_of(daemonset)
    assert "PodDisruptionBudget" not in {obj["kind"] for obj in daemonset}


@pytest.mark.row("O20")
@pytest.mark.parametrize(
    ("values", "affinity", "resources"),
    [
        ({}, True, True),
        ({"affinity": {}}, False, True),
        ({"affinity": None}, False, True),
        ({"controlPlaneOnly": False}, False, True),
        ({"affinity": {"podAffinity": {}}, "controlPlaneOnly": True}, True, True),
        ({"resources": {}}, True, False),
        ({"resources": None}, True, False),
    ],
    ids=str,
)
def test_an_empty_value_means_nothing(values: dict[str, Any], affinity: bool, resources: bool) -> None:
    pod = pod_of(render(values))
    assert ("affinity" in pod, "resources" in pod["containers"][0]) == (affinity, resources)
    if values.get("affinity"):
        assert pod["affinity"] == values["affinity"]


@pytest.mark.row("O20")
def test_a_pod_with_a_network_of_its_own() -> None:
    pod = pod_of(render(VARIANTS["hosted control plane"]))
    assert "hostNetwork" not in pod
    assert pod["dnsPolicy"] == "ClusterFirst"
    assert "host" not in pod["containers"][0]["livenessProbe"]["httpGet"], "127.0.0.1 would be the node's"
    bound = pod_of(render(VARIANTS["hosted control plane"] | {"bindAddress": "192.0.2.7"}))
    assert bound["containers"][0]["livenessProbe"]["httpGet"]["host"] == "192.0.2.7"


@pytest.mark.row("O20")
def test_what_other_charts_have() -> None:
    values = VARIANTS["what other charts have"]
    objects = render(values)
    pod = pod_of(objects)
    for name in ("dnsPolicy", "dnsConfig", "hostAliases", "initContainers"):
        assert pod[name] == values[name]
    assert pod["securityContext"].items() >= values["podSecurityContext"].items()
    assert pod["containers"][0]["livenessProbe"]["timeoutSeconds"] == 20
    assert pod["containers"][0]["livenessProbe"]["failureThreshold"] == 6, "what is not said stays"
    assert "--cloud-config=/vault/secrets/cloud.conf" in args_of(pod)
    assert "cloud-config" not in {volume["name"] for volume in pod["volumes"]}
    assert "topologySpreadConstraints" not in pod
    assert one(objects, "Deployment")["spec"]["revisionHistoryLimit"] == 3
    [rule] = one(objects, "NetworkPolicy")["spec"]["ingress"]
    assert rule == {"ports": [{"port": 10258}], "from": [{"namespaceSelector": {}}]}
    extra = {obj["metadata"]["name"] for obj in objects if obj["kind"] == "ConfigMap"}
    assert extra == {"cloud-controller-manager-one", "two"}
    bare = [identity(obj) for obj in objects if "annotations" not in obj["metadata"]]
    assert [name for kind, _, name in bare if kind != "ConfigMap"] == [], "commonAnnotations are on every object"
    monitor = one(objects, "ServiceMonitor")
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint.items() >= {
        key: values["monitoring"]["podMonitor"][key] for key in ("relabelings", "metricRelabelings")
    }.items()  # fmt: skip
    assert endpoint["tlsConfig"]["ca"] == {"configMap": {"name": "ca", "key": "ca.crt"}}
    assert monitor["metadata"]["annotations"]["example.com/scraped"] == "true"
    assert one(objects, "Service")["spec"]["clusterIP"] == "None"


@pytest.mark.row("O20")
def test_a_cloud_config_from_a_configmap() -> None:
    pod = pod_of(render(VARIANTS["a config of one's own ConfigMap"]))
    assert "--cloud-config=/etc/cloud-controller-manager/cloud-config/acme.yaml" in args_of(pod)
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == "cloud-config"]
    assert volume["configMap"] == {"name": "acme", "defaultMode": 0o440}


@pytest.mark.row("O20")
@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"cloudConfig": {"content": "a", "path": "/a"}}, "give one of content, secretName, configMapName and path"),
        ({"networkPolicy": {"enabled": True}}, "no effect on pods with hostNetwork"),
        ({"monitoring": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}}, "there twice"),
        ({"podLabels": {"app.kubernetes.io/name": "x"}}, "app.kubernetes.io/name"),
        ({"cloudConfig": {"path": "cloud.conf"}}, "path"),
    ],
    ids=str,
)
def test_what_cannot_be_together_is_refused(values: dict[str, Any], problem: str) -> None:
    done = run(
        "helm", "template", "x", str(CHART), "--values", "-", check=False, stdin=yaml.safe_dump(REQUIRED | values)
    )
    assert done.returncode != 0
    assert problem in done.stderr


@pytest.mark.row("O20")
@pytest.mark.parametrize(
    ("flags", "runs"), [({}, False), ({"allocate-node-cidrs": True}, True),
                        ({"allocate-node-cidrs": "true", "configure-cloud-routes": False}, False)], ids=str,
)  # fmt: skip
def test_the_notes_say_what_runs(flags: dict[str, Any], runs: bool) -> None:
    given = yaml.safe_dump(REQUIRED | {"flags": flags})
    done = run("helm", "install", "x", str(CHART), "--dry-run=client", "--values", "-", stdin=given)
    notes = done.stdout.partition("NOTES:")[2]
    assert ("node-route-controller" in notes.partition("Routes are off")[0]) == runs
    assert ("Routes are off" in notes) == (not runs)


@pytest.mark.row("O19")
def test_alerts_and_dashboard_go_by_the_labels_of_choice() -> None:
    objects = render({"monitoring": MONITORING | {"clusterLabels": ["region", "env"]}})
    rules = [rule for group in one(objects, "PrometheusRule")["spec"]["groups"] for rule in group["rules"]]
    expressions = {rule["alert"]: rule["expr"] for rule in rules}
    assert expressions["CloudNodesUninitialized"].startswith("max by (region, env) (")
    assert "and on (region, env, instance) running" in expressions["CloudControllerManagerNoLeader"]
    assert not [text for text in expressions.values() if "cluster," in text or "(cluster)" in text]
    [board] = [obj for obj in objects if obj["metadata"]["name"].endswith("-dashboard")]
    text = board["data"]["cloud-controller-manager.json"]
    assert 'region=~\\"$cluster\\"' in text
    assert "cluster=~" not in text
    assert json.loads(text)["templating"]["list"][1]["query"]["query"].endswith(", region)")


def workloads() -> dict[str, Object]:
    """What an operator gets who chooses nothing, by every way of installation."""
    base = yaml.safe_load((KUSTOMIZE / "base" / "workload.yaml").read_text())
    return {"chart": one(render(), "DaemonSet"), "base": base, "overlay": one(build(DAEMONSET), "DaemonSet")}


@pytest.mark.row("O11")
@pytest.mark.parametrize(("up", "down"), [(1, 0), (2, 0), (3, 0), (2, 1), (4, 1), (3, 2)])
def test_an_update_of_the_defaults_is_done_wherever_most_control_plane_nodes_are_up(up: int, down: int) -> None:
    """By the model of `tests/support/rollout.py`. As many nodes are up as etcd needs."""
    for name, workload in workloads().items():
        assert updated(workload, up, down) == (up, 0), name


@pytest.mark.row("O11")
def test_an_update_with_half_of_the_nodes_down_waits_for_them_or_for_the_operator() -> None:
    """Two nodes need an etcd elsewhere. The new pod's node is back, or its Node is deleted; or a
    value says: go on."""
    for name, workload in workloads().items():
        assert updated(workload, 1, 1) == (0, 1), name
    assert updated(one(render({"maxUnavailable": "100%"}), "DaemonSet"), 1, 1) == (1, 0)


@pytest.mark.row("O11")
@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_a_version_that_does_not_start_leaves_the_old_one_at_work(nodes: int) -> None:
    for name, workload in workloads().items():
        _, old = updated(workload, nodes, starts=False)
        assert old >= 1, name
    deployment = one(render({"kind": "Deployment"}), "Deployment")
    assert updated(deployment, nodes, starts=False) == (0, 1)


@pytest.mark.row("O11")
def test_a_drain_passes_over_the_defaults() -> None:
    """`kubectl drain --ignore-daemonsets`; no budget of ours can hold it up."""
    for objects in (render(), build(DAEMONSET)):
        assert not [obj for obj in objects if obj["kind"] in ("PodDisruptionBudget", "Deployment")]


@pytest.mark.row("O11")
@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize(("up", "down"), [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1)])
def test_a_deployment_updates_and_drains_while_more_than_half_of_its_pods_run(
    replicas: int, up: int, down: int
) -> None:
    objects = render({"kind": "Deployment", "replicas": replicas})
    workload, budget = one(objects, "Deployment"), one(objects, "PodDisruptionBudget")
    runs = min(replicas, up)
    if 2 * runs > replicas:
        assert updated(workload, up, down) == (runs, 0)
        assert evictions(budget, replicas, up) >= 1
    else:  # docs/guides/deploying.md: no more replicas than nodes
        assert updated(workload, up, down)[1] >= 1
        always = one(render({"kind": "Deployment", "replicas": replicas, "maxUnavailable": "100%"}), "Deployment")
        assert updated(always, up, down) == (runs, 0)


@pytest.mark.row("O11")
def test_the_model_says_what_the_real_controllers_did() -> None:
    """Two replicas on one control-plane node, as this chart had them: observed on
    kube-controller-manager 1.36.3."""
    was = {"kind": "Deployment", "spec": {"replicas": 2, "strategy": {"rollingUpdate": ONE_AT_A_TIME}}}
    assert updated(was, 1) == (0, 1)
    assert updated(was, 2) == (2, 0)
    assert evictions({"spec": {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"}}, 2, 1) == 0
    assert evictions({"spec": {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"}}, 2, 2) == 1


def test_every_value_arrives() -> None:
    objects = render(VARIANTS["everything"])
    pod = pod_of(objects)
    [container] = pod["containers"]
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert container["image"] == f"example.com/acme/ccm:{version}@sha256:{'0' * 64}"
    assert args_of(pod) == [
        "--cloud-provider=acme",
        "--cloud-config=/etc/cloud-controller-manager/cloud-config/cloud.conf",
        "--cluster-name=kubernetes",
        "--controllers=*,-node-route-controller",
        '--load-balancer-classes=acme.example/lb,""',
        "--leader-elect-resource-name=acme",
        "--leader-elect-resource-namespace=default",
        "--bind-address=0.0.0.0",
        "--secure-port=10258",
        "--kube-api-burst=1000000",
        "--node-deletion-breaker=false",
        "--node-monitor-period=10s",
        "--v=2",
    ]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    assert environment == {"KUBERNETES_SERVICE_HOST": "10.0.0.10", "KUBERNETES_SERVICE_PORT": "6443", "REGION": "north"}
    assert pod["serviceAccountName"] == "acme"
    assert one(objects, "Secret")["data"] == {"cloud.conf": "cmVnaW9uOiBub3J0aAo="}
    assert tolerates(pod, {"key": "dedicated", "effect": "NoSchedule"})
    assert tolerates(pod, UNINITIALIZED)
    tls = args_of(pod_of(render(VARIANTS["daemonset"])))
    assert {"--tls-cert-file=/etc/cloud-controller-manager/tls/tls.crt"} <= set(tls)
    for address, asked in (("10.0.0.1", "10.0.0.1"), ("2001:db8::1", "2001:db8::1"), ("::", "127.0.0.1")):
        [container] = pod_of(render({"bindAddress": address}))["containers"]
        assert f"--bind-address={address}" in container["args"]
        assert container["livenessProbe"]["httpGet"]["host"] == asked


@pytest.mark.parametrize("options", [(), ("--http",)], ids=["memory", "http"])
def test_the_values_that_new_writes_fit_the_chart_that_chart_writes(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert main(["new", "acme", *options, "--directory", str(tmp_path / "made")]) == 0
    assert main(["chart", str(tmp_path / "chart")]) == 0
    values = tmp_path / "made" / "deploy" / "values.yaml"
    done = run("helm", "template", "acme", str(tmp_path / "chart"), "-n", "kube-system", "--values", str(values))
    objects = [one for one in yaml.safe_load_all(done.stdout) if one]
    pod = pod_of(objects)
    assert {"--cloud-provider=acme", "--leader-elect-resource-name=acme-controller-manager"} <= set(args_of(pod))
    [container] = pod["containers"]
    assert container["image"] == "registry.example.com/acme-provider:0.1.0"
    files = {one["name"]: one["value"] for one in container["env"] if one["name"].endswith("_FILE")}
    mounted = {one["mountPath"] for one in container["volumeMounts"]}
    assert {str(Path(path).parent) for path in files.values()} <= mounted
    assert files
    assert bool([one for one in container["env"] if "valueFrom" in one]) == bool(options)
    assert (
        "0 chart(s) failed" in run("helm", "lint", "--strict", str(tmp_path / "chart"), "--values", str(values)).stdout
    )


def test_another_cloud_config_restarts_the_pods() -> None:
    def template(content: str) -> Object:
        template = one(render({"cloudConfig": {"content": content}}), "DaemonSet")["spec"]["template"]
        assert isinstance(template, dict)
        return template

    assert template("region: north") != template("region: south")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cloudProvider": ""}, "/cloudProvider"),
        ({"image": {"repository": ""}}, "/image/repository"),
        ({"controllers": ["cloud-nodes"]}, 'no controller is called "cloud-nodes"'),
        ({"controllers": ["-*"]}, "/controllers/0"),
        ({"controllers": ["-cloud-node"]}, "no controller is left to run"),
        ({"kind": "StatefulSet"}, "/kind"),
        ({"maxUnavailable": 0}, "/maxUnavailable"),
        ({"maxUnavailable": "0%"}, "/maxUnavailable"),
        ({"securePort": 70000}, "/securePort"),
        ({"flags": {"controllers": "*"}}, "/flags/controllers"),
        ({"flags": {"webhooks": "*"}}, "/flags/webhooks"),
        ({"loadBalancerClasses": ["", "a/b/c"]}, "/loadBalancerClasses/1"),
        ({"flags": {"load-balancer-classes": "a"}}, "/flags/load-balancer-classes"),
        ({"webhooks": {"names": ["*"]}, "flags": {"webhook-secure-port": 9443}}, "/flags/webhook-secure-port"),
        ({"flags": {"webhook-tls-cert-file": "/x"}}, "/flags/webhook-tls-cert-file"),
        ({"flags": {"webhook-tls-private-key-file": "/x"}}, "/flags/webhook-tls-private-key-file"),
        ({"flags": {"--v": 2}}, "/flags"),
        ({"replica": 3}, "replica"),
        (
            {"cloudConfig": {"content": "x", "secretName": "z"}},
            "give one of content, secretName, configMapName and path",
        ),
        ({"serviceAccount": {"create": False}}, "give serviceAccount.name"),
        ({"flags": {"use-service-account-credentials": True}}, "python -m controllers.cli.rbac --use-service-account"),
        ({"flags": {"enable-leader-migration": True}}, "give leaderElection.migrationLeaseName"),
    ],
)
def test_a_wrong_value_is_refused_by_name(values: dict[str, Any], message: str) -> None:
    given = yaml.safe_dump(REQUIRED | values)
    done = run("helm", "template", "x", str(CHART), "--values", "-", stdin=given, check=False)
    assert done.returncode != 0
    assert message in done.stderr


@pytest.mark.row("X6")
@pytest.mark.parametrize("count", [1, 2, len(CATALOG) - 1, len(CATALOG)])
def test_the_chart_grants_what_the_table_says_for_each_controller_each_pair_all_but_one_and_all(count: int) -> None:
    for chosen in itertools.combinations(CATALOG, count):
        words = [entry.name for entry in chosen]
        wanted = {
            (grant.namespace, grant.group, grant.resource, grant.names, verb)
            for grant in grants(enabled(words, CATALOG))
            for verb in grant.verbs
        }
        objects = render({"controllers": words})
        assert set(rights(objects)) == wanted, words
        accounts = {obj["metadata"]["name"] for obj in objects if obj["kind"] == "ServiceAccount"}
        for obj in objects:
            if obj["kind"] in ("RoleBinding", "ClusterRoleBinding"):
                assert {subject["name"] for subject in obj["subjects"]} == accounts
                assert {subject["namespace"] for subject in obj["subjects"]} == {"kube-system"}


def test_the_lease_of_the_values_is_the_one_that_may_be_taken() -> None:
    found = {right[:4] for right in rights(render(VARIANTS["everything"])) if right[2] == "leases"}
    group = "coordination.k8s.io"
    assert found == {("default", group, "leases", ()), ("default", group, "leases", ("acme",))}
    migrating = render({"flags": {"enable-leader-migration": True}, "leaderElection": {"migrationLeaseName": "second"}})
    assert "--enable-leader-migration=true" in args_of(pod_of(migrating))
    wanted = grants(enabled(["*"], CATALOG), common_rules(migration_lease="second"))
    leases = {(one.namespace, name, verb) for one in wanted for name in one.names or ("",) for verb in one.verbs}
    assert ("kube-system", "second", "update") in leases
    assert leases == {(where, name, verb) for where, _, _, names, verb in rights(migrating) for name in names or ("",)}


def rights(objects: list[Object]) -> Iterator[tuple[str, str, str, tuple[str, ...], str]]:
    """(namespace, group, resource, names, verb) of every rule about resources."""
    for obj in objects:
        if obj["kind"] in ("Role", "ClusterRole"):
            for rule in obj["rules"]:
                [group], [resource] = rule["apiGroups"], rule["resources"]
                names = tuple(rule.get("resourceNames", ()))
                yield from ((obj["metadata"].get("namespace", ""), group, resource, names, v) for v in rule["verbs"])


def test_words_for_controllers_mean_what_they_mean_for_the_manager() -> None:
    for words in (["*"], ["cloud-node", "service"], ["*", "-route"], ["*", "service", "-cloud-node-lifecycle"]):
        given = {entry.name for entry in enabled(words, CATALOG)}
        notes = run(
            "helm", "install", "x", str(CHART), "--dry-run=client", "--values", "-",
            stdin=yaml.safe_dump(REQUIRED | {"controllers": words, "flags": {"allocate-node-cidrs": True}}),
        ).stdout  # fmt: skip
        [line] = [line for line in notes.splitlines() if "It runs: " in line]
        assert set(line.split("It runs: ")[1].rstrip(".").split(", ")) == given


@pytest.mark.parametrize("rendered", [False, True])
def test_generated_files_are_current(rendered: bool) -> None:
    """Manifests and pages, but for the table of simulated deletions."""
    if rendered:
        run("helm", "version")  # without it the test is skipped
    files = rendered_files() if rendered else written_files()
    stale = [path for path, content in files.items() if path != DELETIONS and path.read_text() != content()]
    assert [str(path.relative_to(ROOT)) for path in stale] == [], "run: make generate"


def test_the_table_of_simulated_deletions_is_current(request: pytest.FixtureRequest) -> None:
    """It is simulated again when the product or the simulation has changed: 20 s of CPU (N26)."""
    simulated = [path for part in ("unit/nodelifecycle", "support") for path in (ROOT / "tests" / part).glob("*.py")]
    with remembered(request, "deletions", [DELETIONS, *sorted(simulated)]) as known:
        assert known or deletions() == DELETIONS.read_text(), "run: make generate"


def test_kustomize_makes_what_the_chart_makes() -> None:
    """Apart from labels on the roles, which the table's manifest does not have, and the names of
    generated Secrets."""
    for overlay, variant in (("deployment", {"kind": "Deployment"}), ("daemonset", {})):
        values = variant | {
            "image": {"repository": "example.com/acme/cloud-controller-manager"},
            "cloudConfig": {"secretName": "cloud-config"},
            "flags": {"v": 2},
        }
        made, wanted = ({identity(obj): obj for obj in objects if obj["kind"] != "Secret"} for objects in (
            build(KUSTOMIZE / "overlays" / overlay), render(values)
        ))  # fmt: skip
        assert made.keys() == wanted.keys()
        for key, obj in made.items():
            for volume in obj.get("spec", {}).get("template", {}).get("spec", {}).get("volumes", ()):
                if "secret" in volume:
                    volume["secret"]["secretName"] = volume["secret"]["secretName"].rsplit("-", 1)[0]
            if key[0] not in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"):
                assert obj == wanted[key], key
        assert set(rights(list(made.values()))) == set(rights(list(wanted.values())))


@pytest.mark.parametrize("variant", VARIANTS)
def test_helm_finds_nothing_wrong(variant: str) -> None:
    given = yaml.safe_dump(REQUIRED | VARIANTS[variant])
    assert "0 chart(s) failed" in run("helm", "lint", "--strict", str(CHART), "--values", "-", stdin=given).stdout


def test_webhooks_come_with_their_service_configuration_permissions_and_flag(tmp_path: Path) -> None:
    objects = render(VARIANTS["webhooks"])
    [entry] = one(objects, "MutatingWebhookConfiguration")["webhooks"]
    [webhook] = [known.webhook for known in WEBHOOKS]
    [match] = webhook.matches
    service = one(objects, "Service")["metadata"]
    assert entry["clientConfig"]["service"] == {**OURS, "path": webhook.path, "port": 443}
    assert {"name": service["name"], "namespace": service["namespace"]} == OURS
    assert entry["name"].startswith(f"{webhook.name}.")
    [rule] = entry["rules"]
    assert (rule["resources"], rule["operations"]) == ([match.resource], list(match.operations))
    assert (entry["failurePolicy"], entry["sideEffects"], entry["timeoutSeconds"]) == ("Ignore", "None", 5)

    granted = {
        (obj["metadata"].get("namespace", ""), group, resource, tuple(found.get("resourceNames", ())), verb)
        for obj in objects
        if obj["metadata"]["name"].endswith(":webhooks") and obj["kind"] in ("Role", "ClusterRole")
        for found in obj["rules"]
        for group in found["apiGroups"]
        for resource in found["resources"]
        for verb in found["verbs"]
    }
    assert granted == {
        (rule.namespace, rule.group, rule.resource, rule.named(verb), verb)
        for rule in WEBHOOK_RULES
        for verb in rule.verbs
    }
    [container] = one(objects, "DaemonSet")["spec"]["template"]["spec"]["containers"]
    assert "--webhooks=*" in container["args"]
    plain = build(DAEMONSET)
    assert not [obj for obj in plain if "Webhook" in obj["kind"]], "the component is for those who ask for it"
    with_component = build(monitored(tmp_path / "overlay"))
    [container] = one(with_component, "DaemonSet")["spec"]["template"]["spec"]["containers"]
    assert f"--webhooks={webhook.name}" in container["args"]
    assert {"name": "webhooks", "containerPort": 10260} in container["ports"]
    assert one(with_component, "MutatingWebhookConfiguration")["webhooks"] == [entry]
    with pytest.raises(AssertionError, match="install the release there"):
        render(VARIANTS["webhooks"], namespace="clouds")


@pytest.mark.parametrize("api", [REAL], indirect=True)
def test_a_real_api_server_takes_everything(api: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """By a dry run on the server, with unknown and repeated fields as errors, and by kubeconform
    with its schemas."""
    for file in operator_definitions():
        definition = yaml.safe_load(file.read_text())
        api.create(DEFINITIONS, definition)
        request.addfinalizer(partial(api.delete, f"{DEFINITIONS}/{definition['metadata']['name']}"))
    eventually(lambda: {"PodMonitor", "PrometheusRule", "ServiceMonitor"} <= kinds(api).keys(), 60)
    where = kinds(api)
    rendered = {f"chart, {name}": render(values) for name, values in VARIANTS.items()}
    for folder in ("overlays/deployment", "overlays/daemonset"):
        rendered[folder] = build(KUSTOMIZE / folder)
    rendered["monitoring"] = build(monitored(tmp_path / "monitored"))
    for name, objects in rendered.items():
        for obj in objects:
            path = where[obj["kind"]].format(namespace=obj["metadata"].get("namespace"))
            status, answer = api.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", obj)
            already = status == 409 and answer["reason"] == "AlreadyExists"  # the tests' own roles
            assert status == 201 or already, (name, identity(obj), answer)
    schemas = write_schemas(api, tmp_path / "schemas")
    text = "---\n".join(yaml.safe_dump(obj) for objects in rendered.values() for obj in objects)
    done = run("kubeconform", "-strict", "-summary", "-output", "json", "-schema-location", schemas, stdin=text)
    summary = json.loads(done.stdout)["summary"]
    assert summary == {"valid": sum(map(len, rendered.values())), "invalid": 0, "errors": 0, "skipped": 0}
    wrong = yaml.safe_dump(one(render(), "DaemonSet")).replace("hostNetwork:", "hostNetworking:")
    assert run("kubeconform", "-strict", "-schema-location", schemas, stdin=wrong, check=False).returncode == 1


def kinds(api: API) -> dict[str, str]:
    """The path of each kind's collection, with a place for the namespace; of those that the
    manifests use."""
    found = {}
    for group in ("api/v1", "apis/apps/v1", "apis/policy/v1", "apis/rbac.authorization.k8s.io/v1",
                  "apis/admissionregistration.k8s.io/v1", "apis/monitoring.coreos.com/v1",
                  "apis/networking.k8s.io/v1"):  # fmt: skip
        for resource in (api.find(f"/{group}") or {"resources": []})["resources"]:
            if "/" not in resource["name"]:
                place = "namespaces/{namespace}/" if resource["namespaced"] else ""
                found[resource["kind"]] = f"/{group}/{place}{resource['name']}"
    return found


def monitored(folder: Path) -> Path:
    """An overlay with the monitoring, beside a copy of all others."""
    shutil.copytree(KUSTOMIZE, folder)
    overlay = folder / "overlays" / "daemonset" / "kustomization.yaml"
    overlay.write_text(overlay.read_text().replace("# components:", "components:"))
    return overlay.parent
