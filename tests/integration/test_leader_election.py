"""Two managers as processes of their own, on one Lease: who leads, who takes over and when, who
writes nothing more."""

from __future__ import annotations

import re
import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import EMBEDDED, REAL, Cluster, Share
from tests.support.api import LEASE, NODES
from tests.support.managers import LEASE_SECONDS, RETRY, Managers
from tests.support.process import Process, Start

LATE = 15.0
"""Seconds by which a busy machine may wake a process late."""
LONG = "--leader-elect-lease-duration=60s"
"""Much longer than LATE: who waits for the end of such a lease is found out."""


class Elected(Managers):
    def leader(self, *flags: str, kubeconfig: Path | None = None) -> Process:
        """A manager that leads and has written something."""
        process = self(*flags, kubeconfig=kubeconfig)
        eventually(lambda: "running: " in process.log, 60, lambda: process.log)
        self.add_node("first")
        eventually(lambda: self.is_initialised("first"), 60, lambda: process.log)
        return process

    def standby(self, kubeconfig: Path | None = None) -> Process:
        """A manager that is ready to take over."""
        process = self(kubeconfig=kubeconfig)
        eventually(lambda: "this process stands by" in process.log, 60, lambda: process.log)
        eventually(lambda: process.ask("/readyz")[0] == 200, 60, lambda: process.ask("/readyz?verbose"))
        return process

    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.api.get(LEASE)["spec"]
        return spec


@pytest.fixture
def managers(api: Cluster, start: Start, share: Share, tmp_path: Path) -> Elected:
    share({"on_demand": {"types": ["m-2"], "zones": ["z-1"], "region": "r-1"}})
    return Elected(api, start, tmp_path)


@pytest.mark.row("M1")
def test_a_stopped_leader_drains_and_the_other_does_not_wait_for_its_lease(managers: Elected) -> None:
    """It takes a part of a second (`make bench` measures it)."""
    leader = managers.leader(LONG)
    identity = managers.spec()["holderIdentity"]
    standby = managers.standby()
    assert "[+]manager ok: standing by" in standby.ask("/readyz?verbose")[1]
    assert "[+]leaderElection ok" in standby.ask("/healthz?verbose")[1]
    assert standby.metric("leader_election_master_status", name="cloud-controller-manager") == 0
    assert leader.metric("leader_election_master_status", name="cloud-controller-manager") == 1
    # By it the alert of "nobody leads" knows which leader_election_master_status counts.
    assert re.search(r"^running_managed_controllers\{.*\} 0\.0$", standby.ask("/metrics")[1], re.M)
    assert standby.metric("running_managed_controllers") == 0
    listed = standby.metric("informer_relists_total")
    standby.signal(signal.SIGUSR1)
    eventually(lambda: f"send the signal to the leader, {identity}" in standby.log)

    leader.signal(signal.SIGTERM)
    assert leader.ended() == 0
    managers.add_node("second")
    eventually(lambda: managers.is_initialised("second"), LATE, lambda: (leader.log, standby.log))
    assert "nothing left behind" in leader.log
    assert "released the lease kube-system/cloud-controller-manager" in leader.log
    spec = managers.spec()
    assert spec["holderIdentity"] not in ("", identity)
    assert spec["leaseTransitions"] == 1
    assert standby.metric("informer_relists_total") == listed  # a takeover lists nothing
    assert standby.metric("leader_election_master_status", name="cloud-controller-manager") == 1

    def told() -> list[tuple[str, str, str]]:
        return sorted(
            (event["reason"], event["source"]["component"], event["message"])
            for event in managers.api.events_of("cloud-controller-manager")
        )

    component = "cloud-controller-manager"
    eventually(
        lambda: (
            told()
            == sorted(
                [
                    ("LeaderElection", component, f"{identity} became leader"),
                    ("LeaderElection", component, f"{identity} stopped leading"),
                    ("LeaderElection", component, f"{spec['holderIdentity']} became leader"),
                ]
            )
        ),
        message=told,
    )
    standby.signal(signal.SIGTERM)
    assert standby.ended() == 0
    assert managers.spec()["holderIdentity"] == ""


