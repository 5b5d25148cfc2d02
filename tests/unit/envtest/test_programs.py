"""Programs beside a test end with it, also when nobody can clean up any more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cloudprovider.testing.waiting import eventually
from tests.envtest.programs import Programs

_HOST = """
import sys, time
from pathlib import Path
from tests.envtest.programs import Programs
programs = Programs(Path(sys.argv[1]))
programs.spawn("sleeper", ["/bin/sleep", "600"])
print(programs.process("sleeper").pid, flush=True)
time.sleep(600)
"""


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")  # a killed process that nobody has waited for yet runs no more
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_killed_host_takes_its_programs_with_it(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", _HOST, str(tmp_path)], stdout=subprocess.PIPE, cwd=root) as host:
        assert host.stdout is not None
        pid = int(host.stdout.readline())
        assert is_running(pid)
        host.kill()
    eventually(lambda: not is_running(pid), 10)


def test_a_program_that_is_ended_leaves_no_guard(tmp_path: Path) -> None:
    programs = Programs(tmp_path)
    programs.spawn("sleeper", ["/bin/sleep", "600"])
    pid = programs.process("sleeper").pid
    guard = programs._guards["sleeper"]
    programs.close()
    programs.close()
    assert not is_running(pid)
    assert guard.poll() is not None
