"""The real kube-apiserver and etcd on free loopback ports: RBAC on, audit log on, data kept over a
restart.

These identities may talk to it: ``token`` is in system:masters, ``manager_token`` is the service
account that the shipped RBAC manifest binds, so that a test run with it shows that the manifest is
enough, ``restricted_token`` has no rights but those that a test gives it, and ``kubelet_tokens``
are the kubelets of a few nodes: what they may do is decided by the Node authorizer and the
NodeRestriction admission, as in a cluster.
"""

from __future__ import annotations

import http.client
import json
import secrets
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import field, frozen
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.lab.envtest.build import assets
from tests.lab.envtest.programs import Programs
from tests.support.https import free_port
from tests.support.kubeconfigs import kubeconfig, write
from tests.support.pki import Authority

MANAGER_USER = "system:serviceaccount:kube-system:cloud-controller-manager"
RESTRICTED_USER = "system:serviceaccount:kube-system:restricted-manager"
KUBELET_NODES = ("node-0000", "node-0001")
"""The nodes whose kubelets have a token."""


@frozen
class Identity:
    """Another one that may talk to the server. Several can share a name: the UID tells them apart
    in the audit log."""

    user: str
    uid: str
    groups: tuple[str, ...] = ()
    token: str = field(factory=lambda: secrets.token_hex(16))


