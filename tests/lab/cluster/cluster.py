"""A whole cluster on one machine: a cloud, a control plane, nodes, our manager from its image by
its chart, DNS, and a page behind a load balancer.

    with Cluster() as cluster:
        cluster.kubectl("get", "nodes")
        cluster.cloud.call("POST", "/v1/machines/m1/stop")

All of it is in one folder and under one name in the kernel. Leaving the with statement takes
everything away; and a start takes away what an earlier one left, however that ended.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import IO, Any, Self

from localcloud.layout import Layout

from tests.lab.cluster import staticimages
from tests.lab.cluster.controlplane import ControlPlane
from tests.lab.cluster.discard import discard
from tests.lab.cluster.localcloud import LocalCloud
from tests.lab.cluster.logs import save_logs
from tests.lab.cluster.manifests import DEMO, chart_values, demo, dns
from tests.lab.cluster.needs import check_host, cni_folder
from tests.lab.cluster.nodeconfig import CONTROL_PLANE, NodeNetwork, NodePrograms, Role, user_data
from tests.lab.cluster.options import MachineSpec, Options
from tests.lab.cluster.progress import Progress
from tests.lab.cluster.provider import read_provider
from tests.lab.cluster.state import node_lacks, pods_lack, unready_of
from tests.lab.envtest.build import CLUSTER_PROGRAMS, AssetsMissing, assets, cluster_program, kubelet, tool
from tests.lab.image.archives import ROOT, ManagerImage, manager_image
from tests.lab.image.buildah import overlay_works
from tests.support.api import API, NODES, STRATEGIC, Refused

MANAGER = "cloud-controller-manager"
"""The name of the chart's release, and of its Deployment in kube-system."""
CHART = ROOT / "examples" / "deploy" / "chart"
SECONDS = 300.0
"""How long each part of the start may take, once all is built."""


class ClusterError(Exception):
    """The cluster did not get ready; the text says what is lacking and where the logs are."""


