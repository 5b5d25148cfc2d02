"""What stands in a Lease and what is written into it: pure functions."""

from __future__ import annotations

import json
import math
from typing import Any

import attrs
import pytest

from controllers.runtime.election.record import SERVES, Observation, Record, acquired, read, released, renewed, stranger
from controllers.runtime.election.settings import LeaseSettings, wrong_durations

NOW = 1_700_000_000.25
STAMP = "2023-11-14T22:13:20.250000Z"
SETTINGS = LeaseSettings(name="ccm", identity="me")
ACME = LeaseSettings(name="ccm", identity="me", serves={"provider": "acme", "cluster": "blue"})


def lease(holder: str | None, **spec: Any) -> dict[str, Any]:
    return {
        "kind": "Lease",
        "metadata": {"name": "ccm", "resourceVersion": "7", "labels": {"a": "b"}},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "leaseTransitions": 3,
            "strategy": "odd",
            **spec,
        },
    }


def test_a_new_lease() -> None:
    assert acquired(None, SETTINGS, NOW) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "ccm", "namespace": "kube-system"},
        "spec": {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "acquireTime": STAMP,
            "renewTime": STAMP,
            "leaseTransitions": 0,
        },
    }


def test_taking_over_counts_a_transition_and_keeps_what_is_not_ours() -> None:
    old = lease("other", renewTime="2020-01-01T00:00:00.000000Z")
    new = acquired(old, SETTINGS, NOW)
    assert new["metadata"] == old["metadata"]
    assert new["spec"]["strategy"] == "odd"
    assert read(new) == Record("me", 15, STAMP, STAMP, 4)
    assert old["spec"]["holderIdentity"] == "other"  # the cached one is not touched


def test_our_own_lease_keeps_its_time_and_transitions() -> None:
    old = lease("me", acquireTime="2020-01-01T00:00:00.000000Z", leaseDurationSeconds=60)
    assert read(acquired(old, SETTINGS, NOW)) == Record("me", 15, "2020-01-01T00:00:00.000000Z", STAMP, 3)


def test_renewing_changes_the_time_alone() -> None:
    held = Record("me", 15, "2020-01-01T00:00:00.000000Z", "2020-01-01T00:00:02.000000Z", 3)
    new = renewed(lease("me"), SETTINGS, held, NOW)
    assert read(new) == Record("me", 15, "2020-01-01T00:00:00.000000Z", STAMP, 3)
    assert new["metadata"]["resourceVersion"] == "7"


def test_a_released_lease_is_nobodys_and_short() -> None:
    new = released(lease("me"), SETTINGS, NOW)
    assert new["spec"]["holderIdentity"] == ""
    assert read(new) == Record("", 1, STAMP, STAMP, 3)
    assert new["spec"]["strategy"] == "odd"


@pytest.mark.parametrize(
    "spec",
    [None, [], {"holderIdentity": 7, "leaseDurationSeconds": "15", "leaseTransitions": True}, {"leaseTransitions": -1}],
)
def test_what_cannot_be_understood_counts_as_not_there(spec: Any) -> None:
    assert read({"spec": spec}) == Record()
    assert read(acquired({"metadata": {}, "spec": spec}, SETTINGS, NOW)).holder == "me"


def test_a_record_expires_by_when_we_saw_it_change_and_by_its_own_duration() -> None:
    seen = Observation(SETTINGS)
    assert seen.free_at() == -math.inf
    seen.see(lease("other", leaseDurationSeconds=40, renewTime="2099-01-01T00:00:00.000000Z"), 100.0)
    assert seen.free_at() == 140.0
    changed = lease("other", leaseDurationSeconds=40, renewTime="2099-01-01T00:00:00.000000Z")
    changed["metadata"]["annotations"] = {"an": "administrator"}
    seen.see(changed, 130.0)
    assert seen.free_at() == 140.0
    seen.see(lease("other", leaseDurationSeconds=40, renewTime="1999-01-01T00:00:00.000000Z"), 135.0)
    assert seen.free_at() == 175.0
    seen.see(lease("third", leaseDurationSeconds=None), 136.0)
    assert seen.free_at() == 151.0  # our own duration


def test_a_deleted_lease_stays_promised() -> None:
    seen = Observation(SETTINGS)
    seen.see(lease("other"), 100.0)
    seen.see(None, 101.0)
    assert (seen.lease, seen.free_at()) == (None, 115.0)
    seen.see(lease(""), 102.0)
    assert seen.free_at() == 115.0
    seen.see(released(lease("other"), SETTINGS, NOW), 103.0)
    assert seen.free_at() == -math.inf


