"""The arguments that public manifests give Go cloud-controller-managers are taken by this one.

Facts read off the projects' own manifests and charts (2026-11): the names and values of flags,
paths shortened.
"""

from __future__ import annotations

import pytest

from controllers.catalog import CATALOG
from controllers.flags.parse import parse

MANIFESTS = {
    "AWS, Helm chart": "--v=2 --cloud-provider=aws --configure-cloud-routes=false",
    "AWS, migrating": (
        "--enable-leader-migration=true --cloud-provider=aws --v=2 --cluster-cidr=10.7.0.0/16 --cluster-name=prod "
        "--external-cloud-volume-plugin=aws --configure-cloud-routes=false"
    ),
    "OpenStack, DaemonSet": (
        "--v=1 --cluster-name=kubernetes --cloud-config=/etc/config/cloud.conf --cloud-provider=openstack "
        "--use-service-account-credentials=false --bind-address=127.0.0.1"
    ),
    "OpenStack, kops": (
        "--leader-elect=true --v=2 --cloud-provider=openstack --use-service-account-credentials=true "
        "--cloud-config=/etc/kubernetes/cloud.config"
    ),
    "vSphere, release manifest": "--cloud-provider=vsphere --v=2 --cloud-config=/etc/cloud/vsphere.conf",
    "Hetzner, chart": (
        "--allow-untagged-cloud --cloud-provider=hcloud "
        "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=false "
        "--route-reconciliation-period=30s --webhook-secure-port=0 --leader-elect=false"
    ),
    "Hetzner, beside k3s": (
        "--cloud-provider=hcloud --leader-elect=false --allow-untagged-cloud --secure-port=10268 "
        "--webhook-secure-port=0 --controllers=service-lb-controller"
    ),
    "Hetzner, with networks": (
        "--allow-untagged-cloud --cloud-provider=hcloud --route-reconciliation-period=30s --webhook-secure-port=0 "
        "--allocate-node-cidrs=true --cluster-cidr=10.244.0.0/16 --leader-elect=false"
    ),
    "DigitalOcean, release manifest": "--leader-elect=false",
    "STACKIT": (
        "--allow-untagged-cloud --cloud-provider=stackit --route-reconciliation-period=30s --webhook-secure-port=0 "
        "--leader-elect=true --leader-elect-resource-name=stackit-cloud-controller-manager "
        "--concurrent-service-syncs=3 --controllers=service-lb-controller"
    ),
    "kubeadm's style, everything about serving": (
        "--cloud-provider=x --authentication-kubeconfig=/etc/kubernetes/ccm.conf "
        "--authorization-kubeconfig=/etc/kubernetes/ccm.conf --bind-address=127.0.0.1 "
        "--client-ca-file=/etc/kubernetes/pki/ca.crt --kubeconfig=/etc/kubernetes/ccm.conf --leader-elect=true "
        "--requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt --profiling=false "
        "--tls-min-version=VersionTLS12 --tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 "
        "--use-service-account-credentials=true --min-resync-period=12h0m0s --cidr-allocator-type=RangeAllocator"
    ),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_real_manifest_is_taken(name: str) -> None:
    outcome = parse(MANIFESTS[name].split(), CATALOG, default_provider="x")
    assert outcome.problems == ()