@pytest.mark.row("M2")
@EMBEDDED
def test_a_killed_leader_is_replaced_after_its_lease(managers: Elected) -> None:
    leader = managers.leader()
    standby = managers.standby()
    leader.signal(signal.SIGKILL)
    assert leader.ended() == -signal.SIGKILL
    last = managers.spec()
    managers.add_node("second")
    eventually(lambda: managers.is_initialised("second"), 60, lambda: standby.log)
    spec = managers.spec()
    renewed, acquired = (datetime.fromisoformat(text) for text in (last["renewTime"], spec["acquireTime"]))
    assert LEASE_SECONDS <= (acquired - renewed).total_seconds() < LEASE_SECONDS + 2 * RETRY + LATE
    assert spec["leaseTransitions"] == 1


@pytest.mark.row("M2")
@EMBEDDED
def test_a_leader_that_stood_still_for_longer_than_its_lease_writes_nothing_more(managers: Elected) -> None:
    """Nobody else is there, so whatever is written is its own."""
    leader = managers.leader()
    leader.signal(signal.SIGSTOP)
    managers.add_node("second")
    renewed = managers.spec()["renewTime"]
    time.sleep(LEASE_SECONDS)  # real time: a process stands still
    before = managers.api.get(f"{NODES}/second")
    leader.signal(signal.SIGCONT)
    assert leader.ended() == 1
    assert "leaderelection lost: the lease kube-system/cloud-controller-manager was not renewed" in leader.log
    assert "ended without draining" in leader.log
    assert managers.api.get(f"{NODES}/second") == before
    assert managers.spec()["renewTime"] == renewed
    assert not managers.is_initialised("second")


@pytest.mark.row("M2")
@EMBEDDED
def test_a_leader_that_loses_the_server_ends_and_another_goes_on(managers: Elected) -> None:
    with managers.api.proxied() as (proxy, kubeconfig):
        cut_off = managers.leader(kubeconfig=kubeconfig)
        proxy.go_away()
        time.sleep(1.0)
        proxy.come_back()
        managers.add_node("second")
        eventually(lambda: managers.is_initialised("second"), 60, lambda: cut_off.log)
        assert "is renewed again" in cut_off.log or managers.spec()["leaseTransitions"] == 0
        standby = managers.standby()
        proxy.go_away()
        assert cut_off.ended() == 1
        assert "leaderelection lost: " in cut_off.log
        managers.add_node("third")
        eventually(lambda: managers.is_initialised("third"), 60, lambda: standby.log)
        assert managers.spec()["leaseTransitions"] == 1


@pytest.mark.parametrize("api", [REAL], indirect=True)
def test_with_the_rules_of_the_go_manager_it_polls_and_names_what_is_missing(managers: Elected, tmp_path: Path) -> None:
    with managers.api.lacking("watch", "leases", tmp_path / "no-watch") as identity:
        leader = managers.leader(LONG, kubeconfig=identity.kubeconfig)
        standby = managers.standby(kubeconfig=identity.kubeconfig)
        eventually(lambda: "missing permission: watch on leases" in standby.log)
        leader.signal(signal.SIGTERM)
        assert leader.ended() == 0
        managers.add_node("second")
        eventually(lambda: managers.is_initialised("second"), LATE, lambda: standby.log)
        assert standby.ask("/healthz?verbose")[0] == 200
        assert standby.log.count("missing permission") == 1


@pytest.mark.row("O13")
def test_a_standby_of_another_cluster_name_says_that_it_waits_in_vain(managers: Elected) -> None:
    leader = managers.leader(LONG)
    standby = managers("--cluster-name=blue")
    eventually(lambda: "serves provider fake, cluster blue" in standby.log, 60, lambda: standby.log)
    assert "--leader-elect-resource-name" in standby.log
    eventually(lambda: standby.ask("/readyz")[0] == 200, 60, lambda: standby.ask("/readyz?verbose"))
    status, text = standby.ask("/healthz")
    assert status == 500
    assert "[-]leaderElection failed" in text
    assert standby.ask("/livez")[0] == 200, "a restart would not help"
    assert leader.ask("/healthz")[0] == 200

    def reasons() -> set[str]:
        return {event["reason"] for event in managers.api.events_of("cloud-controller-manager")}

    eventually(lambda: "LeaseHeldByAnotherManager" in reasons(), message=reasons)
