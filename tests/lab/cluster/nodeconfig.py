"""What a machine is given to become a node: the configurations of containerd, network plugins,
kubelet and kube-proxy, and the script that its init runs at each boot. Pure.

All files of a node are below /var/lib and /run, of which each machine has its own. The programs are
the host's, which a machine sees.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from tests.lab.cluster.staticimages import PAUSE
from tests.lab.envtest.machine import EVICTION_SIGNALS

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
_KUBELET = "/var/lib/kubelet"
_PROXY = "/var/lib/kube-proxy"
_CONTAINERD = "/var/lib/containerd"
_NETWORKS = "/run/cni"
"""Emptied at each boot: containerd writes the network's file anew when the kubelet knows the Node's
podCIDR, and no address of a pod from before the boot stays taken."""


@frozen(kw_only=True)
class NodePrograms:
    """The paths of the programs on the host."""

    kubelet: Path
    kube_proxy: Path
    cni: Path
    snapshotter: str
    """containerd's: overlayfs, or native where the kernel mounts no overlays."""


@frozen(kw_only=True)
class Role:
    """What makes one machine differ from others."""

    control_plane: bool = False
    images: Sequence[Path] = ()
    """Archives that are imported before the kubelet starts."""


@frozen(kw_only=True)
class NodeNetwork:
    """The cluster's addresses, as nodes need them."""

    pods: str
    dns: str


def user_data(
    role: Role,
    programs: NodePrograms,
    network: NodeNetwork,
    *,
    kubelet_kubeconfig: Mapping[str, Any],
    proxy_kubeconfig: Mapping[str, Any],
    client_authority: str,
) -> str:
    """The script that a machine runs at each boot. It ends only with the machine.

    It starts containerd, imports images, then starts kubelet and kube-proxy; each program that ends
    is started again, as by systemd. Their output is in /var/log of the machine.
    """
    files = {
        f"{_CONTAINERD}/config.toml": containerd_config(programs),
        f"{_NETWORKS}/template.conflist": json.dumps(network_template()),
        f"{_KUBELET}/config.json": json.dumps(kubelet_config(role, network)),
        f"{_KUBELET}/kubeconfig": json.dumps(kubelet_kubeconfig),
        f"{_KUBELET}/client-ca.crt": client_authority,
        f"{_KUBELET}/resolv.conf": "",
        f"{_PROXY}/config.json": json.dumps(proxy_config(network)),
        f"{_PROXY}/kubeconfig": json.dumps(proxy_kubeconfig),
    }
    folders = sorted({str(Path(file).parent) for file in files})
    lines = [
        "#!/bin/sh",
        "set -eu",
        "umask 077",
        f"mkdir -p {' '.join(folders)} {_NETWORKS}/net.d /var/log",
        *(f"echo {base64.b64encode(text.encode()).decode()} | base64 -d > {file}" for file, text in files.items()),
        "umask 022  # otherwise a container that runs as a user could not enter its own file system",
        "run() {",
        "  name=$1; shift",
        "  while :; do",
        '    "$@" >> "/var/log/$name.log" 2>&1 && code=0 || code=$?',
        '    echo "$name ended with $code; it is started again"',
        "    sleep 1",
        "  done",
        "}",
        f"run containerd containerd --config {_CONTAINERD}/config.toml &",
        "until ctr version > /dev/null 2>&1; do sleep 0.2; done",
        *(_import(image, programs.snapshotter) for image in role.images),
        f'sed "s/@ADDRESS@/$MACHINE_ADDRESS/; s/@NAME@/$MACHINE_NAME/" {_PROXY}/config.json > {_PROXY}/own.json',
        f"run kube-proxy {_quoted(programs.kube_proxy)} --config={_PROXY}/own.json &",
        f"run kubelet {_quoted(programs.kubelet)} --config={_KUBELET}/config.json \\",
        f"  --kubeconfig={_KUBELET}/kubeconfig --root-dir={_KUBELET} --cert-dir={_KUBELET}/pki \\",
        "  --cloud-provider=external --v=2 \\",
        '  "--hostname-override=$MACHINE_NAME" "--node-ip=$MACHINE_ADDRESS" &',
        "wait",
    ]
    return "\n".join(lines) + "\n"


def containerd_config(programs: NodePrograms) -> str:
    """Version 2 of its configuration, which every containerd since 1.4 reads."""
    return f"""
version = 2
root = "{_CONTAINERD}/root"
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{_CONTAINERD}/opt"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.grpc.v1.cri"]
  disable_cgroup = true
  disable_apparmor = true
  restrict_oom_score_adj = true
  sandbox_image = "{PAUSE}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{programs.snapshotter}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {json.dumps(str(programs.cni))}
    conf_dir = "{_NETWORKS}/net.d"
    conf_template = "{_NETWORKS}/template.conflist"
"""


def network_template() -> dict[str, Any]:
    """The network of a node's pods. containerd fills in the Node's podCIDR.

    Each pod has a link of its own to the node (ptp), so that what goes from pod to pod on one node
    passes the node's rules too; a bridge would need br_netfilter for that.
    """
    addresses = {
        "type": "host-local",
        "dataDir": f"{_NETWORKS}/addresses",
        "ranges": [[{"subnet": "{{.PodCIDR}}"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": addresses},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def kubelet_config(role: Role, network: NodeNetwork) -> dict[str, Any]:
    taint = {"key": CONTROL_PLANE, "effect": "NoSchedule"}
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{_KUBELET}/client-ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [network.dns],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{_KUBELET}/resolv.conf",
        **({"registerWithTaints": [taint]} if role.control_plane else {}),
        # Somebody waits in front of this cluster for the container that ended to run again.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "5s"},
        "imageGCHighThresholdPercent": 100,  # never: no registry has the images that were imported
        # The disks, cgroups and swap are those of the host, which are none of this node's business.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "evictionHard": dict.fromkeys(EVICTION_SIGNALS, "0%"),
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "oomScoreAdj": 0,
    }


def proxy_config(network: NodeNetwork) -> dict[str, Any]:
    """The script puts the machine's name and address in."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": "@NAME@",
        "bindAddress": "@ADDRESS@",
        "clientConnection": {"kubeconfig": f"{_PROXY}/kubeconfig"},
        "clusterCIDR": network.pods,
        # The limits of conntrack are the host's.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "healthzBindAddress": "0.0.0.0:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "oomScoreAdj": 0,
    }


def _import(image: Path, snapshotter: str) -> str:
    """Once for each disk: the image stays there over a reboot."""
    done = f"{_CONTAINERD}/imported-{image.stem}"
    command = f"ctr -n k8s.io images import --snapshotter {snapshotter} {_quoted(image)}"
    return f"[ -e {shlex.quote(done)} ] || {{ {command} && touch {shlex.quote(done)}; }}"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
