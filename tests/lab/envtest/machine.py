"""A machine that can be a node: a containerd of its own, and a real kubelet that is started and
stopped at will.

Nothing of it stays on the host that runs the tests. Data, sockets and logs are in a temporary
folder. What both programs write to fixed places goes to file systems that only they see (a mount
namespace of their own, which ends with them): /var/lib, /var/log, and the kernel's settings that a
kubelet changes. They listen on no port, and the kernel ends them when the test process dies,
however it dies. No images are pulled and no pods run.
"""

from __future__ import annotations

import fcntl
import ipaddress
import json
import os
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.lab.envtest.build import AssetsMissing, cache, kubelet
from tests.lab.envtest.programs import Programs

STATUS_PERIOD = 0.5
"""Seconds between two status updates of the kubelet; 10 s and 5 min by default."""
_HIDDEN = (Path("/var/lib"), Path("/var/log"))
"""A kubelet writes to /var/lib/kubelet/device-plugins and /var/log/containers, wherever its own
folder is."""
_KERNEL_SETTINGS: Mapping[str, int] = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
"""What a kubelet wants to find, and otherwise sets, for the whole host (setupKernelTunables)."""
EVICTION_SIGNALS = (
    "memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
)  # fmt: skip
_PACKAGES = {"containerd": "containerd", "unshare": "util-linux", "setpriv": "util-linux", "mount": "mount"}
_NETWORK = {
    "cniVersion": "1.0.0",
    "name": "no-pods",
    "plugins": [{"type": "bridge"}],
}
"""A network that containerd finds configured, so that the node becomes Ready; no pod ever uses
it."""


def check_machine() -> None:
    """Raises AssetsMissing with all that this host lacks to be a node, but for the kubelet, which
    can be built."""
    if sys.platform != "linux":
        raise AssetsMissing("a kubelet runs on Linux only")
    absent = [tool for tool in _PACKAGES if shutil.which(tool) is None]
    problems = [f"{tool} is not in PATH (Debian, Ubuntu: apt-get install {_PACKAGES[tool]})" for tool in absent]
    if os.geteuid() != 0:
        problems.append("a kubelet must run as root (sudo)")
    elif "unshare" not in absent and not _may_mount():
        problems.append("mount namespaces are not allowed here (a container needs --privileged)")
    if not Path("/dev/kmsg").exists():
        problems.append("there is no /dev/kmsg (a container needs --privileged)")
    if host_ip() is None:
        problems.append("no network interface has an IPv4 address, besides loopback")
    for variable, used in (("TMPDIR", Path(tempfile.gettempdir())), ("XDG_CACHE_HOME", cache())):
        if any(used.resolve().is_relative_to(hidden) for hidden in _HIDDEN):
            problems.append(f"{used} is in a folder that the kubelet must not see (set {variable} to another place)")
    if problems:
        raise AssetsMissing("a real kubelet cannot run here: " + "; ".join(problems))