class RealAPIServer:
    """One etcd and one kube-apiserver in a folder of their own.

    ``start`` returns when ``/readyz`` answers; ``restart`` keeps ports, data and identities;
    ``stop`` ends both processes and removes the folder. For one thread at a time.
    """

    def __init__(
        self,
        *,
        audit_level: str = "Request",
        identities: Sequence[Identity] = (),
        address: str = "127.0.0.1",
        port: int | None = None,
        service_range: str = "10.96.0.0/16",
        pods: bool = False,
        folder: Path | None = None,
    ) -> None:
        """`pods`: for a cluster in which pods run: they get service accounts, and the server talks
        to kubelets and to pods' addresses. `folder` must not exist yet."""
        self._audit_level = audit_level
        self._identities = identities
        self._address, self._service_range, self._pods = address, service_range, pods
        if folder is not None:
            folder.mkdir(parents=True)
        self.folder = folder or Path(tempfile.mkdtemp(prefix="envtest-"))
        self.token = secrets.token_hex(16)
        self.manager_token = secrets.token_hex(16)
        self.restricted_token = secrets.token_hex(16)
        self.kubelet_tokens = {name: secrets.token_hex(16) for name in KUBELET_NODES}
        self.client_authority = Authority("client-ca")
        """Signs certificates of clients."""
        self._port, self._etcd_port, self._peer_port = port or free_port(), free_port(), free_port()
        self._programs = Programs(self.folder)

    @property
    def url(self) -> str:
        return f"https://{self._address}:{self._port}"

    @property
    def ca_file(self) -> Path:
        return self.folder / "certs" / "apiserver.crt"

    @property
    def service_account_key(self) -> Path:
        """Signs the tokens of service accounts."""
        return self.folder / "sa.key"

    @property
    def pid(self) -> int:
        """Of kube-apiserver."""
        return self._programs.process("kube-apiserver").pid

    @property
    def audit_log(self) -> Path:
        return self.folder / "audit.log"

    def start(self) -> None:
        """Start both programs; raises RuntimeError with the tail of their logs when they do not get
        ready in 60 s."""
        self._write_files()
        self._start_etcd()
        self._start_apiserver()

    def stop(self, *, kill: bool = False) -> None:
        """End both processes and remove their data. May be called twice. Where clients still watch,
        only `kill` ends the server within seconds."""
        self._programs.close(kill=kill)
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop_apiserver(self, *, kill: bool = False) -> None:
        """End kube-apiserver only; every connection to it breaks."""
        self._programs.end("kube-apiserver", kill=kill)

    def start_apiserver(self) -> None:
        """Start kube-apiserver again on the same port with the same data; returns when it is
        ready."""
        self._start_apiserver()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """kube-apiserver stands still (SIGSTOP) in the body of a with statement: it accepts, and
        answers nothing."""
        process = self._programs.process("kube-apiserver")
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        self.stop_apiserver(kill=True)
        self.start_apiserver()

    def backup(self) -> Path:
        """Stop both programs for a moment, and copy etcd's data; for `restore`."""
        self._programs.end("kube-apiserver")
        self._programs.end("etcd")
        copy = self.folder / f"backup-{secrets.token_hex(4)}"
        shutil.copytree(self.folder / "etcd", copy)
        self._start_etcd()
        self._start_apiserver()
        return copy

    def restore(self, backup: Path) -> None:
        """Put etcd's data back as they were, resourceVersions included, while both programs are
        stopped."""
        self._programs.end("kube-apiserver", kill=True)
        self._programs.end("etcd")
        shutil.rmtree(self.folder / "etcd")
        shutil.copytree(backup, self.folder / "etcd")
        self._start_etcd()
        self._start_apiserver()

    def write_kubeconfig(self, path: Path, *, token: str | None = None) -> Path:
        """Write a kubeconfig for ``token`` (by default the administrator's) to ``path`` and return
        it."""
        return write(path, kubeconfig(self.url, token or self.token, self.ca_file.read_bytes()))

    def audit_events(self, offset: int = 0) -> list[dict[str, Any]]:
        """Every request that the server answered so far, oldest first, as audit.k8s.io/v1 Events.

        With an offset only those after so many bytes of the log, which grows long.
        """
        if not self.audit_log.exists():
            return []
        with self.audit_log.open() as log:
            log.seek(offset)
            lines = log.read().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def _write_files(self) -> None:
        (self.folder / "certs").mkdir(exist_ok=True)
        (self.folder / "client-ca.crt").write_bytes(self.client_authority.pem)
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self.service_account_key.write_bytes(private)
        kubelets = "".join(
            f'{token},system:node:{name},kubelet-{name},"system:nodes"\n' for name, token in self.kubelet_tokens.items()
        )
        others = "".join(f'{one.token},{one.user},{one.uid},"{",".join(one.groups)}"\n' for one in self._identities)
        (self.folder / "tokens.csv").write_text(
            f'{self.token},admin,1,"system:masters"\n'
            f'{self.manager_token},{MANAGER_USER},2,"system:serviceaccounts,system:serviceaccounts:kube-system"\n'
            f'{self.restricted_token},{RESTRICTED_USER},3,"system:serviceaccounts"\n' + kubelets + others
        )
        (self.folder / "audit.json").write_text(json.dumps(_audit_policy(self._audit_level)))

    def _start_etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self._spawn(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=error",
        )

    def _start_apiserver(self) -> None:
        folder = self.folder
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self._port}",
            f"--bind-address={self._address}",
            f"--cert-dir={folder / 'certs'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            f"--client-ca-file={folder / 'client-ca.crt'}",
            "--authorization-mode=Node,RBAC",
            f"--service-account-key-file={self.service_account_key}",
            f"--service-account-signing-key-file={self.service_account_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={self._service_range}",
            "--enable-admission-plugins=NodeRestriction",
            *self._flags_for_pods(),
            "--allow-privileged=true",
            f"--audit-policy-file={folder / 'audit.json'}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-mode=batch",
            "--audit-log-batch-max-wait=200ms",
            "--audit-log-maxsize=100000",  # MB: its readers follow one file
            # Tests and benchmarks must meet the server's own limit, not its fairness queues for one
            # busy client.
            "--max-requests-inflight=2000",
            "--max-mutating-requests-inflight=1000",
        )
        deadline = time.monotonic() + 180
        while not self._ready():
            process = self._programs.process("kube-apiserver")
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"kube-apiserver did not get ready:\n{self._programs.log_tail()}")
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue

    def _flags_for_pods(self) -> Sequence[str]:
        if not self._pods:  # nobody would make the service accounts that a pod must have
            return ["--disable-admission-plugins=ServiceAccount"]
        certificate, key = self.client_authority.client_files(self.folder, "kube-apiserver", ("system:masters",))
        return [
            f"--kubelet-client-certificate={certificate}",
            f"--kubelet-client-key={key}",
            "--kubelet-preferred-address-types=InternalIP,Hostname",
            # Webhooks and proxied Services are reached by their pods' addresses: no kube-proxy runs
            # beside this server.
            "--enable-aggregator-routing=true",
        ]

    def _spawn(self, name: str, *arguments: str) -> None:
        self._programs.spawn(name, [str(assets() / name), *arguments])

    def _ready(self) -> bool:
        if not self.ca_file.exists():
            return False
        try:
            context = ssl.create_default_context(cafile=str(self.ca_file))
        except ssl.SSLError:
            return False  # the certificate is only half written yet
        connection = http.client.HTTPSConnection(self._address, self._port, timeout=5, context=context)
        try:
            connection.request("GET", "/readyz", headers={"Authorization": f"Bearer {self.token}"})
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


def _audit_policy(level: str) -> dict[str, Any]:
    """Writes at this level ("Request" keeps bodies, "Metadata" costs little), those of Leases with
    bodies."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "users": ["system:apiserver"]},
            {"level": "Request", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
            {"level": level, "verbs": ["create", "update", "patch", "delete"]},
            {"level": "Metadata"},
        ],
    }
