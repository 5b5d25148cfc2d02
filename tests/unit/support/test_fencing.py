"""The judge of the failover tests: what it calls a writer that did not lead, a late one, and one on its way."""

from __future__ import annotations

import json
import math
from typing import Any

from attrs import evolve

from tests.support.failover.audit import Request, parse
from tests.support.failover.cloudserver import CloudCall
from tests.support.failover.fencing import Verdict, holds, judge

LEASE = "the-lease"
MANAGERS = {"uid-a": "a", "uid-b": "b"}


def lease(who: str, at: float, holder: str | None = None, *, code: int = 200, name: str = LEASE) -> Request:
    """A write of the Lease by which `who` takes or keeps it, or sets it free (holder="")."""
    spec = {"holderIdentity": f"host_{who}" if holder is None else holder, "leaseDurationSeconds": 15}
    return Request(f"uid-{who}", "update", "leases", name, "kube-system", code, at, at + 0.01, body={"spec": spec})


def write(who: str, at: float, *, took: float = 0.01, code: int = 200, resource: str = "nodes") -> Request:
    return Request(f"uid-{who}", "patch", resource, "n", "", code, at, at + took)


def call(who: str, at: float, method: str = "ensure_load_balancer", took: float = 0.2) -> CloudCall:
    return CloudCall(who, method, "default/web", at, at + took)


def verdict(*did: Request | CloudCall) -> Verdict:
    requests = [one for one in did if isinstance(one, Request)]
    return judge(requests, [one for one in did if isinstance(one, CloudCall)], MANAGERS, LEASE)


def wrong(found: Verdict) -> tuple[int, int, int]:
    return len(found.intruders), len(found.late), len(found.on_the_way)


def test_a_leader_that_renews_writes_and_calls_is_clean() -> None:
    found = verdict(
        lease("a", 0), write("a", 1), lease("a", 10), write("a", 20), call("a", 24), write("b", 5, code=404)
    )
    assert wrong(found) == (1, 0, 0), "the one write is b's, which never led"
    assert wrong(verdict(lease("a", 0), write("a", 1), lease("a", 10), write("a", 20), call("a", 24))) == (0, 0, 0)


def test_two_managers_with_a_lease_each_are_two_writers() -> None:
    found = verdict(lease("a", 0), lease("b", 0, name="another"), write("a", 1), write("b", 2), call("b", 3))
    assert wrong(found) == (2, 0, 0)
    assert "by one that did not lead: b patch nodes n (200) at 2.000" in str(found)


def test_reads_renewals_and_reviews_are_no_writes() -> None:
    reads = Request("uid-b", "list", "nodes", "", "", 200, 1, 1.1)
    review = Request("uid-b", "create", "subjectaccessreviews", "", "", 201, 1, 1.1)
    assert wrong(verdict(lease("a", 0), reads, review, lease("b", 2, code=409), call("b", 1, "list_routes"))) == (
        0,
        0,
        0,
    )


def test_what_a_stopped_leader_begins_after_its_time_is_late() -> None:
    takes_over = [lease("a", 0), write("a", 1), lease("b", 16), write("b", 17)]
    assert wrong(verdict(*takes_over, write("a", 18))) == (0, 1, 0)
    assert wrong(verdict(*takes_over, call("a", 18))) == (0, 1, 0)
    assert wrong(verdict(*takes_over, write("a", 15.5))) == (0, 1, 0), "nobody leads, and it may not either"


def test_what_was_begun_in_time_and_answered_later_was_on_its_way() -> None:
    taken = [lease("a", 0), lease("b", 16)]
    assert wrong(verdict(*taken, write("a", 14.9, took=3))) == (0, 0, 1)
    assert wrong(verdict(*taken, CloudCall("a", "create_route", "10.0.0.0/24", 14.9, math.inf))) == (0, 0, 1)
    assert wrong(verdict(*taken, write("a", 14.9, took=0.5))) == (0, 0, 0)


def test_nothing_may_follow_a_release() -> None:
    did = [lease("a", 0), write("a", 1), lease("a", 2, ""), lease("b", 2.5), write("b", 3)]
    found = verdict(*did)
    assert wrong(found) == (0, 0, 0)
    assert [(one.who, round(one.over, 2)) for one in found.holds] == [("a", 2.01), ("b", 17.5)]
    assert (found.firsts[1].began, found.holds[0].released) == (3, 2.01)
    assert wrong(verdict(*did, write("a", 2.2, resource="events"))) == (0, 1, 0)


def test_writes_of_a_lease_are_in_the_order_of_the_versions_that_they_replace() -> None:
    def replacing(version: int, one: Request, ended: float) -> Request:
        return evolve(one, ended=ended, body={**one.body, "metadata": {"resourceVersion": str(version)}})

    release = replacing(7, lease("a", 2, ""), 2.6)
    acquisition = replacing(9, lease("b", 2.1), 2.5)
    first, second = holds([lease("a", 0), acquisition, release], LEASE)
    assert (first.released, first.lost, second.who, second.began) == (2.6, 2.5, "uid-b", 2.1)


def test_who_takes_it_again_leads_again() -> None:
    did = [lease("a", 0), lease("a", 2, ""), lease("a", 30), write("a", 31)]
    assert wrong(verdict(*did)) == (0, 0, 0)
    assert [(one.who, one.began) for one in holds(did, LEASE)] == [("uid-a", 0), ("uid-a", 30)]


def test_what_is_forbidden_is_told() -> None:
    found = verdict(lease("a", 0), write("a", 1, code=403), Request("uid-b", "list", "nodes", "", "", 401, 1, 1.1))
    assert [(one.who, one.code) for one in found.forbidden] == [("uid-a", 403), ("uid-b", 401)]


def test_the_audit_log_tells_who_and_when_and_what_stands_in_a_lease() -> None:
    def line(resource: str, body: object = None, **more: Any) -> bytes:
        event = {
            "stage": "ResponseComplete",
            "verb": "update",
            "user": {"username": "system:serviceaccount:x", "uid": "uid-a"},
            "objectRef": {"resource": resource, "name": "it", "namespace": "kube-system", **more},
            "responseStatus": {"code": 200},
            "requestReceivedTimestamp": "2026-01-02T03:04:05.000000Z",
            "stageTimestamp": "2026-01-02T03:04:05.250000Z",
            "requestObject": body,
        }
        return json.dumps(event).encode()

    lines = [line("leases", {"spec": {"holderIdentity": "x"}}), line("nodes", subresource="status")]
    without = json.dumps({"stage": "ResponseComplete", "verb": "get"}).encode()
    first, second = parse([*lines, without])
    assert (first.who, first.resource, first.body["spec"]["holderIdentity"]) == ("uid-a", "leases", "x")
    assert (second.resource, second.body, second.ended - second.began) == ("nodes/status", {}, 0.25)