def host_ip() -> str | None:
    """An IPv4 address of this host that a kubelet accepts as ``--node-ip``: not loopback, not
    link-local."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an IPv4 address
                answer = fcntl.ioctl(asked, 0x8915, struct.pack("256s", name.encode()))  # SIOCGIFADDR
                address = ipaddress.IPv4Address(answer[20:24])
                if not (address.is_loopback or address.is_link_local):
                    return str(address)
    return None


def _may_mount() -> bool:
    return subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


class Machine:
    """One containerd, and a kubelet as its test wants it. For one thread at a time.

    `start` returns when containerd answers; `stop` ends both and removes the folder.
    """

    def __init__(self) -> None:
        self._kubelet = kubelet().resolve()
        self.folder = Path(tempfile.mkdtemp(prefix="machine-")).resolve()
        self._socket = self.folder / "containerd.sock"
        self._programs = Programs(self.folder)

    def start(self) -> None:
        """Start containerd; raises RuntimeError with the tail of its log when it does not answer in
        60 s."""
        self._write_files()
        self._spawn("containerd", "containerd", "--config", str(self.folder / "containerd.toml"))
        deadline = time.monotonic() + 60
        while not self._answers():
            self.check_running("containerd")
            if time.monotonic() > deadline:
                raise RuntimeError(f"containerd does not answer:\n{self._programs.log_tail()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End both programs and remove their data. May be called twice."""
        self._programs.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_kubelet(
        self, name: str, kubeconfig: Path, *, node_ip: str | None = None, flags: Sequence[str] = ()
    ) -> None:
        """Start the kubelet as that node's, for a cluster with an external cloud provider; returns
        at once.

        What it kept of an earlier run (checkpoints, the seed of its machine) is still there, as
        after a restart. `flags` count more than those that are given here.
        """
        own = [
            f"--config={self.folder / 'kubelet.json'}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={name}",
            f"--root-dir={self.folder / 'kubelet'}",
            f"--cert-dir={self.folder / 'pki'}",
            "--cloud-provider=external",
            "--v=2",
        ]
        self._spawn("kubelet", str(self._kubelet), *own, *([f"--node-ip={node_ip}"] if node_ip else []), *flags)

    def stop_kubelet(self) -> None:
        """Stop it, as the machine's shutdown does; its Node keeps its last status. Nothing where it
        does not run."""
        self._programs.end("kubelet")

    def check_running(self, name: str = "kubelet") -> None:
        """Raises RuntimeError with the tails of the logs if the program has ended by itself."""
        code = self._programs.process(name).poll()
        if code is not None:
            raise RuntimeError(f"{name} ended with {code}:\n{self._programs.log_tail()}")

    def log_tail(self) -> str:
        return self._programs.log_tail()

    def _spawn(self, name: str, program: str, *arguments: str) -> None:
        script = "; ".join(["set -e", *self._mounts(), 'exec "$@"'])
        namespace = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
        self._programs.spawn(name, ["setpriv", "--pdeathsig", "KILL", *namespace, program, *arguments])

    def _mounts(self) -> Iterator[str]:
        for hidden in _HIDDEN:
            yield f"mount -t tmpfs machine {hidden}"
        for setting in _KERNEL_SETTINGS:
            yield f"mount --bind {shlex.quote(str(self.folder / 'sys' / setting))} /proc/sys/{setting}"

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(self._socket)) == 0

    def _write_files(self) -> None:
        for setting, value in _KERNEL_SETTINGS.items():
            file = self.folder / "sys" / setting
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{value}\n")
        networks = self.folder / "networks"
        networks.mkdir()
        (networks / "10-no-pods.conflist").write_text(json.dumps(_NETWORK))
        (self.folder / "containerd.toml").write_text(_containerd_config(self.folder, self._socket))
        (self.folder / "kubelet.json").write_text(json.dumps(_kubelet_config(self.folder, self._socket)))


def _containerd_config(folder: Path, address: Path) -> str:
    """Version 2 of its configuration, which every containerd since 1.4 reads."""

    def text(name: str) -> str:
        return json.dumps(str(folder / name))

    return f"""
version = 2
root = {text("containerd/root")}
state = {text("containerd/state")}
[debug]
  level = "warn"
[grpc]
  address = {json.dumps(str(address))}
[plugins."io.containerd.internal.v1.opt"]
  path = {text("containerd/opt")}
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.grpc.v1.cri"]
  disable_cgroup = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {text("networks/bin")}
    conf_dir = {text("networks")}
"""


def _kubelet_config(folder: Path, containerd: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{containerd}",
        "nodeStatusUpdateFrequency": f"{STATUS_PERIOD}s",
        "nodeStatusReportFrequency": f"{STATUS_PERIOD}s",
        "enableServer": False,
        "healthzPort": 0,
        "podLogsDir": str(folder / "pods"),
        "volumePluginDir": str(folder / "volume-plugins"),
        # The tests' host is no node: its cgroups, swap, disks and firewall are none of this
        # kubelet's business.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "evictionHard": dict.fromkeys(EVICTION_SIGNALS, "0%"),
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
    }
