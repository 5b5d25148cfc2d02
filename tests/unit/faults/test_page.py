"""The page of the faults, and the catalogue behind it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults import __main__ as command
from tests.faults.catalogue import BY_ID, FAULTS, GROUPS
from tests.faults.field import Fault
from tests.faults.judge import Problem
from tests.faults.launch import CLOCK, bend, set_clock
from tests.faults.mutants import MUTANTS
from tests.faults.page import PAGE, anew, cells_of, figure, keep
from tests.faults.run import Outcome

ROOT = Path(__file__).parents[3]


def test_every_fault_of_the_list_has_its_row_in_order() -> None:
    assert [one.id for one in FAULTS] == [f"F{number}" for number in range(37)]
    assert [number for _, numbers in GROUPS for number in numbers] == list(range(1, 37))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_the_tests_that_a_row_names_exist(fault: Fault) -> None:
    for name in fault.tests:
        assert (ROOT / name).is_file(), name


def test_mutants_name_faults_that_are_there_and_take_something_out() -> None:
    assert {one.fault for one in MUTANTS.values()} <= set(BY_ID)
    assert len({one.fault for one in MUTANTS.values()}) >= 5


def test_each_mutant_finds_what_it_takes_out() -> None:
    """In a process of its own, which they break."""
    code = "from tests.faults.mutants import MUTANTS\nfor one in MUTANTS.values(): one.apply()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_a_clock_is_wrong_by_what_its_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    set_clock(tmp_path, -3600.0)
    bend(tmp_path / CLOCK)
    assert time.time() == -2600.0
    set_clock(tmp_path, 0.0)
    assert time.time() == 1000.0


def test_a_figure_is_the_time_and_what_was_wrong() -> None:
    outcome = Outcome(BY_ID["F3"], "ours", 2.34)
    assert figure(outcome) == "2.3 s"
    outcome.problems += [Problem("Nodes deleted", "Node a"), Problem("Nodes deleted", "Node b")]
    assert figure(outcome) == "**failed**; 2.3 s; Nodes deleted: 2"
    late = Problem("not equal within 60 s", "not equal within 60 s: node a")
    assert figure(Outcome(BY_ID["F3"], "go", None, problems=[late])) == "not equal within 60 s"


def test_a_run_replaces_its_own_figures_alone(tmp_path: Path) -> None:
    path = tmp_path / "faults.md"
    keep(path, [Outcome(BY_ID["F1"], "ours", 1.0), Outcome(BY_ID["F2"], "ours", 2.0)], load=1.0)
    keep(path, [Outcome(BY_ID["F2"], "go", 3.0)], load=1.0)
    cells = cells_of(path.read_text())
    assert cells["F1"] == ("1.0 s", "not run")
    assert cells["F2"] == ("2.0 s", "3.0 s")
    assert cells["F15"][1] == "cannot be run"


def test_the_page_is_current_and_every_fault_was_run() -> None:
    text = PAGE.read_text()
    cells = cells_of(text)
    assert text == anew(text), "run `make generate`"
    assert {name for name, row in cells.items() if "not run" in row} <= {"F36"}  # it takes a machine that is idle
    assert not [name for name, (ours, _) in cells.items() if "failed" in ours]


def test_an_unknown_id_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["F99"])
    assert "'F99' is none of F0, " in capsys.readouterr().err
