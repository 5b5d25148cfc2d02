"""Standard output has the result and nothing else, in real processes: descriptors are the process's
own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cloudprovider.internal.output import results_only

_NOISE = """
import ctypes, os, subprocess, sys
from cloudprovider.internal.output import results_only

def noise():
    print("printed")
    os.write(1, b"descriptor\\n")
    ctypes.CDLL(None).puts(b"by C")
    subprocess.run(["echo", "child"], check=True)
    sys.__stdout__.write("kept stream\\n")
"""
_SOUNDS = ("printed", "descriptor", "by C", "child", "kept stream")


def _run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _NOISE + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)


@pytest.mark.row("M12")
def test_all_that_others_write_goes_to_standard_error() -> None:
    done = _run(
        """
print("before")
with results_only() as out:
    noise()
    print("the result \u00e4", file=out)
    noise()
print("after")
ctypes.CDLL(None).puts(b"C again")
"""
    )
    assert done.stdout.split("\n") == ["before", "the result \u00e4", "after", "C again", ""]
    for sound in _SOUNDS:
        assert done.stderr.count(f"{sound}\n") == 2


@pytest.mark.row("M12")
def test_it_is_put_back_after_an_exception_and_may_be_nested() -> None:
    done = _run(
        """
try:
    with results_only() as out, results_only() as inner:
        noise()
        print("inner", file=inner)
        raise ValueError
except ValueError:
    noise()
print("after")
"""
    )
    lines = done.stdout.split("\n")
    assert "inner" not in lines  # it is the outer one's: only what that one writes is a result
    assert lines.count("after") == 1
    for sound in _SOUNDS:
        assert lines.count(sound) == 1
        assert done.stderr.count(f"{sound}\n") == 1


@pytest.mark.row("M12")
@pytest.mark.parametrize(("closed", "out"), [("1>&-", ""), ("2>&-", "result\n"), ("1>&- 2>&-", "")])
def test_a_program_without_one_of_them_goes_on(closed: str, out: str, tmp_path: Path) -> None:
    code = """
with open(sys.argv[1], "w") as file:  # it has the descriptor that is free
    with results_only() as out:
        print("result", file=out)
        print("noise")
        os.write(1, b"noise\\n") if sys.__stdout__ else None
        file.write("done")
"""
    (tmp_path / "program.py").write_text(_NOISE + code)
    command = f'exec "$0" program.py written {closed}'
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        ["sh", "-c", command, sys.executable],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == out
    assert (tmp_path / "written").read_text() == "done"


@pytest.mark.row("M12")
def test_a_stream_in_its_place_stays_the_callers(capsys: pytest.CaptureFixture[str]) -> None:
    with results_only() as out:
        print("noise")
        print("result", file=out)
    assert capsys.readouterr() == ("result\n", "noise\n")
