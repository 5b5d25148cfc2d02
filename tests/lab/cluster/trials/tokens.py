"""Projected tokens of ten minutes: each pod goes over to the next one and loses nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from tests.lab.cluster.cluster import MANAGER, Cluster, ClusterError
from tests.lab.cluster.trials.manager import await_leader, holder, replicas
from tests.lab.cluster.trials.result import Result
from tests.lab.cluster.trials.witness import ACCOUNT, pod_of
from tests.support.api import JSON_PATCH

TITLE = "Tokens of ten minutes"
METHOD = (
    "The Deployment's projected token is set to 600 s, the shortest that Kubernetes gives (the chart has 3600 s). The "
    "kubelet writes the next one after 80 % of that time. The audit log names each request's token: every pod must "
    "use a second one, the Lease must stay where it is, and nothing may be refused."
)
LIFETIME = 600
LIMIT = 780.0
_CREDENTIAL = "authentication.kubernetes.io/credential-id"
_DEPLOYMENT = f"/apis/apps/v1/namespaces/kube-system/deployments/{MANAGER}"


def run(cluster: Cluster) -> Result:
    result = Result()
    sources = cluster.api.get(_DEPLOYMENT)["spec"]["template"]["spec"]["volumes"][0]["projected"]["sources"]
    assert "serviceAccountToken" in sources[0], "the chart's first volume is the token's"
    place = "/spec/template/spec/volumes/0/projected/sources/0/serviceAccountToken/expirationSeconds"
    change = [{"op": "replace", "path": place, "value": LIFETIME}]
    cluster.api.patch(_DEPLOYMENT, change, JSON_PATCH)
    cluster.wait_for_deployment("kube-system", MANAGER)
    await_leader(cluster)
    server = cluster.control_plane.server
    offset, begun, led = server.audit_log.stat().st_size, time.monotonic(), holder(cluster)
    pods = {one.pod for one in replicas(cluster)}

    def lacking() -> str:
        seen = credentials(server.audit_events(offset))
        late = [pod for pod in sorted(pods) if len(seen.get(pod, ())) < 2]
        return f"{', '.join(late)}: still the first token" if late else ""

    try:
        cluster.wait("the next tokens", lacking, LIMIT)
    except ClusterError as problem:
        result.problems.append(str(problem))
    result.add("until both pods used their second token", time.monotonic() - begun)
    remaining = LIFETIME + 30 - (time.monotonic() - begun)
    time.sleep(max(0.0, remaining))  # until the first ones are worth nothing
    events = server.audit_events(offset)
    refused = [one for one in events if one.get("responseStatus", {}).get("code") == 401]
    own = [one for one in events if one["user"].get("username") == ACCOUNT]
    forbidden = [one for one in own if one.get("responseStatus", {}).get("code") == 403]
    result.add("requests meanwhile", len(own))
    result.add("answered 401, whoever asked", len(refused))
    result.add("tokens used, by pod", json.dumps({pod: len(ids) for pod, ids in credentials(events).items()}))
    result.check(holder(cluster) == led, f"the Lease went from {led} to {holder(cluster)}")
    result.check(not refused and not forbidden, f"{len(refused)} answers 401, {len(forbidden)} answers 403")
    result.check({one.pod for one in replicas(cluster)} == pods, "a pod was replaced")
    result.check(not any(one.restarts for one in replicas(cluster)), "a container was started again")
    return result


def credentials(events: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The tokens' IDs by the manager's pod, in the order of their first use."""
    found: dict[str, list[str]] = {}
    for event in events:
        pod = pod_of(event)
        ids = event["user"].get("extra", {}).get(_CREDENTIAL, [])
        if pod:
            found.setdefault(pod, [])
            found[pod] += [one for one in ids if one not in found[pod]]
    return found
