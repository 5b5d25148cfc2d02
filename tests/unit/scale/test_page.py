"""The tables of docs/reference/scale.md: goals can be missed, and what is missing is told."""

from __future__ import annotations

from tests.bench.scale.life import PHASES
from tests.bench.scale.page import blocks

FIGURES = {
    "seconds": 1.0,
    "cpu": 10.0,
    "server_cpu": 5.0,
    "peak": 100.0,
    "memory": 90.0,
    "calls": 200.0,
    "writes": 3000.0,
    "reads": 20.0,
    "unpaged": 0.0,
    "lists": 0.0,
    "load": 1.0,
}


def test_each_phase_has_a_block_and_there_is_one_per_node() -> None:
    made = blocks({"1000": dict.fromkeys(PHASES, FIGURES), "5000": {}})
    assert set(made) == {*PHASES, "per node"}
    assert "| 1,000 nodes | 1.00 |" in made["idle"].replace("90 |", "1.00 |", 1)
    assert "| 5,000 nodes | not finished |" in made["failover"]
    assert "| Nothing happens | 10.0 |" in made["per node"]
    assert "not measured" in made["per node"]


def test_goals_are_missed() -> None:
    whole = {"1000": {"start": FIGURES, "failover": FIGURES}, "20000": {"start": {**FIGURES, "cpu": 300.0}}}
    made = blocks(whole)
    assert "CPU per node at 20,000 nodes <= 1.25 times that at 1,000 nodes: missed (1.50)" in made["per node"]
    assert "lists <= 0: reached (0)" in made["failover"]
    found = blocks({"1000": {"failover": {**FIGURES, "lists": 2.0, "unpaged": 1.0}}})["failover"]
    assert "lists <= 0: missed (2)" in found
    assert "lists in one piece <= 0: missed (1)" in found


def test_linear_work_reaches_the_goal() -> None:
    made = blocks({"1000": {"start": FIGURES}, "20000": {"start": {**FIGURES, "cpu": 200.0}}})
    assert "reached (1.00)" in made["per node"]
