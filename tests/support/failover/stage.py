"""One real API server, one shared cloud, two managers under a supervisor, and the judge: for tests
of the failover."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Literal

from attrs import frozen

from cloudprovider.testing.fake import FakeCloud, FakeConfig
from cloudprovider.testing.waiting import eventually
from tests.lab.bench.contenders import UNCAPPED
from tests.lab.envtest.build import go_manager
from tests.lab.envtest.server import MANAGER_USER, Identity, RealAPIServer
from tests.support.api import API, NODES, each
from tests.support.failover.agreement import disagreement
from tests.support.failover.audit import AuditLog, Request
from tests.support.failover.churn import POD_RANGE, Churn, node
from tests.support.failover.cloudserver import CloudServer
from tests.support.failover.fencing import Hold, Verdict, holds, judge
from tests.support.failover.supervisor import Candidate, Command, Supervisor
from tests.support.proxy import ChaosProxy
from tests.support.rights import apply_rbac, await_namespaces

Kind = Literal["ours", "go"]
LEASE: Final = "cloud-controller-manager"
_CANDIDATES: Final = 128
_STEP: Final = ":next"  # what the UID of a candidate's second token ends with
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


@frozen
class Ground:
    """A running API server with the manager's rights, and who may talk to it: two tokens for each
    candidate, so that the second can replace the first."""

    server: RealAPIServer
    api: API
    identities: Sequence[Identity]

    def tokens(self, candidate: str) -> tuple[str, str]:
        """The two tokens of the candidate of this name."""
        number = _number(candidate)
        return self.identities[number].token, self.identities[_CANDIDATES + number].token

    def names(self, candidates: Sequence[Candidate]) -> Mapping[str, str]:
        """The candidates' names, by the UIDs of their tokens."""
        uids = {self.identities[_number(one.name)].uid: one.name for one in candidates}
        return uids | {f"{uid}{_STEP}": name for uid, name in uids.items()}


@frozen
class Way:
    """How the managers are started."""

    kubeconfig: Callable[[Ground, str, Path], Path] = lambda ground, name, folder: ground.server.write_kubeconfig(
        folder / "kubeconfig", token=ground.tokens(name)[0]
    )
    """Writes the kubeconfig of a candidate of this name into its folder."""
    program: Callable[[str], Sequence[str]] = lambda name: ("-m", "controllers.app")
    """What Python is to run for a candidate of ours."""


class Stage:
    """What a test of the take-over looks at and acts on. Made by `stage`."""

    def __init__(
        self,
        ground: Ground,
        cloud: CloudServer,
        supervisor: Supervisor,
        timing: Timing,
        nodes: int,
        proxy: ChaosProxy | None,
    ) -> None:
        self.ground = ground
        self.server = ground.server
        self.proxy = proxy
        self.api = ground.api
        self.cloud = cloud
        self.supervisor = supervisor
        self.timing = timing
        self._nodes = nodes
        self._audit = AuditLog(ground.server.audit_log)

    def requests(self) -> Sequence[Request]:
        """All that was asked of the API server since this stage was made."""
        return self._audit.read()

    def holds(self) -> list[Hold]:
        """Who led when, by the UIDs of their tokens."""
        return holds(self.requests(), LEASE)

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
        asked = {one.who for one in self.requests() if one.resource == "leases"}
        listed = {one.who for one in self.requests() if one.resource == "nodes" and one.verb in ("list", "watch")}
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

        eventually(agree, timeout, lambda: f"{self.history()}\n{self.logs()}")
        return time.monotonic() - began

    def history(self) -> str:
        """What was done about the load balancers on which cloud and cluster do not agree, by
        whom."""
        wrong = disagreement(self.api, self.cloud.cloud.config.provider, self.cloud.cloud.console)
        who = self.ground.names(self.supervisor.candidates())
        lines = []
        for name, service in sorted(set(re.findall(r"load balancer (\S+) of (\S+)", wrong))):
            lines += [(one.began, f"{one.caller} {one.method}") for one in self.cloud.calls if name in one.key]
            lines += [
                (one.began, f"{who.get(one.who, 'a user')} {one.verb} {one.resource} {one.code}")
                for one in self.requests()
                if one.resource.startswith("services") and f"{one.namespace}/{one.name}" == service and one.writes
            ]
        return "\n".join(f"{began:.3f} {what}" for began, what in sorted(lines))

    def verdict(self, slack: float = 0.0) -> Verdict:
        """What the audit log and the cloud's journal say of all that was done so far."""
        time.sleep(0.5)  # the audit log is written in batches of 200 ms
        managers = self.ground.names(self.supervisor.candidates())
        return judge(self.requests(), self.cloud.calls, managers, LEASE, slack)

    def churn(self, *, seed: int, rate: float = 5.0, most: float = math.inf) -> Churn:
        return Churn(self.api, self.cloud.cloud, self._nodes, seed=seed, rate=rate, most=most)

    def logs(self) -> str:
        """The ends of all candidates' logs, for a failure."""
        return "\n".join(
            f"--- {one.name}, exit code {one.code}\n" + "\n".join(one.log.splitlines()[-15:])
            for one in self.supervisor.candidates()[-4:]
        )

    def _uid(self, candidate: Candidate) -> str:
        return self.ground.identities[_number(candidate.name)].uid

    def _of(self, uid: str) -> Candidate:
        (found,) = [one for one in self.supervisor.candidates() if self._uid(one) == uid.removesuffix(_STEP)]
        return found


