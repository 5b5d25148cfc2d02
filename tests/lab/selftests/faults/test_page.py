"""The page of the faults, and the catalogue behind it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.faults.catalogue import BY_ID, FAULTS, GROUPS
from tests.lab.faults.field import Fault
from tests.lab.faults.mutants import MUTANTS
from tests.lab.faults.page import PAGE, anew, cells_of

ROOT = Path(__file__).parents[4]


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
    code = "from tests.lab.faults.mutants import MUTANTS\nfor one in MUTANTS.values(): one.apply()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_page_is_current_and_every_fault_was_run() -> None:
    text = PAGE.read_text()
    cells = cells_of(text)
    assert text == anew(text), "run `make generate`"
    assert {name for name, row in cells.items() if "not run" in row} <= {"F36"}  # it takes a machine that is idle
    assert not [name for name, (ours, _) in cells.items() if "failed" in ours]
