"""The control plane that a vendor would manage: etcd, kube-apiserver, kube-controller-manager and
kube-scheduler on the host, at an address that the machines reach.

Nodes get their pod CIDRs from our node-ipam-controller, not from kube-controller-manager, and
routes from our route controller: so the cluster only works if what is shipped works.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.lab.envtest.build import cluster_program
from tests.lab.envtest.programs import Programs
from tests.lab.envtest.server import Identity, RealAPIServer
from tests.support.api import API
from tests.support.https import free_port
from tests.support.kubeconfigs import kubeconfig, write

PORT = 6443
_POD_CIDRS = "pod-cidrs"
_CONTROLLERS, _SCHEDULER = "kube-controller-manager", "kube-scheduler"


class ControlPlane:
    """For one thread at a time. `start` returns when the API server is ready; `stop` ends all."""

    def __init__(self, folder: Path, *, address: str, service_range: str, nodes: Sequence[str]) -> None:
        users = [Identity(f"system:{name}", name) for name in (_CONTROLLERS, _SCHEDULER, "kube-proxy")]
        kubelets = [Identity(f"system:node:{node}", f"kubelet-{node}", ("system:nodes",)) for node in nodes]
        self._tokens = {one.user: one.token for one in (*users, *kubelets)}
        self.server = RealAPIServer(
            audit_level="Metadata",
            identities=[*users, *kubelets],
            address=address,
            port=PORT,
            service_range=service_range,
            pods=True,
            folder=folder,
        )
        self._programs = Programs(folder)

    @property
    def api(self) -> API:
        """As administrator."""
        return API(self.server.url, self.server.token, self.server.ca_file)

    def start(self) -> None:
        """Raises RuntimeError with the tails of the logs when a program does not get ready in
        60 s."""
        self.server.start()
        clients = f"--client-ca-file={self.server.folder / 'client-ca.crt'}"
        self._spawn(_CONTROLLERS, _CONTROLLERS, clients, *self._controllers())
        self._spawn(_SCHEDULER, _SCHEDULER, clients)

    def give_out_pod_cidrs(self, pods: str, services: str) -> None:
        """Start one more kube-controller-manager, whose only work that is, as in most clusters.
        Nobody else may do it."""
        self._spawn(
            _POD_CIDRS,
            _CONTROLLERS,
            "--use-service-account-credentials=true",
            "--controllers=node-ipam-controller",
            "--cloud-provider=external",
            "--allocate-node-cidrs=true",
            f"--cluster-cidr={pods}",
            f"--service-cluster-ip-range={services}",
        )

    def _spawn(self, name: str, program: str, *flags: str) -> None:
        """Start a program of Kubernetes under a name; who it is to the API server is said by the
        program's."""
        folder = self.server.folder
        own = (
            f"--kubeconfig={write(folder / f'{name}.kubeconfig', self._kubeconfig(program))}",
            f"--secure-port={free_port()}",
            f"--cert-dir={folder / f'{name}-certs'}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
        )
        self._programs.spawn(name, [str(cluster_program(program)), *own, *flags])

    def stop_pod_cidrs(self) -> None:
        """End what `give_out_pod_cidrs` started."""
        self._programs.end(_POD_CIDRS, kill=True)

    def stop(self) -> None:
        """End all programs and remove their data. May be called twice."""
        self._programs.close(kill=True)
        self.server.stop(kill=True)

    def check_running(self) -> None:
        """Raises RuntimeError with the tails of the logs if a program has ended by itself."""
        for name in (_CONTROLLERS, _SCHEDULER):
            code = self._programs.process(name).poll()
            if code is not None:
                raise RuntimeError(f"{name} ended with {code}:\n{self._programs.log_tail()}")

    def kubelet_kubeconfig(self, node: str) -> Mapping[str, Any]:
        return self._kubeconfig(f"node:{node}")

    def proxy_kubeconfig(self) -> Mapping[str, Any]:
        return self._kubeconfig("kube-proxy")

    def wait_for_default_account(self, deadline: float) -> None:
        """Until pods can be created: the namespace's service account is there. Raises
        RuntimeError."""
        while self.api.find("/api/v1/namespaces/default/serviceaccounts/default") is None:
            self.check_running()
            if time.monotonic() > deadline:
                raise RuntimeError(f"kube-controller-manager makes no service accounts:\n{self._programs.log_tail()}")
            time.sleep(0.2)

    def _kubeconfig(self, user: str) -> dict[str, Any]:
        return kubeconfig(self.server.url, self._tokens[f"system:{user}"], self.server.ca_file.read_bytes())

    def _controllers(self) -> Sequence[str]:
        return [
            "--cloud-provider=external",
            "--configure-cloud-routes=false",
            "--allocate-node-cidrs=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self.server.service_account_key}",
            f"--root-ca-file={self.server.ca_file}",
        ]
