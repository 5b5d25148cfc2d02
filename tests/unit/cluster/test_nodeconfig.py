"""What a machine of the cluster is given to become a node."""

import base64
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.cluster.nodeconfig import (
    CONTROL_PLANE,
    NodeNetwork,
    NodePrograms,
    Role,
    containerd_config,
    kubeconfig,
    kubelet_config,
    network_template,
    proxy_config,
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


def test_the_script_is_a_shell_script() -> None:
    done = subprocess.run(["sh", "-n"], input=script(Role()), text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


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


def test_files_are_only_in_folders_that_a_machine_has_for_itself() -> None:
    assert all(path.startswith(("/var/lib/", "/run/")) for path in files(script(Role())))


def test_images_are_imported_once_before_the_kubelet_starts() -> None:
    text = script(Role(images=[Path("/images/a b.tar")]))
    line = next(line for line in text.splitlines() if "images import" in line)
    assert line == (
        "[ -e '/var/lib/containerd/imported-a b' ] || { ctr -n k8s.io images import --snapshotter overlayfs "
        "'/images/a b.tar' && touch '/var/lib/containerd/imported-a b'; }"
    )
    assert text.index("run containerd ") < text.index("ctr version") < text.index(line) < text.index("run kubelet ")


def test_a_program_that_ends_is_started_again(tmp_path: Path) -> None:
    body = script(Role())
    function = body[body.index("run() {") : body.index("\n}\n") + 3].replace("/var/log", str(tmp_path))
    # The second start ends the loop, by ending the shell whose number is $PPID there.
    program = f'echo "$0" >> {tmp_path}/starts; [ "$(wc -l < {tmp_path}/starts)" = 1 ] || kill $PPID; exit 3'
    done = subprocess.run(
        ["sh", "-eu", "-c", f"{function}sleep() {{ :; }}\nrun it sh -c '{program}'"], capture_output=True, text=True
    )
    assert (tmp_path / "starts").read_text().splitlines() == ["sh", "sh"]
    assert "it ended with 3; it is started again" in done.stdout


@pytest.mark.parametrize("control_plane", [True, False])
def test_only_the_control_plane_has_its_taint(control_plane: bool) -> None:
    taints = kubelet_config(Role(control_plane=control_plane), NETWORK).get("registerWithTaints", [])
    assert taints == ([{"key": CONTROL_PLANE, "effect": "NoSchedule"}] if control_plane else [])


def test_the_kubelet_asks_the_api_server_who_may_use_it() -> None:
    config = kubelet_config(Role(), NETWORK)
    assert config["authorization"] == {"mode": "Webhook"}
    assert config["authentication"]["anonymous"] == {"enabled": False}


def test_containerd_reads_its_configuration_and_fills_in_the_network() -> None:
    config = tomllib.loads(containerd_config(PROGRAMS))
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    template = "/run/cni/template.conflist"
    assert cri["cni"] == {"bin_dir": "/usr/lib/cni", "conf_dir": "/run/cni/net.d", "conf_template": template}
    assert files(script(Role()))[template] == json.dumps(network_template())
    assert '"subnet": "{{.PodCIDR}}"' in json.dumps(network_template())


def test_the_proxy_gets_the_machines_name_and_address(tmp_path: Path) -> None:
    line = next(line for line in script(Role()).splitlines() if line.startswith("sed "))
    source = tmp_path / "config.json"
    source.write_text(json.dumps(proxy_config(NETWORK)))
    done = subprocess.run(
        ["sh", "-c", line.split(" > ")[0].replace("/var/lib/kube-proxy/config.json", str(source))],
        env={"MACHINE_ADDRESS": "10.90.0.12", "MACHINE_NAME": "worker-1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    config = json.loads(done.stdout)
    assert (config["hostnameOverride"], config["bindAddress"]) == ("worker-1", "10.90.0.12")
    assert config["clusterCIDR"] == "10.91.0.0/16"
