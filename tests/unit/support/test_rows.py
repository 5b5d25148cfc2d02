"""The line at the end of a test run, seen by running pytest over a small suite."""

import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
import pytest

pytestmark = pytest.mark.row("S13")

@pytest.mark.row("N10", "N2")
def test_passes():
    pass

@pytest.mark.row("N5")
class TestClass:
    @pytest.mark.parametrize("number", [1, 2])
    def test_parametrised(self, number):
        pass

@pytest.mark.row("M3")
def test_skipped():
    pytest.skip("not today")
"""
FAILING = """
import pytest

@pytest.mark.row("N2")
def test_fails():
    assert False

@pytest.fixture
def broken():
    yield
    raise RuntimeError

@pytest.mark.row("N10")
def test_fails_at_its_end(broken):
    pass
"""


@pytest.fixture
def run(tmp_path: Path) -> "Runner":
    return Runner(tmp_path)


class Runner:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pytest.ini").write_text("[pytest]\nmarkers = row: rows\naddopts = --strict-markers\n")
        conftest = Path(__file__).parents[2] / "conftest.py"
        (folder / "conftest.py").write_text(conftest.read_text())

    def __call__(self, *arguments: str, **files: str) -> list[str]:
        for name, text in files.items():
            (self.folder / f"{name}.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return (done.stdout + done.stderr).splitlines()


@pytest.mark.parametrize("arguments", [(), ("-n", "2")])
def test_rows_of_passed_tests_in_order(run: Runner, arguments: tuple[str, ...]) -> None:
    assert "rows proved: N2 N5 N10 S13" in run(*arguments, test_suite=SUITE)


@pytest.mark.parametrize("arguments", [(), ("-n", "2")])
def test_a_row_with_a_failed_test_is_not_proved(run: Runner, arguments: tuple[str, ...]) -> None:
    assert "rows proved: N5 S13" in run(*arguments, test_suite=SUITE, test_failing=FAILING)


def test_no_line_without_rows(run: Runner) -> None:
    lines = run(test_plain="def test_plain():\n    pass\n")
    assert any("1 passed" in line for line in lines)
    assert not any("rows proved" in line for line in lines)


def test_a_name_that_is_no_row_is_refused(run: Runner) -> None:
    lines = run(test_typo="import pytest\n@pytest.mark.row('hung calls')\ndef test_typo():\n    pass\n")
    assert any("'hung calls' names no row" in line for line in lines)


def test_a_run_of_everything_names_the_rows_that_it_did_not_prove(run: Runner) -> None:
    (line,) = [line for line in run(test_suite=SUITE) if line.startswith("rows not proved: ")]
    missing = line.removeprefix("rows not proved: ").split()
    assert not {"N2", "N5", "N10", "S13"} & set(missing)
    assert {"N1", "N25", "S21", "R6", "M3", "K17", "X8", "O6"} <= set(missing)
    assert "M5" in missing


@pytest.mark.parametrize("arguments", [("-k", "passes"), ("test_suite.py",), ("-m", "row")])
def test_a_part_of_it_does_not(run: Runner, arguments: tuple[str, ...]) -> None:
    lines = run(*arguments, test_suite=SUITE)
    assert any(line.startswith("rows proved: ") for line in lines)
    assert not any("rows not proved" in line for line in lines)


@pytest.mark.parametrize("name", ["N26", "Q1", "N0"])
def test_a_row_that_the_list_does_not_have_is_refused(run: Runner, name: str) -> None:
    lines = run(test_typo=f"import pytest\n@pytest.mark.row({name!r})\ndef test_typo():\n    pass\n")
    assert any(f"{name!r} names no row" in line for line in lines)