@pytest.mark.row("M2")
@pytest.mark.parametrize(
    "by_hand",
    [
        {"holderIdentity": ""},
        {"holderIdentity": None},
        {"leaseDurationSeconds": 1},
        {"holderIdentity": "", "leaseDurationSeconds": 1},
        {"holderIdentity": "", "renewTime": None},
        {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": None, "renewTime": None},
    ],
)
def test_no_hand_shortens_what_a_holder_was_promised(by_hand: dict[str, Any]) -> None:
    """It goes on writing until its next renewal, which puts right what was changed."""
    held = {"acquireTime": STAMP, "renewTime": "2023-11-14T22:13:24.250000Z"}
    seen = Observation(SETTINGS)
    seen.see(lease("other", **held), 100.0)
    seen.see(lease("other", **held | by_hand), 104.0)
    assert seen.free_at() == 115.0
    seen.see(lease("other", **held | {"renewTime": "2023-11-14T22:13:26.250000Z"}), 106.0)
    assert seen.free_at() == 121.0
    seen.see(released(lease("other"), SETTINGS, NOW), 107.0)
    assert seen.free_at() == -math.inf


def test_a_first_look_at_a_lease_without_a_holder() -> None:
    seen = Observation(SETTINGS)
    seen.see({"spec": {}}, 100.0)
    assert seen.free_at() == -math.inf  # made beforehand, so that nobody needs the right to create it
    emptied = Observation(SETTINGS)
    emptied.see(lease("", renewTime=STAMP, acquireTime="2020-01-01T00:00:00.000000Z"), 100.0)
    assert emptied.free_at() == 115.0  # its holder may be at work


def test_durations_are_checked_as_in_go_and_all_at_once() -> None:
    assert wrong_durations(15, 10, 2) == []
    assert [field for field, _ in wrong_durations(0.5, 0, -1)] == ["lease_duration", "renew_deadline", "retry_period"]
    assert [field for field, _ in wrong_durations(10, 10, 9)] == ["lease_duration", "renew_deadline"]
    assert wrong_durations(15, 10, 8.4) == [("renew_deadline", "must be greater than the retry period times 1.2")]
    # The fence closes after 1.8 s: each leader would have ended before its first renewal.
    assert wrong_durations(2.9, 2.8, 2.3) == [
        ("retry_period", "must be less than 1.8s, nine tenths of the lease's whole seconds")
    ]
    with pytest.raises(
        ValueError, match=r"lease_duration=10: .*; renew_deadline=10: .*; name='': must be small letters"
    ):
        LeaseSettings(name="", lease_duration=10, renew_deadline=10, retry_period=9)
    assert LeaseSettings(name="x").identity != LeaseSettings(name="x").identity


def test_requests_are_short_and_the_fence_closes_before_the_lease_ends() -> None:
    for lease_duration, renew, retry in [(15, 10, 2), (2, 1.5, 0.4), (60, 59, 20), (2.9, 2.8, 1)]:
        one = LeaseSettings(name="x", lease_duration=lease_duration, renew_deadline=renew, retry_period=retry)
        assert one.request_timeout <= one.renew_deadline / 2
        assert one.renew_within <= one.held_for < one.whole_seconds <= lease_duration


def _told(new: dict[str, Any]) -> Any:
    return json.loads(new["metadata"]["annotations"][SERVES])


@pytest.mark.row("O13")
def test_a_leader_says_on_its_lease_what_it_serves_and_keeps_other_annotations() -> None:
    wanted = {"holder": "me", "provider": "acme", "cluster": "blue"}
    old = lease("")
    old["metadata"]["annotations"] = {"a": "b"}
    taken = acquired(old, ACME, NOW)
    assert _told(taken) == _told(acquired(None, ACME, NOW)) == wanted
    assert taken["metadata"]["annotations"]["a"] == "b"
    assert old["metadata"]["annotations"] == {"a": "b"}, "the cached one is not touched"
    del taken["metadata"]["annotations"]
    assert _told(renewed(taken, ACME, read(taken), NOW)) == wanted
    assert "annotations" not in released(taken, ACME, NOW)["metadata"]


@pytest.mark.row("O13")
@pytest.mark.parametrize(
    ("told", "different"),
    [
        ({"holder": "it", "provider": "acme", "cluster": "blue"}, ""),
        ({"holder": "it", "provider": "acme", "cluster": "blue", "more": 1}, ""),
        ({"holder": "it", "provider": "other", "cluster": "blue"}, "serves provider other, cluster blue"),
        ({"holder": "it", "provider": "acme", "cluster": "red"}, "serves provider acme, cluster red"),
        ({"holder": "former", "provider": "other", "cluster": "blue"}, ""),  # a Go manager keeps it
        ({"holder": "it", "provider": 7, "cluster": "blue"}, ""),
        ({"holder": "it"}, ""),
        ([], ""),
        ("no JSON", ""),
        pytest.param(100_000 * "[", "", id="no end"),
        (None, ""),
    ],
)
def test_who_stands_by_sees_that_its_leader_serves_something_else(told: Any, different: str) -> None:
    seen = lease("it")
    if told is not None:
        seen["metadata"]["annotations"] = {SERVES: told if isinstance(told, str) else json.dumps(told)}
    found = stranger(seen, ACME)
    assert bool(found) is bool(different)
    assert different in found
    assert stranger(seen, SETTINGS) == "", "a program that says nothing of itself compares nothing"
    if found:
        assert "held by it, which" in found
        assert "this process serves provider acme, cluster blue" in found
        assert "--leader-elect-resource-name" in found


@pytest.mark.row("O13")
def test_nobody_is_a_stranger_to_itself_or_where_nobody_leads() -> None:
    mine = acquired(None, ACME, NOW)
    assert stranger(mine, ACME) == stranger(None, ACME) == ""
    assert stranger(mine, LeaseSettings(name="ccm", identity="you", serves={"provider": "other"})) != ""
    other = LeaseSettings(name="ccm", identity="me", serves={"provider": "other"})
    assert stranger(mine, other) == "", "of ours from before a restart under a fixed identity"
    assert stranger(released(mine, ACME, NOW), attrs.evolve(other, identity="you")) == ""
