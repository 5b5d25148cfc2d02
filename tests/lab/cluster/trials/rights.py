"""What the manager may do beside what it did, from its roles and the audit log of the whole run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen

from tests.lab.cluster.cluster import MANAGER, Cluster
from tests.lab.cluster.trials.result import Result
from tests.lab.cluster.trials.witness import ACCOUNT
from tests.support.failover.audit import seconds_of

TITLE = "Rights: granted and used"
METHOD = (
    "Every request of the manager's account in the audit log of the whole run, beside the rules of the chart's "
    "ClusterRole and Roles as the API server has them."
)
STARTING = 3.0
"""Seconds around a 403 for Kubernetes' own programs in which the server is taken to be starting."""
_SYSTEM = ("system:kube-scheduler", "system:kube-controller-manager", "system:kube-proxy")
_GROUP = "rbac.authorization.k8s.io"
WHY_UNUSED = {
    "nodes get": "a write that met a conflict, or a node that is about to be deleted",
    "nodes delete": "a machine that is gone",
    "events patch": "an Event that is repeated, as of a Service that fails again",
    "subjectaccessreviews create": "somebody who asks for /metrics with a token",
    "tokenreviews create": "somebody who asks for /metrics with a token",
}
"""By resource and verb: the case that needs the right, for those that a run may not meet."""


@frozen(order=True)
class Right:
    """A verb for a resource; `namespace` is "" for a right in the whole cluster."""

    namespace: str
    group: str
    resource: str
    verb: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.resource} {self.verb}{where}"

    def allows(self, request: Request) -> bool:
        """Whether this right is what a request needs."""
        same = (self.group, self.resource, self.verb) == (request.group, request.resource, request.verb)
        in_namespace = self.namespace in ("", request.namespace)
        return same and in_namespace and (not self.names or request.name in self.names)


@frozen
class Request:
    """What a request was about."""

    namespace: str
    group: str
    resource: str
    verb: str
    name: str


def run(cluster: Cluster) -> Result:
    api = cluster.api
    roles = [api.get(f"/apis/{_GROUP}/v1/clusterroles/system:{MANAGER}")]
    for namespace in ("kube-system", "default"):
        role = api.find(f"/apis/{_GROUP}/v1/namespaces/{namespace}/roles/system:{MANAGER}")
        roles += [role] if role is not None else []
    return verdict(roles, cluster.control_plane.server.audit_events())


def verdict(roles: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> Result:
    """From the manager's roles, and the audit log with everybody's requests."""
    result = Result()
    own = [event for event in events if event["user"].get("username") == ACCOUNT]
    starting = _refused_to_all(events)
    refused = [event for event in own if _code(event) in (401, 403)]
    wrong = [event for event in refused if not any(abs(_time(event) - at) < STARTING for at in starting)]
    rights, requests = granted(roles), used(own)
    left = unused(rights, requests)
    result.add("requests of the manager's account", len(own))
    result.add("answered 401 or 403", len(wrong))
    result.add(
        "the same while a server that just started refused Kubernetes' own programs too", len(refused) - len(wrong)
    )
    result.add("rights granted", len(rights))
    result.add("rights used", len(rights) - len(left))
    for right in left:
        why = WHY_UNUSED.get(f"{right.resource} {right.verb}", "")
        result.add(f"not used: {right}", why or "no reason known")
        result.check(bool(why), f"granted, and nobody used it: {right}")
    for event in wrong[:10]:
        result.problems.append(f"forbidden: {event['verb']} {event['requestURI']}")
    result.check(bool(own), "the audit log has no request of the manager")
    return result


def _refused_to_all(events: Iterable[Mapping[str, Any]]) -> list[float]:
    """When Kubernetes' own programs got a 403: the server has not read the roles yet."""
    return [_time(event) for event in events if _code(event) == 403 and event["user"].get("username") in _SYSTEM]


def _code(event: Mapping[str, Any]) -> int:
    return int(event.get("responseStatus", {}).get("code", 0))


def _time(event: Mapping[str, Any]) -> float:
    return seconds_of(event["requestReceivedTimestamp"])


def granted(roles: Iterable[Mapping[str, Any]]) -> list[Right]:
    """Each right of these ClusterRoles and Roles."""
    return sorted(
        Right(role["metadata"].get("namespace", ""), group, resource, verb, tuple(rule.get("resourceNames") or ()))
        for role in roles
        for rule in role["rules"] or ()
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
        for verb in rule["verbs"]
    )


def used(events: Iterable[Mapping[str, Any]]) -> set[Request]:
    """What the requests of an audit log were about; those that were refused, and those about no
    object, are left out."""
    found = set()
    for event in events:
        about = event.get("objectRef")
        if about and event.get("responseStatus", {}).get("code") not in (401, 403):
            resource = "/".join(filter(None, (about.get("resource", ""), about.get("subresource", ""))))
            place = (about.get("namespace", ""), about.get("apiGroup", ""), resource)
            found.add(Request(*place, event["verb"], about.get("name", "")))
    return found


def unused(rights: Sequence[Right], requests: Iterable[Request]) -> list[Right]:
    """The rights that no request needed."""
    asked = list(requests)
    return [right for right in rights if not any(right.allows(one) for one in asked)]
