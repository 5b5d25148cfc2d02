"""The objects that a cluster starts with."""

from tests.cluster.manifests import chart_values, demo, dns
from tests.cluster.staticimages import BUSYBOX, COREDNS


def test_dns_is_where_kubelets_look_for_it() -> None:
    objects = {one["kind"]: one for one in dns("10.92.0.10")}
    service, deployment = objects["Service"], objects["Deployment"]
    assert service["spec"]["clusterIP"] == "10.92.0.10"
    assert service["metadata"]["name"] == "kube-dns"
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == COREDNS
    assert objects["ClusterRoleBinding"]["subjects"] == [
        {"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}
    ]


def test_the_demo_is_behind_a_load_balancer() -> None:
    deployment, service = demo()
    assert service["spec"]["type"] == "LoadBalancer"
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == BUSYBOX


def test_two_managers_run_and_give_out_the_pods_ranges() -> None:
    values = chart_values(
        repository="r", tag="t", provider="acme", cluster="lc", cloud_config="{}", pod_range="10.91.0.0/16",
        service_range="10.92.0.0/16",
    )  # fmt: skip
    assert (values["kind"], values["replicas"], values["cloudProvider"]) == ("Deployment", 2, "acme")
    assert "node-ipam-controller" in values["controllers"]
    assert values["flags"]["allocate-node-cidrs"] is True
    assert values["flags"]["cluster-cidr"] == "10.91.0.0/16"
