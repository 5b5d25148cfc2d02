"""What a machine of the cluster is given to become a node."""

import base64
import json
import re
from pathlib import Path

import pytest

from tests.cluster.nodeconfig import (
    CONTROL_PLANE,
    NodeNetwork,
    NodePrograms,
    Role,
    kubeconfig,
    kubelet_config,
    user_data,
)  # fmt: skip

NETWORK = NodeNetwork(pods="10.91.0.0/16", dns="10.92.0.10")
PROGRAMS = NodePrograms(
    kubelet=Path("/opt/my programs/kubelet"),
    kube_proxy=Path("/opt/kube-proxy"),
    cni=Path("/usr/lib/cni"),
    snapshotter="overlayfs",
)


def script(role: Role) -> str:
    return user_data(
        role,
        PROGRAMS,
        NETWORK,
        kubelet_kubeconfig=kubeconfig("https://10.90.255.1:6443", "CA", "kubelet's"),
        proxy_kubeconfig=kubeconfig("https://10.90.255.1:6443", "CA", "proxy's"),
        client_authority="CLIENT CA\n",
    )


def files(text: str) -> dict[str, str]:
    found = re.findall(r"^echo (\S*) \| base64 -d > (\S+)$", text, re.MULTILINE)
    return {path: base64.b64decode(content).decode() for content, path in found}


def test_all_that_the_programs_read_is_written_where_only_root_reads_it() -> None:
    text = script(Role())
    written = files(text)
    assert json.loads(written["/var/lib/kubelet/kubeconfig"])["users"][0]["user"]["token"] == "kubelet's"
    assert json.loads(written["/var/lib/kube-proxy/kubeconfig"])["users"][0]["user"]["token"] == "proxy's"
    assert written["/var/lib/kubelet/client-ca.crt"] == "CLIENT CA\n"
    own = kubelet_config(Role(), NETWORK)
    for path in (own["authentication"]["x509"]["clientCAFile"], own["resolvConf"]):
        assert path in written, path
    assert text.index("umask 077") < text.index("echo ") < text.index("umask 022") < text.index("run containerd")


@pytest.mark.parametrize("control_plane", [True, False])
def test_only_the_control_plane_has_its_taint(control_plane: bool) -> None:
    taints = kubelet_config(Role(control_plane=control_plane), NETWORK).get("registerWithTaints", [])
    assert taints == ([{"key": CONTROL_PLANE, "effect": "NoSchedule"}] if control_plane else [])


def test_the_kubelet_asks_the_api_server_who_may_use_it() -> None:
    config = kubelet_config(Role(), NETWORK)
    assert config["authorization"] == {"mode": "Webhook"}
    assert config["authentication"]["anonymous"] == {"enabled": False}
