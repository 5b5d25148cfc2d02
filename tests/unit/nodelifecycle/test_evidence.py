"""Row N21, simulated on a moved clock: the controller's parts, a cloud that may lie, and kubelets that fall silent."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterable

import pytest

from cloudprovider import InstanceState
from controllers.nodelifecycle import BreakerOptions
from controllers.runtime.queue import Result
from tests.unit.nodelifecycle.support import PERIOD, Bench, node

ANNOUNCED = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
ZONE = "topology.kubernetes.io/zone"


class Simulation(Bench):
    """Seconds pass one by one: kubelets fall silent, sweeps and timers come, keys are worked on at once."""

    def __init__(self, *, max_batch: int = 100, breaker: BreakerOptions | None = None) -> None:
        super().__init__(max_batch=max_batch, breaker=breaker)
        self.began = self.clock.monotonic()
        self.silent_at: dict[str, float] = {}
        self.fields: dict[str, dict[str, object]] = {}
        self.answers: dict[str, list[float]] = defaultdict(list)
        self.max_batch = max_batch
        self._next_sweep = self.began

    def join(self, names: Iterable[str], zone: str = "a", *, ready: bool = True, announced: bool = False) -> None:
        for name in names:
            fields: dict[str, object] = {
                "provider_id": f"fake://{name}",
                "labels": {ZONE: zone},
                "taints": [ANNOUNCED] if announced else [],
            }
            self.fields[name] = fields
            self.put(name, ready="True" if ready else "False", **fields)

    def terminate(self, names: Collection[str], *, spread: float = 10.0) -> None:
        """The instances end; their Nodes stay Ready until 40 s after the last heartbeat, at most `spread` s ago."""
        rng = random.Random(2)
        for name in names:
            self.cloud.says[name] = InstanceState.GONE
            self.silent_at[name] = self.now + 40 - rng.random() * spread

    def fall_silent(self, name: str) -> None:
        before = self.lister.nodes[name]
        self.lister.nodes[name] = after = node(name, ready="Unknown", **self.fields[name])
        self.triggers.on_update(before, after)

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def run_for(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            for name in [name for name, at in self.silent_at.items() if at <= self.now]:
                del self.silent_at[name]
                if name in self.lister.nodes:
                    self.fall_silent(name)
            if self.now >= self._next_sweep:
                self._next_sweep += PERIOD
                self.survey()
            self.work()
            self.clock.advance(1.0)

    def work(self) -> None:
        while len(self.queue):
            keys = self.queue.get_many(self.max_batch, 0.0, timeout=0)
            if not keys:
                return
            self.clock.advance(0.001)
            asked = len(self.cloud.asked)
            results = self.reconciled(keys)
            for name in self.cloud.asked[asked:]:
                if self.cloud.says.get(name) is InstanceState.GONE:
                    self.answers[name].append(self.now)
            for name, result in results.items():
                self.queue.done(name)
                if isinstance(result, Result) and result.requeue_after is not None:
                    self.queue.add_after(name, result.requeue_after)
                elif isinstance(result, Exception):
                    self.queue.add_rate_limited(name)

    def last_confirmation(self, names: Iterable[str]) -> float:
        return max(
            next(at for at in self.answers[name] if at >= self.answers[name][0] + PERIOD - 0.1) for name in names
        )

    def run_until_gone(self, names: Collection[str], limit: float = 600.0) -> None:
        end = self.now + limit
        while self.now < end and not set(names) <= set(self.server.deleted):
            self.run_for(1.0)


def _names(start: int, stop: int, prefix: str = "n") -> list[str]:
    return [f"{prefix}{number}" for number in range(start, stop)]


@pytest.mark.row("N21")
@pytest.mark.parametrize("max_batch", [1, 100])
@pytest.mark.parametrize("announced", [False, True], ids=["unannounced", "announced"])
def test_a_planned_scale_in_from_a_thousand_nodes_to_a_hundred_is_over_soon(announced: bool, max_batch: int) -> None:
    sim = Simulation(max_batch=max_batch)
    kept, gone = _names(0, 100), _names(100, 1000)
    sim.join(kept)
    sim.join(gone, announced=announced)
    sim.run_for(20)
    sim.terminate(gone)
    sim.run_until_gone(gone)
    assert set(sim.server.deleted) == set(gone)
    assert sim.now - sim.last_confirmation(gone) <= 2 * PERIOD + 1.0, "two monitor periods, and the step of the clock"
    assert "ReadyNodeSaidToBeGone" not in sim.recorder.reasons(), "instances that have just ended are no lie"
    assert sim.metrics.value("node_lifecycle_deletion_breaker_trips_total") == 0


def test_what_the_evidence_for_a_scale_in_costs() -> None:
    """Each Ready node is asked about once or twice; without batches at most 300 of a zone in one go."""
    for max_batch, most in ((100, 3000), (1, 1000)):
        sim = Simulation(max_batch=max_batch)
        sim.join(_names(0, 1000))
        sim.run_for(20)
        sim.terminate(["n0"])
        sim.run_until_gone(["n0"])
        assert sim.server.deleted == ["n0"]
        assert len(sim.cloud.asked) <= most
        before = len(sim.cloud.asked)
        sim.run_for(60)
        assert len(sim.cloud.asked) == before, "nobody is asked about when nobody is gone"


@pytest.mark.row("N21")
@pytest.mark.parametrize("max_batch", [1, 100])
@pytest.mark.parametrize(("total", "share"), [(100, 0.05), (100, 0.5), (1000, 0.05)])
def test_a_cloud_that_leaves_instances_out_deletes_none_that_exists(max_batch: int, total: int, share: float) -> None:
    sim = Simulation(max_batch=max_batch)
    everyone = _names(0, total)
    sim.join(everyone)
    sim.run_for(10)
    left_out = random.Random(total).sample(everyone, int(share * total))
    for name in left_out:
        sim.cloud.says[name] = InstanceState.GONE
    for name in left_out[: len(left_out) // 2]:
        sim.silent_at[name] = sim.now + 20  # their instances run, but their kubelets have died
    sim.run_for(90)
    assert not sim.server.deletes
    assert sim.metrics.value("node_lifecycle_held_nodes") == len(left_out) // 2
    assert sim.recorder.reasons().count("ReadyNodeSaidToBeGone") == min(3, len(left_out) - len(left_out) // 2)
    assert sim.metrics.value("node_lifecycle_deletion_breaker_trips_total") == 1
    assert sim.recorder.reasons().count("DeletingNodeHeldBack") == len(left_out) // 2, "each is told once"
    sim.cloud.says.clear()
    sim.run_for(30)
    assert not sim.server.deletes
    assert sim.metrics.value("node_lifecycle_held_nodes") == 0
    sim.terminate(everyone[:20])
    sim.run_for(70)
    assert set(sim.server.deleted) == set(everyone[:20]), "it is believed again"


@pytest.mark.row("N21")
def test_one_ready_node_that_is_left_out_is_enough() -> None:
    sim = Simulation()
    sim.join(_names(0, 20), ready=False)
    sim.join(["alone"])
    sim.cloud.says = dict.fromkeys([*_names(0, 20), "alone"], InstanceState.GONE)
    sim.run_for(300)
    assert not sim.server.deletes
    sim.fall_silent("alone")
    sim.run_for(60)
    assert sim.metrics.value("node_lifecycle_contradicting_nodes") == 0, "over as soon as it is not Ready"


@pytest.mark.row("N21")
def test_a_lying_zone_is_held_while_another_zones_scale_in_goes_on() -> None:
    sim = Simulation()
    sim.join(_names(0, 50, "a"), "a")
    sim.join(_names(0, 50, "b"), "b")
    sim.run_for(10)
    for name in _names(0, 25, "a"):
        sim.cloud.says[name] = InstanceState.GONE
    for name in _names(0, 10, "a"):
        sim.silent_at[name] = sim.now + 5
    sim.terminate(_names(0, 40, "b"))
    sim.run_for(300)
    assert set(sim.server.deleted) == set(_names(0, 40, "b"))


@pytest.mark.row("N21")
def test_where_no_node_is_ready_the_count_holds() -> None:
    sim = Simulation()
    sim.join(_names(0, 100))
    sim.run_for(700)
    sim.terminate(_names(0, 100), spread=0)
    sim.run_for(40 + 120)
    assert 50 <= len(sim.server.deleted) <= 53, "half, and then one a minute"
    sim.run_for(600)
    assert len(sim.server.deleted) <= 63
    assert sim.recorder.reasons().count("DeletionBreakerOpened") == 1


@pytest.mark.row("N21")
@pytest.mark.parametrize("total", [5, 12, 40])
def test_a_restart_every_minute_does_not_help_a_liar(total: int) -> None:
    left = set(_names(0, total))
    for _ in range(20):
        sim = Simulation()
        sim.join(left, ready=False)
        sim.cloud.says = dict.fromkeys(left, InstanceState.GONE)
        sim.run_for(60)
        left -= set(sim.server.deleted)
    assert len(left) == total


@pytest.mark.row("N21")
def test_a_ready_node_about_which_the_cloud_never_answers_delays_and_does_not_prevent() -> None:
    sim = Simulation()
    sim.join(_names(0, 50))
    sim.cloud.silent.add("n49")
    sim.run_for(10)
    sim.terminate(["n0"])
    sim.run_for(60)
    assert not sim.server.deleted
    sim.run_for(60)
    assert sim.server.deleted == ["n0"]


@pytest.mark.row("N21")
def test_a_cloud_that_cannot_say_anything_of_ready_nodes_is_no_witness() -> None:
    sim = Simulation()
    sim.join(_names(0, 50))
    sim.run_for(10)
    sim.cloud.says = {name: RuntimeError("no rights") for name in _names(10, 50)}
    sim.terminate(_names(0, 10), spread=0)
    sim.run_for(100)
    assert len(sim.server.deleted) <= 1, "the count holds, in a new process a trickle"


def test_other_ones_are_asked_about_before_the_same_ones_again() -> None:
    sim = Simulation(max_batch=1, breaker=BreakerOptions(witnesses=20))
    sim.join(_names(0, 105))
    sim.run_for(10)
    for number in range(5):
        sim.terminate([f"n{number}"], spread=0)
        sim.run_for(60)
        assert f"n{number}" in sim.server.deleted
    witnesses = [name for name in sim.cloud.asked if name not in _names(0, 5)]
    first = witnesses[:100]
    assert len(set(first)) == 100
