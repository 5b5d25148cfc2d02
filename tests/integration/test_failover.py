"""Two managers over the real API server with one shared cloud: the leader is ended in every way, at
random moments too, and there are never two writers.

The judges are the API server's audit log and the cloud's journal, not the managers.
`FAILOVER=2000,20` runs it with 2,000 nodes, the lease's default times, an outage of the API server,
and 20 rounds at random moments; with `FAILOVER_KINDS=ours-ours,ours-go` also beside the Go manager,
on one Lease. `FAILOVER_SEED` repeats a run.
"""

from __future__ import annotations

import math
import os
import random
import signal
import time
from pathlib import Path
from typing import Final

import pytest

from cloudprovider.testing.waiting import eventually
from tests.lab.envtest.build import assets
from tests.support.failover.stage import Kind, Stage, Timing, stage
from tests.support.failover.supervisor import Candidate
from tests.support.tiers import need

LONG: Final = "FAILOVER" in os.environ
NODE_COUNT, ROUNDS = map(int, os.environ.get("FAILOVER", "60,0").split(","))
SEED: Final = int(os.environ.get("FAILOVER_SEED", "20"))
KINDS: Final = os.environ.get("FAILOVER_KINDS", "ours-ours").split(",")
# At load 20 the API server took more than 4 s to answer, and a leader rightly gave up.
TIMING: Final = Timing() if LONG else Timing(8, 7, 0.5)
FLAGS: Final = (
    ("--node-deletion-young-grace=0s", "--route-reconciliation-period=10s")
    if LONG
    else (
        "--node-deletion-young-grace=0s",
        "--node-monitor-period=1s",
        "--route-reconciliation-period=2s",
        "--cloud-api-concurrency=4",
    )
)
AGREE_SECONDS: Final = 180.0 if LONG else 60.0
OUTAGE_SECONDS: Final = 60.0
ROLES_SECONDS: Final = 30.0
FIRST_WRITE_SECONDS: Final = 2.0
SLACK: Final = 0.1
"""Seconds by which a request may be noticed late on a busy machine."""
ALREADY_SENT: Final = 8
"""So many requests may land after the time of a process that was stopped in the middle of them: one
of each thread that was about to send. Four make provider calls, and nodes, Services, routes and
Events have one each that writes."""
ENDS: Final = (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP)

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("failover")]


@pytest.fixture(autouse=True)
def _real_api_server() -> None:
    need("the real API server", assets)


def _kinds(pair: str) -> list[Kind]:
    return ["go" if one == "go" else "ours" for one in pair.split("-")]


def _settle(played: Stage) -> Candidate:
    """The leader, once the other one stands by."""
    leader = played.await_leader()
    eventually(lambda: played.standby(leader), 60, played.logs)
    return leader


def _first_act(played: Stage, terms: int) -> float:
    """When the first thing was done in the term after the first `terms` ones, in Unix seconds."""

    def first() -> float | None:
        act = played.verdict().firsts.get(terms)
        return None if act is None else act.began

    found = eventually(first, TIMING.lease_duration + 2 * TIMING.retry_period + 30, played.logs)
    assert found is not None
    return found


def _end(played: Stage, kind: signal.Signals) -> str:
    """End the leader, and see the other one write in time; returns what was seen."""
    leader = _settle(played)
    terms = len(played.holds())
    at = leader.signal(kind)
    first = _first_act(played, terms)
    if kind == signal.SIGSTOP:
        leader.signal(signal.SIGCONT)
    eventually(lambda: leader.ended is not None, 60, played.logs)
    before = played.holds()[terms - 1]
    released = kind == signal.SIGTERM and leader.name.startswith("ours")
    assert not released or before.released < math.inf, f"{leader.name} did not release its lease:\n{leader.log[-2000:]}"
    took = first - (before.released if released else at)
    expired = TIMING.lease_duration + 2 * TIMING.retry_period
    said = f"{kind.name} of {leader.name}: first write {took:.2f} s after {'its release' if released else 'that'}"
    print(said)
    assert took <= FIRST_WRITE_SECONDS + (0 if released else expired), said
    assert leader.code != 0 or released, f"{leader.name} ended with {leader.code}"
    return said


def _round(played: Stage, dice: random.Random, number: int) -> None:
    """End the leader at a random moment, whether the other one is ready or not."""
    leader = played.await_leader()
    time.sleep(dice.uniform(0, 2 * TIMING.retry_period))
    kind = dice.choice(ENDS)
    print(f"round {number + 1}: {kind.name} of {leader.name}")
    leader.signal(kind)
    played.await_leader(but=leader)
    if kind == signal.SIGSTOP:
        time.sleep(dice.uniform(0, TIMING.retry_period))
        leader.signal(signal.SIGCONT)
    eventually(lambda: leader.ended is not None, 60, played.logs)


def _judge(played: Stage, restarted: float = math.inf) -> None:
    """Cloud and cluster agree, and nobody wrote out of turn. What the Go manager does late is told,
    and not judged.

    An API server that was `restarted` then forbids everything until it has read its roles.
    """
    try:
        took = played.await_agreement(AGREE_SECONDS)
    except AssertionError:
        print(played.verdict(SLACK))
        raise
    verdict = played.verdict(SLACK)
    print(f"cloud and cluster agreed {took:.1f} s after the last change; {verdict}")
    assert not verdict.intruders, verdict
    roles_read = restarted + ROLES_SECONDS
    assert not [one for one in verdict.forbidden if not restarted <= one.began <= roles_read], verdict
    assert len([act for act in verdict.late if act.who.startswith("ours")]) <= ALREADY_SENT, verdict


@pytest.mark.row("M1", "M2")
@pytest.mark.parametrize("pair", KINDS)
def test_the_other_one_takes_over_however_the_leader_ends(tmp_path: Path, pair: str) -> None:
    with stage(tmp_path, _kinds(pair), nodes=NODE_COUNT, timing=TIMING, flags=FLAGS) as played:
        with played.churn(seed=SEED, rate=10):
            for kind in ENDS * (2 if "go" in pair else 1):
                _end(played, kind)
        _judge(played)


@pytest.mark.skipif(not LONG, reason="FAILOVER is not set")
@pytest.mark.parametrize("pair", KINDS)
def test_there_is_one_writer_whenever_the_leader_ends(tmp_path: Path, pair: str) -> None:
    dice = random.Random(SEED)
    print(f"seed {SEED}")
    with stage(tmp_path, _kinds(pair), nodes=NODE_COUNT, timing=TIMING, flags=FLAGS) as played:
        with played.churn(seed=SEED):
            for number in range(ROUNDS):
                _round(played, dice, number)
        _judge(played)


@pytest.mark.skipif(not LONG, reason="FAILOVER is not set")
@pytest.mark.parametrize("pair", KINDS)
def test_an_outage_of_the_api_server_ends_with_one_leader(tmp_path: Path, pair: str) -> None:
    with stage(tmp_path, _kinds(pair), nodes=NODE_COUNT, timing=TIMING, flags=FLAGS) as played:
        with played.churn(seed=SEED):
            _settle(played)
            played.server.stop_apiserver()
            time.sleep(OUTAGE_SECONDS)
            restarted = time.time()
            played.server.start_apiserver()
            print(f"{played.await_leader().name} leads after the outage")
        _judge(played, restarted)
