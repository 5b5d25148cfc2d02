"""The verdicts of the trials on a real cluster: each is seen to fail."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.lab.cluster.traffic import Lost
from tests.lab.cluster.trials import features, hour, migration
from tests.lab.cluster.trials.bootstrap import order
from tests.lab.cluster.trials.flow import is_more
from tests.lab.cluster.trials.leftovers import There, differences
from tests.lab.cluster.trials.operator import asked_to_delete
from tests.lab.cluster.trials.result import Result
from tests.lab.cluster.trials.rights import verdict
from tests.lab.cluster.trials.watched import documents
from tests.lab.cluster.trials.witness import ACCOUNT, Kill, calls, pod_of, process_at
from tests.support.failover.audit import parse
from tests.support.failover.fencing import judge
from tests.support.sampling import Life
from tests.support.usage import Usage

JSON = dict[str, Any]


def at(second: int) -> str:
    return f"2026-11-23T06:00:{second:02d}Z"


# ---- bootstrapping


def pod(name: str, node: str, started: int, *, host: bool = False) -> JSON:
    status = {"state": {"running": {"startedAt": at(started)}}, "restartCount": 0}
    return {
        "metadata": {"name": name, "creationTimestamp": at(2)},
        "spec": {"nodeName": node, **({"hostNetwork": True} if host else {})},
        "status": {"podIP": "10.0.0.1", "containerStatuses": [status]},
    }


def cluster_of(*, manager: int = 3, synced: int = 5, ready: int = 6, other: int = 8) -> tuple[list[JSON], ...]:
    nodes = [
        {
            "metadata": {"name": name, "creationTimestamp": at(0)},
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(ready)}]},
        }
        for name in ("cp", "worker")
    ]
    pods = [pod("cloud-controller-manager-1", "cp", manager, host=True), pod("dns", "worker", other)]
    events = [
        {"involvedObject": {"name": name}, "reason": "Synced", "firstTimestamp": at(synced)}
        for name in ("cp", "worker")
    ]
    return nodes, pods, events


def test_the_order_that_works() -> None:
    result = order(*cluster_of())
    assert not result.problems
    assert ("all nodes are Ready", "6.0 s") in result.figures
    assert ("from the manager's pods to all nodes Ready", "4.0 s") in result.figures


@pytest.mark.parametrize(
    ("times", "problem"),
    [
        ({"synced": 1, "ready": 6}, "a node was initialised before a manager ran"),
        ({"manager": 9, "synced": 10, "ready": 11}, "a pod with a network started before the manager's"),
        ({"ready": 4}, "a node was Ready before it was initialised"),
    ],
)
def test_another_order_is_a_problem(times: dict[str, int], problem: str) -> None:
    assert problem in order(*cluster_of(**times)).problems


# ---- traffic


@pytest.mark.parametrize(("ours", "beside", "more"), [(0, 0, False), (1, 0, True), (4, 2, False), (5, 2, True)])
def test_who_lost_more(ours: int, beside: int, more: bool) -> None:
    lost = [Lost(1.0, 0, "TimeoutError")]
    assert is_more(lost * ours, lost * beside) is more


# ---- machines


def test_only_a_node_whose_machine_is_gone_and_that_an_event_names_is_deleted() -> None:
    nodes = [
        {"metadata": {"name": name, "uid": name}, "spec": {"providerID": f"localcloud://{machine}"}}
        for name, machine in (("told", "m1"), ("told-and-there", "m2"), ("not-told", "m3"))
    ]
    events = [
        {"reason": reason, "involvedObject": {"uid": name}}
        for reason, name in (("InstanceRecreated", "told"), ("ReadyNodeSaidToBeGone", "told-and-there"))
    ]
    events.append({"reason": "Synced", "involvedObject": {"uid": "not-told"}})
    assert asked_to_delete(nodes, events, {"localcloud://m2"}) == ["told"]


# ---- who did what


def event(pod_name: str = "ccm-a", *, user: str = ACCOUNT, code: int = 200, **about: str) -> JSON:
    extra = {"authentication.kubernetes.io/pod-name": [pod_name]}
    return {
        "stage": "ResponseComplete",
        "verb": about.pop("verb", "get"),
        "user": {"username": user, "extra": extra},
        "objectRef": about or None,
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": at(5),
        "stageTimestamp": at(6),
        "requestURI": "/x",
    }


def test_a_process_is_a_pod_and_the_kills_before() -> None:
    kills = [Kill("ccm-a", 10.0), Kill("ccm-b", 11.0), Kill("ccm-a", 20.0)]
    assert [process_at("ccm-a", when, kills) for when in (9.9, 10.0, 25.0)] == ["ccm-a#0", "ccm-a#1", "ccm-a#2"]
    assert pod_of(event()) == "ccm-a"
    assert pod_of(event(user="admin")) == ""


def test_the_clouds_log_says_who_changed_it() -> None:
    log = [
        '2026-11-23 06:00:05,250 DEBUG 10.0.0.1 "PUT /v1/loadbalancers/x HTTP/1.1" 200 0.250 s',
        '2026-11-23 06:00:06,000 DEBUG 10.0.0.1 "DELETE /v1/routes/r-1?owner=tr HTTP/1.1" 204 0.000 s',
        '2026-11-23 06:00:07,000 DEBUG 10.0.0.1 "GET /v1/routes?owner=tr HTTP/1.1" 200 0.250 s',
        '2026-11-23 06:00:07,000 DEBUG 10.0.0.1 "PUT /v1/loadbalancers/x HTTP/1.1" 409 0.001 s',
        '2026-11-23 06:00:07,000 DEBUG 10.0.0.9 "PUT /v1/loadbalancers/x HTTP/1.1" 200 0.250 s',
        "2026-11-23 06:00:07,000 INFO m1 is up",
    ]
    found = calls(log, {"10.0.0.1": "ccm-a"}, [])
    assert [(one.caller, one.method, one.key) for one in found] == [
        ("ccm-a#0", "ensure_load_balancer", "x"),
        ("ccm-a#0", "delete_route", "r-1?owner=tr"),
    ]
    assert found[1].began - found[0].began == pytest.approx(1.0)
    kill = [Kill("ccm-a", found[1].began - 0.5)]
    assert calls(log, {"10.0.0.1": "ccm-a"}, kill)[1].caller == "ccm-a#0", "sent before, read after the kill"
    long_ago = [Kill("ccm-a", found[1].began - 1.5)]
    assert calls(log, {"10.0.0.1": "ccm-a"}, long_ago)[1].caller == "ccm-a#1"


def lease(pod_name: str, version: str) -> JSON:
    spec = {"holderIdentity": pod_name, "leaseDurationSeconds": 6}
    found = event(pod_name, verb="update", resource="leases", name="cloud-controller-manager")
    return {**found, "requestObject": {"metadata": {"resourceVersion": version}, "spec": spec}}


def test_a_write_by_a_pod_that_does_not_lead_is_found() -> None:
    def verdict(writer: str) -> bool:
        write = event(writer, verb="patch", resource="services", namespace="default", name="s")
        lines = [json_line(lease("ccm-a", "1")), json_line(write)]
        requests = [*parse(lines, lambda one: process_at(pod_of(one), 0.0, []))]
        names = {one.who: one.who for one in requests}
        return bool(judge(requests, [], names, "cloud-controller-manager").intruders)

    assert not verdict("ccm-a")
    assert verdict("ccm-b")


def json_line(value: JSON) -> bytes:
    return json.dumps(value).encode()


# ---- rights and tokens

ROLES: list[JSON] = [
    {
        "metadata": {"name": "x"},
        "rules": [
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "delete"]},
            {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"]},
        ],
    },
    {
        "metadata": {"name": "x", "namespace": "kube-system"},
        "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}],
    },
]


def test_what_is_forbidden_is_a_problem_unless_the_server_just_starts() -> None:
    used_all = [
        event(resource="nodes", name="n", verb="get"),
        event(resource="nodes", name="n", verb="delete"),
        event(resource="namespaces", name="kube-system", verb="get"),
        event(resource="leases", apiGroup="coordination.k8s.io", namespace="kube-system", verb="create"),
    ]
    refused = event(resource="nodes", name="n", verb="get", code=403)
    others = event(user="system:kube-scheduler", resource="pods", verb="watch", code=403)
    assert not verdict(ROLES, used_all).problems
    assert verdict(ROLES, [*used_all, refused]).problems == ["forbidden: get /x"]
    assert not verdict(ROLES, [*used_all, refused, others]).problems
    later = {**others, "requestReceivedTimestamp": at(30)}
    assert verdict(ROLES, [*used_all, refused, later]).problems
    assert verdict(ROLES, used_all[:2]).problems == [
        "granted, and nobody used it: namespaces get",
        "granted, and nobody used it: leases create in kube-system",
    ]


# ---- migration


def state(**fields: Any) -> migration.State:
    found = {
        "nodes": {"n1": "u1"},
        "initialised": {"n1": 1},
        "balancers": {"a1": "198.18.0.1"},
        "routes": frozenset({"r1"}),
    }
    return migration.State(**{**found, **fields})


def test_a_migration_that_changes_nothing_passes() -> None:
    result = Result()
    joined = state(nodes={"n1": "u1", "n2": "u2"}, initialised={"n1": 1, "n2": 1}, routes=frozenset({"r1", "r2"}))
    migration.compare(state(), joined, {("PUT", "loadbalancers"): ["a1"], ("DELETE", "loadbalancers"): ["x"]}, result)
    assert not result.problems
    assert ("nodes that joined, each initialised once", "1") in result.figures


@pytest.mark.parametrize(
    ("after", "made", "said"),
    [
        (state(nodes={"n1": "u9"}), {}, "nodes were replaced"),
        (state(initialised={"n1": 2}), {}, "initialised more than once"),
        (state(nodes={"n1": "u1", "n2": "u2"}), {}, "initialised more than once, or not (how often): {'n2': 0}"),
        (state(balancers={"a1": "198.18.0.2"}), {}, "load balancers: "),
        (state(), {("DELETE", "loadbalancers"): ["a1"]}, "load balancers were deleted: ['a1']"),
        (state(), {("DELETE", "routes"): ["r1"]}, "routes were deleted"),
        (state(routes=frozenset()), {}, "routes were deleted"),
    ],
)
def test_what_must_not_change_in_a_migration_is_judged(
    after: migration.State, made: dict[tuple[str, str], list[str]], said: str
) -> None:
    result = Result()
    migration.compare(state(), after, made, result)
    assert [problem for problem in result.problems if said in problem]


def test_the_go_manager_of_the_trial_has_the_lease_of_ours_and_a_port_of_its_own() -> None:
    objects = {one["kind"]: one for one in migration.go_manager("lc", "10.91.0.0/16", "{}")}
    command_line = objects["Deployment"]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert "--leader-elect-resource-name=cloud-controller-manager" in command_line
    assert "--secure-port=10268" in command_line
    assert objects["Deployment"]["spec"]["replicas"] == 0


def hour_long(memory: Callable[[float], float]) -> Life:
    at = [float(second) for second in range(0, 3600, 5)]
    return Life(at, [Usage(threads=20, files=30, memory=memory(one), cpu=one / 10) for one in at])


def test_an_hour_of_churn_tells_a_cache_that_fills_from_a_leak() -> None:
    fills, leaks = Result(), Result()
    hour.judge(fills, "leader", hour_long(lambda at: 80 + min(at, 500) / 10), 0.0, 3600.0)
    hour.judge(leaks, "leader", hour_long(lambda at: 80 + at / 100), 0.0, 3600.0)
    assert ("leader: memory every ten minutes", "80, 130, 130, 130, 130, 130, 130 MB") in fills.figures
    assert ("leader: CPU", "100 millicores on average") in fills.figures
    assert not fills.problems
    (problem,) = leaks.problems
    assert problem.startswith("leader: memory, MB grew by +29.")


# ---- features


def version(*taints: JSON, rack: str = "rack 7") -> JSON:
    return {"metadata": {"annotations": {features.RACK: rack} if rack else {}}, "spec": {"taints": [*taints]}}


def bound(name: str, *tolerations: JSON) -> JSON:
    return {"metadata": {"name": name}, "spec": {"tolerations": [*tolerations]}}


NEW = {"key": features.UNINITIALIZED, "effect": "NoSchedule"}
GUEST = bound("guest", {**features.TAINT, "operator": "Equal"})


@pytest.mark.parametrize(
    ("nodes", "pods", "problem"),
    [
        ([version(NEW, rack=""), version(features.TAINT)], [GUEST, bound("agent", {"operator": "Exists"})], ""),
        ([version(NEW), version(), version(features.TAINT)], [GUEST], "1 versions of the Node .* not the taint"),
        ([version({**features.TAINT, "value": "other"})], [GUEST], "1 versions of the Node .* not the taint"),
        ([version(features.TAINT, rack="")], [GUEST], "1 versions of the Node .* not the annotation"),
        ([version(features.TAINT)], [GUEST, bound("web", {"key": "other"})], "without a toleration: web"),
        ([version(features.TAINT)], [], "the watch saw nothing"),
        ([version(NEW)], [GUEST], "no version of the Node is open to pods"),
    ],
)
def test_a_moment_without_the_taint_is_seen(nodes: list[JSON], pods: list[JSON], problem: str) -> None:
    _, problems = features.joined(nodes, pods)
    assert re.search(problem, "; ".join(problems))
    assert len(problems) == bool(problem)


def test_what_is_left_behind_or_gone_is_named() -> None:
    before = There({"node": frozenset({"a", "b"}), "Lease": frozenset({"x"})})
    after = There({"node": frozenset({"a"}), "Lease": frozenset({"x", "trial"})})
    assert differences(before, after) == ["gone: node b", "new: Lease trial"]
    assert differences(before, before) == []


def test_each_document_of_a_watch_is_read() -> None:
    assert documents('{"a": 1}\n{"b": {}}\n\n{"c": ') == [{"a": 1}, {"b": {}}]
    assert documents("") == []
