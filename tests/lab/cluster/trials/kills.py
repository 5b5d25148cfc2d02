"""The leader's container is killed again and again while Services and machines come and go."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from tests.lab.cluster.cluster import MANAGER, Cluster, ClusterError
from tests.lab.cluster.options import MachineSpec
from tests.lab.cluster.trials.manager import await_another, await_leader, holder, kill, replicas
from tests.lab.cluster.trials.operator import Operator
from tests.lab.cluster.trials.result import Result
from tests.lab.cluster.trials.witness import CloudState, Kill, calls, pod_of, process_at
from tests.support.api import API, NODES
from tests.support.failover.agreement import disagreement
from tests.support.failover.audit import AuditLog, Tail, seconds_of
from tests.support.failover.churn import ServiceChurn
from tests.support.failover.fencing import judge
from tests.support.services import SERVICES

KILLS = 20
TITLE = f"The leader killed {KILLS} times"
METHOD = (
    "kill -9 for the process of the leader's container at a random moment, then for the next leader. All the while "
    "Services are made, changed and deleted, and machines are powered off and on, deleted and made again. The Lease is "
    "set to 6 s (renewal within 4 s, tries each second), and the kubelet starts a container that ended again after 5 s "
    "at most; with their defaults twenty kills take an hour. The judge reads the audit log and the cloud's log: every "
    "write of each process must fall into the time in which it held the Lease."
)
LEASE_FLAGS = {
    "leader-elect-lease-duration": "6s",
    "leader-elect-renew-deadline": "4s",
    "leader-elect-retry-period": "1s",
}
MACHINES_EVERY = 20.0
"""Seconds between two acts on machines: one boots for some fifteen."""
SLACK = 1.0
"""Seconds: the cloud's log has the time of the answer, and this machine is busy."""
AGREED_WITHIN = 300.0


