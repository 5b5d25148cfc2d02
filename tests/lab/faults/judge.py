"""Pure: what was deleted without proof, from the API server's audit log and the cloud's journal.

What proves that something had to go, is an earlier act that was not the managers': the machine was
removed from the cloud, the Service was deleted or changed its type, the Node was deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from attrs import frozen

from cloudprovider.testing.fake import CallRecord
from tests.support.failover.audit import Request


@frozen
class Problem:
    """What should not have happened."""

    kind: str
    """What is counted, one of `COUNTED`, or said once; empty: `text`."""
    text: str
    """A sentence about this one."""

    def __str__(self) -> str:
        return self.text


COUNTED: Final = (
    "Nodes deleted",
    "load balancers deleted",
    "routes deleted",
    "load balancers without targets",
    "operations at once",
    "writes out of turn",
)
GaveUp = Mapping[str, float]
"""By "namespace/name" of a Service: when its user said that it wants no load balancer any more
(Unix seconds). Deletions need not be here: the audit log has them."""
_CLOCKS: Final = 0.05
"""Seconds by which the times of the audit log and of the journal may differ."""


def unproved(
    requests: Sequence[Request], journal: Sequence[CallRecord], managers: Collection[str], gave_up: GaveUp
) -> list[Problem]:
    """What was deleted without proof. `managers`: by the UIDs of their tokens."""
    removed = [(one.key, one.time) for one in journal if one.method == "console.remove_instance"]
    return [
        *_nodes(requests, removed, managers),
        *_balancers(requests, journal, managers, gave_up),
        *_routes(requests, journal, removed),
    ]


def _nodes(
    requests: Sequence[Request], removed: Sequence[tuple[str, float]], managers: Collection[str]
) -> Iterable[Problem]:
    """Each deletion of a Node needs a removal of its machine of its own."""
    deleted: Counter[str] = Counter()
    for one in sorted(requests, key=lambda one: one.began):
        if one.who in managers and one.verb == "delete" and one.resource == "nodes" and one.code < 300:
            deleted[one.name] += 1
            before = [name for name, at in removed if name == one.name and at <= one.began + _CLOCKS]
            if len(before) < deleted[one.name]:
                yield Problem("Nodes deleted", f"Node {one.name} was deleted, although its machine was there")


def _balancers(
    requests: Sequence[Request], journal: Sequence[CallRecord], managers: Collection[str], gave_up: GaveUp
) -> Iterable[Problem]:
    built: dict[str, float] = {}
    for call in journal:
        if call.method == "ensure_load_balancer":
            built.setdefault(call.key, call.time)
        if call.method != "ensure_load_balancer_deleted" or call.effect != "deleted":
            continue
        service = next((key for key in call.keys if "/" in key), "")
        acts = [
            (one.began, one.verb)
            for one in requests
            if one.who not in managers
            and one.resource == "services"
            and one.verb in ("create", "delete")
            and one.code < 300
            and f"{one.namespace}/{one.name}" == service
            and one.began <= call.time + _CLOCKS
        ]
        if service in gave_up and gave_up[service] <= call.time + _CLOCKS:
            continue
        # Its name is made of the UID: it may be a former Service's, made again since.
        former = any(verb == "delete" and at >= built.get(call.key, call.time) for at, verb in acts)
        if not former and (not acts or max(acts)[1] != "delete"):
            yield Problem(
                "load balancers deleted", f"the load balancer of {service} was deleted, although its Service was there"
            )


def _routes(
    requests: Sequence[Request], journal: Sequence[CallRecord], removed: Sequence[tuple[str, float]]
) -> Iterable[Problem]:
    gone = [*removed, *((one.name, one.began) for one in requests if one.verb == "delete" and one.resource == "nodes")]
    made: dict[str, set[str]] = {}  # what is known of a route, by its destination: its deletion does not name the node
    for call in journal:
        if call.method == "create_route":
            made[call.key] = made.get(call.key, set()) | {*call.keys}
        deleted = call.method == "delete_route" and call.effect == "deleted"
        known = {*call.keys, *made.get(call.key, ())}
        if deleted and not any(name in known and at <= call.time + _CLOCKS for name, at in gone):
            yield Problem(
                "routes deleted", f"the route {call.key} was deleted, although its Node and machine were there"
            )


def emptied(targets: Iterable[tuple[str, int]], nodes: int) -> list[Problem]:
    """Load balancers that lost all their targets while there were nodes. `targets`:
    the Service and how many nodes it was given, call by call."""
    if not nodes:
        return []
    counts = Counter(service for service, count in targets if not count)
    return [
        Problem("load balancers without targets", f"the load balancer of {service} was left without targets")
        for service in sorted(counts)
    ]


def overlaps(pairs: Iterable[tuple[CallRecord, CallRecord]]) -> list[Problem]:
    """Operations that one manager began for a load balancer while another of its
    own was under way."""
    return [
        Problem("operations at once", f"{later.method} of {later.key} began while {earlier.method} was under way")
        for earlier, later in pairs
        if earlier.caller.name == later.caller.name
    ]
