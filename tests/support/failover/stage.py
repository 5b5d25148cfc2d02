"""One real API server, one shared cloud, two managers under a supervisor, and the judge: for tests
of the failover."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Literal

from attrs import frozen

from cloudprovider.testing.fake import FakeCloud, FakeConfig
from cloudprovider.testing.waiting import eventually
from tests.bench.contenders import UNCAPPED
from tests.envtest.build import go_manager
from tests.envtest.server import MANAGER_USER, Identity, RealAPIServer
from tests.support.api import API, NODES
from tests.support.failover.agreement import disagreement
from tests.support.failover.audit import AuditLog
from tests.support.failover.churn import POD_RANGE, Churn, node
from tests.support.failover.cloudserver import CloudServer
from tests.support.failover.fencing import Hold, Verdict, holds, judge
from tests.support.failover.supervisor import Candidate, Command, Supervisor
from tests.support.proxy import ChaosProxy
from tests.support.rights import apply_rbac, await_namespaces

__all__ = ["LEASE", "Kind", "Stage", "Timing", "stage"]

Kind = Literal["ours", "go"]
LEASE: Final = "cloud-controller-manager"
_CANDIDATES: Final = 128
_FILL_THREADS: Final = 8
_SERVICE_ACCOUNT_GROUPS: Final = ("system:serviceaccounts", "system:serviceaccounts:kube-system")


@frozen
class Timing:
    """Of the Lease, in seconds, as the flags of that name."""

    lease_duration: int = 15
    renew_deadline: float = 10
    retry_period: float = 2

    def flags(self) -> list[str]:
        return [
            "--leader-elect=true",
            f"--leader-elect-lease-duration={self.lease_duration}s",
            f"--leader-elect-renew-deadline={self.renew_deadline}s",
            f"--leader-elect-retry-period={self.retry_period}s",
        ]


class Stage:
    """What a test of the take-over looks at and acts on. Made by `stage`."""

    def __init__(
        self,
        server: RealAPIServer,
        api: API,
        cloud: CloudServer,
        supervisor: Supervisor,
        identities: Sequence[Identity],
        timing: Timing,
        nodes: int,
        proxy: ChaosProxy | None,
    ) -> None:
        self.server = server
        self.proxy = proxy
        self.api = api
        self.cloud = cloud
        self.supervisor = supervisor
        self.timing = timing
        self._identities = identities
        self._nodes = nodes
        self._audit = AuditLog(server.audit_log)

    def holds(self) -> list[Hold]:
        """Who led when, by the UIDs of their tokens."""
        return holds(self._audit.read(), LEASE)

    def leader(self) -> Candidate | None:
        """The candidate that holds the Lease, if its process runs and its time is not over."""
        found = self.holds()
        if not found or found[-1].end < time.time():
            return None
        one = self._of(found[-1].who)
        return one if one.process.poll() is None else None

    def await_leader(self, *, but: Candidate | None = None, timeout: float = 60.0) -> Candidate:
        """The leader, once there is one that is not `but`."""

        def found() -> Candidate | None:
            leader = self.leader()
            return None if but is not None and leader is not None and leader.name == but.name else leader

        one = eventually(found, timeout, self.logs)
        assert one is not None
        return one

    def standby(self, leader: Candidate) -> Candidate | None:
        """The other candidate, once it has asked for the Lease; ours has then listed what it
        caches."""
        asked = {one.who for one in self._audit.read() if one.resource == "leases"}
        listed = {one.who for one in self._audit.read() if one.resource == "nodes" and one.verb in ("list", "watch")}
        for one in self.supervisor.running():
            uid = self._uid(one)
            if one.name != leader.name and uid in asked and (one.name.startswith("go") or uid in listed):
                return one
        return None

    def await_agreement(self, timeout: float) -> float:
        """Wait until cloud and cluster agree; returns how long that took, in seconds."""
        began = time.monotonic()

        def agree() -> bool:
            problem = disagreement(self.api, self.cloud.cloud.config.provider, self.cloud.cloud.console)
            assert not problem, problem
            return True

        eventually(agree, timeout, self.logs)
        return time.monotonic() - began

    def verdict(self, slack: float = 0.0) -> Verdict:
        """What the audit log and the cloud's journal say of all that was done so far."""
        time.sleep(0.5)  # the audit log is written in batches of 200 ms
        managers = {self._uid(one): one.name for one in self.supervisor.candidates()}
        return judge(self._audit.read(), self.cloud.calls, managers, LEASE, slack)

    def churn(self, *, seed: int, rate: float = 5.0, most: float = math.inf) -> Churn:
        return Churn(self.api, self.cloud.cloud, self._nodes, seed=seed, rate=rate, most=most)

    def logs(self) -> str:
        """The ends of all candidates' logs, for a failure."""
        return "\n".join(
            f"--- {one.name}, exit code {one.code}\n" + "\n".join(one.log.splitlines()[-15:])
            for one in self.supervisor.candidates()[-4:]
        )

    def _uid(self, candidate: Candidate) -> str:
        return self._identities[_number(candidate.name)].uid

    def _of(self, uid: str) -> Candidate:
        (found,) = [one for one in self.supervisor.candidates() if self._uid(one) == uid]
        return found