class MachineChurn(ServiceChurn):
    """Services as the base class; what joins and leaves are real machines."""

    def __init__(self, cluster: Cluster, *, seed: int, rate: float) -> None:
        super().__init__(cluster.api, seed=seed, rate=rate)
        self._cluster = cluster
        self._workers = [spec for spec in cluster.options.machines if not spec.control_plane]
        self._next = 0.0
        self.machine_acts = 0

    @override
    def join(self) -> None:
        self._on_machine()

    @override
    def leave(self) -> None:
        self._on_machine()

    def _on_machine(self) -> None:
        """One worker at a time: what is off or gone comes back, else one is taken."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + MACHINES_EVERY
        self.machine_acts += 1
        machines = self._cluster.cloud.machines()
        for spec in self._workers:
            if self._bring_back(spec, machines):
                return
        spec = self.dice.choice(self._workers)
        path = f"/v1/machines/{machines[spec.name]['id']}"
        if self.dice.random() < 0.5:
            self._cluster.cloud.call("POST", f"{path}/stop")
        else:
            self._cluster.cloud.call("DELETE", path)

    def _bring_back(self, spec: MachineSpec, machines: dict[str, dict[str, Any]]) -> bool:
        if spec.name not in machines:
            self._cluster.create_machine(spec)
        elif machines[spec.name]["state"] == "stopped":
            self._cluster.cloud.call("POST", f"/v1/machines/{machines[spec.name]['id']}/start")
        else:
            return False
        return True

    def all_back(self) -> None:
        """Bring back what is off or gone."""
        machines = self._cluster.cloud.machines()
        for spec in self._workers:
            self._bring_back(spec, machines)


def run(cluster: Cluster, count: int = KILLS, seed: int = 22) -> Result:
    result = Result()
    cluster.install_manager(flags=LEASE_FLAGS)
    cluster.wait_for_deployment("kube-system", MANAGER)
    await_leader(cluster)
    kills: list[Kill] = []
    addresses = {_address(node): node["metadata"]["name"] for node in cluster.api.items(NODES)}
    pods = {one.node: one.pod for one in replicas(cluster)}
    audit = AuditLog(cluster.control_plane.server.audit_log, lambda event: _process(event, kills))
    journal = Tail(cluster.cloud.layout.folder / "localcloud.log")
    dice, begun, away = random.Random(seed), time.monotonic(), []
    with MachineChurn(cluster, seed=seed, rate=1.0) as churn:
        while len(kills) < count:
            away.append(_kill_one(cluster, kills))
            time.sleep(dice.uniform(0.0, 8.0))
    result.add("kills", len(kills))
    result.add("in", time.monotonic() - begun)
    result.add("acts on Services", churn.acts - churn.machine_acts)
    result.add("acts on machines", churn.machine_acts)
    result.add("from a kill to the next leader, median", sorted(away)[len(away) // 2])
    result.add("from a kill to the next leader, longest", max(away))
    agree(cluster, churn, result)
    ended = {process_at(one.pod, time.time(), kills) for one in replicas(cluster)}
    result.check({name.partition("#")[0] for name in ended} == set(pods.values()), "a pod was replaced by another")
    time.sleep(1)  # the audit log is written in batches
    requests = audit.read()
    lines = [line.decode(errors="replace") for line in journal.read()]
    made = calls(lines, {address: pods[node] for address, node in addresses.items() if node in pods}, kills)
    managers = {one.who: one.who for one in requests if one.who}
    verdict = judge(requests, made, managers, MANAGER, SLACK)
    result.add("processes of the manager that asked the API server", len(managers))
    result.add("terms of leadership", len(verdict.holds))
    result.add(
        "writes to the API server and changes of the cloud", f"{len(verdict.acts)}, {len(made)} of them the cloud's"
    )
    result.add("by one that did not lead", len(verdict.intruders))
    result.add("by one whose time was over", len(verdict.late))
    result.add("on their way at a take-over", len(verdict.on_the_way))
    result.add("forbidden", len(verdict.forbidden))
    result.check(not verdict.intruders and not verdict.late and not verdict.forbidden, str(verdict))
    result.check(len(verdict.holds) > count // 2 and bool(made), f"the judge saw too little: {verdict}")
    clean(cluster.api)
    return result


def agree(cluster: Cluster, churn: MachineChurn, result: Result) -> None:
    """After the last act: bring all machines back, and wait until cluster and cloud are equal."""
    churn.all_back()
    begun, operator = time.monotonic(), Operator(cluster)
    try:
        cluster.wait("cluster and cloud", lambda: _differ(cluster, operator), AGREED_WITHIN)
    except ClusterError as problem:
        result.problems.append(str(problem))
    result.add("until cluster and cloud are equal after the last act", time.monotonic() - begun)
    result.add("Nodes deleted by an operator, as an Event asks", operator.deleted)
    result.add("kubelets started again, whose Node was deleted under them", operator.restarts)


def _kill_one(cluster: Cluster, kills: list[Kill]) -> float:
    """Kill the leader; seconds until another process leads."""
    replica, before = await_leader(cluster), holder(cluster)
    kill(cluster, replica)
    kills.append(Kill(replica.pod, time.time()))
    begun = time.monotonic()
    await_another(cluster, before)
    return time.monotonic() - begun


def _process(event: Mapping[str, Any], kills: Sequence[Kill]) -> str:
    pod = pod_of(event)
    return process_at(pod, seconds_of(event["requestReceivedTimestamp"]), kills) if pod else ""


def _address(node: Mapping[str, Any]) -> str:
    return next((str(one["address"]) for one in node["status"]["addresses"] if one["type"] == "InternalIP"), "")


def _differ(cluster: Cluster, operator: Operator) -> str:
    cloud = cluster.cloud
    state = CloudState(
        machines=cloud.call("GET", "/v1/machines")["machines"],
        balancers=cloud.call("GET", "/v1/loadbalancers")["loadbalancers"],
        rules=cloud.call("GET", "/v1/routes")["routes"],
        owner=cluster.options.name,
    )
    operator.act(state.machines)
    return disagreement(cluster.api, "localcloud", state)


def clean(api: API) -> None:
    """Delete the Services of the churn."""
    for service in api.items(SERVICES):
        if service["metadata"]["name"].startswith("svc-"):
            api.delete(f"{SERVICES}/{service['metadata']['name']}")