class Cluster:
    """Not thread-safe, but for `kubectl`, `cloud.call` and `api`, once it runs."""

    def __init__(self, options: Options | None = None, say: Callable[[str], object] = lambda line: None) -> None:
        self.options = options or Options()
        self.folder = self.options.folder / self.options.name
        self.progress = Progress(say)
        layout = Layout(
            name=self.options.name,
            base=self.options.base,
            pool=IPv4Network(self.options.pool),
            folder=self.folder / "cloud",
        )
        self.cloud = LocalCloud(layout)
        self._provider = read_provider(self.options.provider)
        self._control_plane: ControlPlane | None = None
        self._lock: IO[str] | None = None
        self.image: ManagerImage | None = None
        """The manager's, once it is built."""

    def __enter__(self) -> Self:
        """Start the cluster; a start that fails takes away what it made. Raises ClusterError,
        Missing, BadProvider, RuntimeError and CalledProcessError."""
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # What tests and people use

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "kubeconfig"

    @property
    def api(self) -> API:
        """The API server, as administrator."""
        return self._plane.api

    @property
    def control_plane(self) -> ControlPlane:
        """etcd, kube-apiserver with its audit log, kube-controller-manager and kube-scheduler."""
        return self._plane

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl prints. Raises ClusterError with what it says on stderr."""
        return self._run(str(cluster_program("kubectl")), f"--kubeconfig={self.kubeconfig}", *arguments, stdin=stdin)

    def helm(self, *arguments: str) -> str:
        """As `kubectl`, for helm."""
        return self._run(str(tool("helm")), f"--kubeconfig={self.kubeconfig}", *arguments)

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Create or change these objects, as `kubectl apply` does."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects]}))

    def run(self, machine: str, *command: str) -> str:
        """What a command prints inside a machine. Raises ClusterError."""
        return self._run(*self.cloud.enter(machine, command))

    def import_image(self, archive: Path, machines: Iterable[str] | None = None) -> None:
        """Give machines (all) an image of a docker-archive or OCI archive. It is there after a
        reboot, but not on a machine that is made later."""
        for machine in machines if machines is not None else [spec.name for spec in self.options.machines]:
            self.run(
                machine, "ctr", "-n", "k8s.io", "images", "import", "--snapshotter", self._snapshotter, str(archive)
            )

    def create_machine(self, spec: MachineSpec) -> dict[str, Any]:
        """Make a machine that becomes a node; one of the options' machines or spares only, as the
        API server knows no other kubelet."""
        marks = {"taints": [*spec.taints], "annotations": {**spec.annotations}}
        return self.cloud.create_machine(spec.name, self._user_data(spec), zone=spec.zone, **marks)

    def install_manager(self, image: ManagerImage | None = None, *, release: str = MANAGER, **values: object) -> None:
        """Install or upgrade the manager's chart, or with another `release` a second manager beside
        it. More values for it are merged into those of the cluster, as by helm. The image must be
        on the machines."""
        image = image or self.image
        assert image is not None
        files = []
        for number, layer in enumerate((self._values(image), self.options.values, values)):
            file = self.folder / f"values-{number}.json"
            file.touch(0o600)
            file.write_text(json.dumps(layer))
            files.append(f"--values={file}")
        # A release that failed, or that was cut off, is no base for an upgrade.
        self.helm("upgrade", "--install", release, str(CHART), "--namespace=kube-system", *files)

    def wait(self, what: str, lacking: Callable[[], str], seconds: float = SECONDS) -> None:
        """Until `lacking` returns "". Raises ClusterError with its last answer."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                answer = lacking()
            except (OSError, Refused) as problem:
                answer = str(problem)
            if not answer:
                return
            self._plane.check_running()
            if time.monotonic() > deadline:
                raise ClusterError(f"{what}: not after {seconds:.0f} s: {answer}. Logs: {self._save_logs()}")
            self.progress.waiting(answer)
            time.sleep(0.5)

    def wait_for_nodes(self, names: Sequence[str]) -> None:
        """Until these nodes are Ready and the manager has done its work on them."""
        self.wait("the nodes", lambda: "; ".join(self._nodes_lack(names)))

    def wait_for_deployment(self, namespace: str, name: str) -> None:
        """Until all pods of a Deployment are of its last version and ready."""
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        pods = f"/api/v1/namespaces/{namespace}/pods"

        def lacking() -> str:
            unready = unready_of(self.api.get(path))
            return unready and (pods_lack(name, self.api.get(pods)["items"]) or unready)

        self.wait(name, lacking)

    def demo_url(self) -> str:
        """Where the demo's page is; "" until its load balancer has an address."""
        service = self.api.get(f"/api/v1/namespaces/default/services/{DEMO}")
        ingress = service["status"].get("loadBalancer", {}).get("ingress") or [{}]
        address = ingress[0].get("ip") or ingress[0].get("hostname")
        return f"http://{address}/" if address else ""

    # Start and end

    def start(self) -> None:
        """As entering the with statement, but what was made stays when it fails, until `stop`."""
        check_host([self.options.folder, ROOT], programs_built=self._programs_built())
        self._take_lock()
        self._build()
        with self.progress.part("what an earlier cluster left is gone"):
            self._clear()
        with self.progress.part(f"cloud: {self.cloud.url}"):
            self.cloud.start()
        self._start_control_plane()
        with self.progress.part(f"machines: {', '.join(spec.name for spec in self.options.machines)}"):
            for spec in self.options.machines:
                self.create_machine(spec)
        with self.progress.part("nodes: registered by their kubelets"):
            self.wait("the nodes' kubelets", self._unregistered)
            self._label_control_plane()
        with self.progress.part(f"manager: {MANAGER} installed with helm, provider {self._provider.name}"):
            self.install_manager()
        with self.progress.part("nodes: initialised, routed and Ready"):
            self.wait("the nodes", self._manager_and_nodes_lack)
        with self.progress.part("manager: both replicas ready"):
            self.wait_for_deployment("kube-system", MANAGER)
        with self.progress.part("DNS: CoreDNS ready"):
            self.wait_for_deployment("kube-system", "coredns")
        self._show_demo()

    def stop(self) -> None:
        """Take everything away; the machines' disks are deleted in the background. May be called
        twice, and whatever `start` did."""
        if self._lock is None:
            return
        self._clear()
        self._lock.close()
        self._lock = None

    def _take_lock(self) -> None:
        self.options.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (self.options.folder / f"{self.options.name}.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            lock.close()
            raise ClusterError(
                f"a cluster with the name {self.options.name} runs already; its kubeconfig: {self.kubeconfig}"
            ) from problem
        self._lock = lock

    def _clear(self) -> None:
        if self._control_plane is not None:
            self._control_plane.stop()
            self._control_plane = None
        self.cloud.destroy()
        discard(self.folder)

    def _programs_built(self) -> bool:
        try:
            self._programs(build=False)
        except AssetsMissing:
            return False
        return True

    @staticmethod
    def _programs(*, build: bool) -> None:
        assets(build=build)
        kubelet(build=build)
        for name in CLUSTER_PROGRAMS:
            cluster_program(name, build=build)
        tool("helm", build=build, always=True)

    def _build(self) -> None:
        with self.progress.part("programs of Kubernetes, built once"):
            self._programs(build=True)
        with self.progress.part(f"image with {self._provider.folder.name}, built when its content changes"):
            self.image = manager_image(self._provider.folder)

    def _start_control_plane(self) -> None:
        layout = self.cloud.layout
        self._control_plane = ControlPlane(
            self.folder / "control-plane",
            address=str(layout.host_address),
            service_range=str(layout.services_network),
            nodes=[spec.name for spec in (*self.options.machines, *self.options.spares)],
        )
        with self.progress.part(f"control plane: {self._plane.server.url}"):
            self._plane.start()
            self._plane.server.write_kubeconfig(self.kubeconfig)
            self._write_images()
            self._plane.wait_for_default_account(time.monotonic() + SECONDS)
            self.apply(dns(self._network.dns))

    def _write_images(self) -> None:
        folder = self._image_folder
        folder.mkdir(exist_ok=True)
        busybox = Path(shutil.which("busybox") or "busybox")
        forever = ("sleep", "1000000000")
        staticimages.busybox_image(folder / "pause.tar", staticimages.PAUSE, busybox, forever)
        staticimages.busybox_image(folder / "busybox.tar", staticimages.BUSYBOX, busybox, forever)
        coredns = cluster_program("coredns")
        staticimages.static_image(folder / "coredns.tar", staticimages.COREDNS, coredns, ["/bin/coredns"])

    def _show_demo(self) -> None:
        with self.progress.part("demo: a Service of type LoadBalancer, its page fetched from this host"):
            self.apply(demo())
            self.wait_for_deployment("default", DEMO)
            if self.options.on_local_cloud:  # how another cloud's addresses are reached is its own matter
                self.wait("the demo's page", self._page_lacks)

    # What is lacking

    def _unregistered(self) -> str:
        present = {node["metadata"]["name"] for node in self.api.get(NODES)["items"]}
        return "; ".join(f"{s.name} is not registered" for s in self.options.machines if s.name not in present)

    def _nodes_lack(self, wanted: Iterable[str]) -> Iterator[str]:
        nodes = {node["metadata"]["name"]: node for node in self.api.get(NODES)["items"]}
        if not self.options.on_local_cloud:
            self._route_pods(nodes.values())
        for name in wanted:
            lacks = node_lacks(nodes[name]) if name in nodes else "is not registered"
            if lacks:
                yield f"{name} {lacks}"

    def _manager_and_nodes_lack(self) -> str:
        lacking = "; ".join(self._nodes_lack(spec.name for spec in self.options.machines))
        if not lacking:
            return ""
        return pods_lack(MANAGER, self.api.get("/api/v1/namespaces/kube-system/pods")["items"]) or lacking

    def _page_lacks(self) -> str:
        url = self.demo_url()
        if not url:
            return "the Service has no address yet"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                page = answer.read().decode()
        except urllib.error.URLError as problem:
            return f"{url}: {problem.reason}"
        return "" if page.startswith("Hello from") else f"{url} is another page: {page[:80]!r}"

    # Parts

    @property
    def _plane(self) -> ControlPlane:
        if self._control_plane is None:
            raise ClusterError("the cluster does not run")
        return self._control_plane

    @property
    def _network(self) -> NodeNetwork:
        layout = self.cloud.layout
        return NodeNetwork(pods=str(layout.pods_network), dns=str(layout.services_network[10]))

    @property
    def _image_folder(self) -> Path:
        return self.folder / "images"

    @property
    def _snapshotter(self) -> str:
        return "overlayfs" if overlay_works(self.folder) else "native"

    def _user_data(self, spec: MachineSpec) -> str:
        assert self.image is not None
        cni = cni_folder()
        assert cni is not None, "checked at the start"
        images = [self._image_folder / f"{name}.tar" for name in ("pause", "busybox", "coredns")]
        return user_data(
            Role(control_plane=spec.control_plane, images=[*images, *([self.image.archive] * spec.control_plane)]),
            NodePrograms(
                kubelet=kubelet(), kube_proxy=cluster_program("kube-proxy"), cni=cni, snapshotter=self._snapshotter
            ),
            self._network,
            kubelet_kubeconfig=self._plane.kubelet_kubeconfig(spec.name),
            proxy_kubeconfig=self._plane.proxy_kubeconfig(),
            client_authority=self._plane.server.client_authority.pem.decode(),
        )

    def _values(self, image: ManagerImage) -> Mapping[str, object]:
        config = self.options.cloud_config
        layout = self.cloud.layout
        return chart_values(
            repository=image.repository,
            tag=image.tag,
            provider=self._provider.name,
            cluster=self.options.name,
            cloud_config=json.dumps({"url": self.cloud.url, "token": self.cloud.token}) if config is None else config,
            pod_range=str(layout.pods_network),
            service_range=str(layout.services_network),
        )

    def _label_control_plane(self) -> None:
        """As kubeadm does: a kubelet may not give itself such labels."""
        labels = {CONTROL_PLANE: "", "node.kubernetes.io/exclude-from-external-load-balancers": ""}
        for spec in self.options.machines:
            if spec.control_plane:
                self.api.patch(f"{NODES}/{spec.name}", {"metadata": {"labels": labels}}, STRATEGIC)

    def _route_pods(self, nodes: Iterable[Mapping[str, Any]]) -> None:
        """The routes to the nodes' pods, which a provider of another cloud does not make here."""
        machines = self.cloud.machines()
        present = {route["name"] for route in self.cloud.call("GET", "/v1/routes")["routes"]}
        for node in nodes:
            name, pods = node["metadata"]["name"], node["spec"].get("podCIDR")
            if pods and name in machines and f"pods-{name}" not in present:
                body = {"destination": pods, "machine": machines[name]["id"]}
                self.cloud.call("PUT", f"/v1/routes/pods-{name}", body)

    def _run(self, *command: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, env=self._environment()
        )
        if done.returncode:
            said = done.stderr.strip() or done.stdout.strip()
            raise ClusterError(f"{Path(command[0]).name} {' '.join(command[1:])}: {said}")
        return done.stdout

    def _environment(self) -> Mapping[str, str]:
        helm = {f"HELM_{kind}_HOME": str(self.folder / "helm") for kind in ("CACHE", "CONFIG", "DATA")}
        return {"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder), **helm}

    def _save_logs(self) -> Path:
        """To where `stop` leaves them."""
        return save_logs(self.folder, self.options.folder / f"{self.options.name}-logs", self.kubectl)