@contextmanager
def stage(
    folder: Path,
    kinds: Sequence[Kind],
    *,
    nodes: int,
    timing: Timing,
    flags: Sequence[str] = (),
    latency: float = 0.02,
    leases: Sequence[str] = (LEASE, LEASE),
    proxied: bool = False,
) -> Iterator[Stage]:
    """A cluster of so many nodes, not initialised yet, and a manager of each kind; all ended with
    the with statement.

    `latency` is the cloud's, in seconds a call. `leases`: which Lease each manager is told to hold.
    `proxied`: the managers reach the API server through one `ChaosProxy`.
    """
    identities = [
        Identity(MANAGER_USER, f"candidate-{number}", _SERVICE_ACCOUNT_GROUPS) for number in range(_CANDIDATES)
    ]
    machines = {"count": nodes, "types": ["small"], "zones": ["zone-a"], "name": "node-{:05d}"}
    config = FakeConfig.model_validate({"log": "all", "generate": [machines], "latency": {"*": latency}})
    with ExitStack() as ends:
        cloud = ends.enter_context(CloudServer(ends.enter_context(FakeCloud(config))))
        server = RealAPIServer(audit_level="Metadata", identities=identities)
        ends.callback(server.stop)
        server.start()
        api = API(server.url, server.token, server.ca_file)
        await_namespaces(api)
        apply_rbac(api)
        if "go" in kinds:
            api.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", _GO_RIGHTS)
        with ThreadPoolExecutor(_FILL_THREADS) as pool:
            list(pool.map(lambda number: api.create(NODES, node(f"node-{number:05d}", number)), range(nodes)))
        if "go" in kinds:
            go_manager(build=True)
        proxy = ends.enter_context(ChaosProxy(server.url, server.ca_file)) if proxied else None
        common = [*timing.flags(), *_COMMON, *flags]
        places = [
            (
                kind,
                _command(kind, proxy or server, identities, cloud, [*common, f"--leader-elect-resource-name={lease}"]),
            )
            for kind, lease in zip(kinds, leases, strict=True)
        ]
        supervisor = ends.enter_context(Supervisor(folder, places))
        yield Stage(server, api, cloud, supervisor, identities, timing, nodes, proxy)


_COMMON: Final = (
    "--secure-port=0",
    "--cluster-name=failover",
    "--allocate-node-cidrs=true",
    "--configure-cloud-routes=true",
    f"--cluster-cidr={POD_RANGE}",
)
_GO_RIGHTS: Final = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "go-cloud-controller-manager"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": MANAGER_USER}],
}
"""The Go manager's manifest asks for other rights than ours; here the two share a user."""


def _command(
    kind: Kind,
    server: RealAPIServer | ChaosProxy,
    identities: Sequence[Identity],
    cloud: CloudServer,
    flags: Sequence[str],
) -> Command:
    def command(name: str, folder: Path) -> Sequence[str]:
        config = folder / "cloud.json"
        if kind == "ours":
            cloud.cloud.share(config, caller=name)
        else:
            config.write_text(json.dumps({"server": cloud.url, "caller": name}))
        kubeconfig = server.write_kubeconfig(folder / "kubeconfig", token=identities[_number(name)].token)
        own = [*flags, "--secure-port=0", f"--cloud-config={config}", f"--kubeconfig={kubeconfig}"]
        if kind == "ours":
            return [sys.executable, "-m", "controllers.app", "--cloud-provider=fake", *own]
        return [str(go_manager()), *UNCAPPED, "--cloud-provider=bench", *own]

    return command


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