@contextmanager
def ground(*, go: bool = False) -> Iterator[Ground]:
    """An API server with the rights of our manifest; with `go` those of the Go manager, too."""
    identities = [
        Identity(MANAGER_USER, f"candidate-{number}{step}", _SERVICE_ACCOUNT_GROUPS)
        for step in ("", _STEP)
        for number in range(_CANDIDATES)
    ]
    server = RealAPIServer(audit_level="Metadata", identities=identities)
    try:
        server.start()
        api = API(server.url, server.token, server.ca_file)
        await_namespaces(api)
        apply_rbac(api)
        if go:
            api.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", GO_RIGHTS)
        yield Ground(server, api, identities)
    finally:
        server.stop()


@contextmanager
def stage(
    folder: Path,
    kinds: Sequence[Kind],
    *,
    nodes: int,
    timing: Timing,
    flags: Sequence[str] = (),
    proxied: bool = False,
    on: Ground | None = None,
    way: Way | None = None,
) -> Iterator[Stage]:
    """A cluster of so many nodes, not initialised yet, and a manager of each kind; all ended with
    the with statement.

    `proxied`: the managers reach the API server through one `ChaosProxy`; `way` says it of any way.
    `on`: an API server to use, which holds nothing of a former stage any more; else a new one.
    """
    machines = {"count": nodes, "types": ["small"], "zones": ["zone-a"], "name": "node-{:05d}"}
    config = FakeConfig.model_validate({"log": "all", "generate": [machines], "latency": {"*": 0.02}})
    with ExitStack() as ends:
        cloud = ends.enter_context(CloudServer(ends.enter_context(FakeCloud(config))))
        where = on or ends.enter_context(ground(go="go" in kinds))
        each(lambda number: where.api.create(NODES, node(f"node-{number:05d}", number)), range(nodes))
        if "go" in kinds:
            go_manager(build=True)
        proxy = ends.enter_context(ChaosProxy(where.server.url, where.server.ca_file)) if proxied else None
        chosen = way or (_through(proxy) if proxy is not None else Way())
        common = [*timing.flags(), *_COMMON, *flags]
        places = [(kind, _command(kind, where, chosen, cloud, common)) for kind in kinds]
        supervisor = ends.enter_context(Supervisor(folder, places))
        yield Stage(where, cloud, supervisor, timing, nodes, proxy)


_COMMON: Final = (
    f"--leader-elect-resource-name={LEASE}",
    "--secure-port=0",
    "--cluster-name=failover",
    "--allocate-node-cidrs=true",
    "--configure-cloud-routes=true",
    f"--cluster-cidr={POD_RANGE}",
)
GO_RIGHTS: Final = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "go-cloud-controller-manager"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": MANAGER_USER}],
}
"""The Go manager's manifest asks for other rights than ours; here the two share a user."""


def _through(proxy: ChaosProxy) -> Way:
    return Way(lambda where, name, folder: proxy.write_kubeconfig(folder / "kubeconfig", where.tokens(name)[0]))


def _command(kind: Kind, where: Ground, way: Way, cloud: CloudServer, flags: Sequence[str]) -> Command:
    def command(name: str, folder: Path) -> Sequence[str]:
        config = folder / "cloud.json"
        if kind == "ours":
            cloud.cloud.share(config, caller=name)
        else:
            config.write_text(json.dumps({"server": cloud.url, "caller": name}))
        kubeconfig = way.kubeconfig(where, name, folder)
        own = [*flags, f"--cloud-config={config}", f"--kubeconfig={kubeconfig}"]
        if kind == "ours":
            return [sys.executable, *way.program(name), "--cloud-provider=fake", *own]
        return [str(go_manager()), *UNCAPPED, "--cloud-provider=bench", *own]

    return command


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
