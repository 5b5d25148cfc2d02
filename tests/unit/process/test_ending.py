"""How the program ends, whatever a plugin does: threads, signals while it starts, logging taken
over. Real programs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cloudprovider.testing.waiting import eventually
from controllers.process import ending
from tests.support.plugins import write_distribution

THREAD = "import threading, time\nthreading.Thread(target=lambda: time.sleep(1000), name='telemetry').start()\n"
PROVIDER = """
from cloudprovider import Interface
class Acme(Interface):
    def provider_name(self): return "acme"
    def initialize(self, client_builder, stop): raise RuntimeError("cannot log in with password=hunter2hunter2")
"""
OWN = "import sys\nimport acme_module\nfrom controllers.app import main\nsys.exit(main(default_provider='acme'))\n"
SECRET = "S3cretT0kenValue99"


def program(folder: Path, module: str, *flags: str, own: bool = False) -> subprocess.Popen[str]:
    """The manager with the plugin of this module; `own`: the main.py of a vendor, who imports the
    plugin first."""
    write_distribution(folder, "acme", "acme = acme_module:new_provider", acme_module=module)
    folder.joinpath("main.py").write_text(OWN)
    folder.joinpath("cloud.conf").write_text(f"api_token: {SECRET}\n")
    what = [str(folder / "main.py")] if own else ["-m", "controllers.app"]
    given = [f"--cloud-config={folder / 'cloud.conf'}", "--secure-port=0", "--leader-elect=false", *flags]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KUBE")}
    return subprocess.Popen(
        [sys.executable, *what, *([] if own else ["--cloud-provider=acme"]), *given],
        env={**environment, "PYTHONPATH": f"{Path(__file__).parents[3]}:{folder}"},
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str], seconds: float = 30) -> tuple[int, str]:
    """Exit code and log."""
    try:
        _, log = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return process.returncode, log


@pytest.mark.row("K21")
@pytest.mark.parametrize("own", [False, True])
def test_a_plugins_thread_does_not_keep_a_program_that_could_not_start(tmp_path: Path, own: bool) -> None:
    module = THREAD + PROVIDER + "def new_provider(config): return Acme()\n"
    code, log = ended(program(tmp_path, module, own=own))
    assert code == 1
    assert "no API server to talk to" in log
    assert "threads have not ended, the process ends without them: telemetry" in log.splitlines()[-1]


@pytest.mark.row("K21")
def test_bad_flags_end_a_vendors_own_program_too(tmp_path: Path) -> None:
    code, log = ended(program(tmp_path, THREAD, "--no-such-flag", own=True))
    assert code == 2
    assert "--no-such-flag" in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_a_slow_plugin_is_imported_ends_the_program_with_0(tmp_path: Path, number: int) -> None:
    here = tmp_path / "importing"
    process = program(tmp_path, f"import pathlib, time\npathlib.Path({str(here)!r}).touch()\ntime.sleep(1000)\n")
    eventually(here.exists, 30)
    process.send_signal(signal.SIGUSR1)
    assert process.stderr is not None
    while "SIGUSR1: nothing is held back yet" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(number)
    code, log = ended(process, 10)
    assert code == 0
    assert "while the program starts: ended" in log


def test_a_signal_while_starting_is_the_callers_again_afterwards() -> None:
    numbers = (*ending.SIGNALS, ending.RELEASE)
    before = [signal.getsignal(number) for number in numbers]
    codes: list[int] = []
    with ending.starting(codes.append):
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        eventually(lambda: codes == [0])
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_signal_between_start_and_run_ends_the_program_with_0(tmp_path: Path) -> None:
    # The moment between the two, of which there is no other sign than what the program does then.
    module = PROVIDER + (
        "import gc, os, signal\n"
        "gc.freeze = lambda: os.kill(os.getpid(), signal.SIGTERM)\n"
        "def new_provider(config): return Acme()\n"
    )
    code, log = ended(program(tmp_path, module, "--master=http://127.0.0.1:1"))
    assert code == 0
    assert "SIGTERM" in log


def test_once_the_signals_are_taken_the_start_does_not_heed_them() -> None:
    codes: list[int] = []
    seen: list[int] = []
    with ending.starting(codes.append) as begun:
        old = signal.signal(signal.SIGTERM, lambda number, _frame: seen.append(number))
        begun()
        os.kill(os.getpid(), signal.SIGTERM)
        eventually(lambda: seen == [signal.SIGTERM])
        signal.signal(signal.SIGTERM, old)
        os.kill(os.getpid(), signal.SIGTERM)  # and at the end it does no harm
    assert codes == []


def test_a_program_whose_standard_error_is_closed_runs_without_a_log() -> None:
    script = """
import logging, os
from controllers.process import logs
logs.setup()
logging.getLogger("controllers").error("nobody reads this")
logs.flush(5)
print(os.readlink("/proc/self/fd/2"))
"""
    closed = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, script]
    done = subprocess.run(closed, stdout=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "/dev/null\n")


FAILING = {
    "standard error is closed": "sys.stderr.close()",
    "the credential plugin is another user's": "os.killpg = refuse; execplugin._groups.add(12345)",
}


@pytest.mark.row("K19")
@pytest.mark.parametrize("how", FAILING)
def test_a_lost_lease_ends_the_process_whatever_fails_on_the_way_out(how: str) -> None:
    script = f"""
import os, sys, threading, time
from controllers.process import ending, logs
from controllers.runtime.api import execplugin
def refuse(group, number): raise PermissionError("not yours")
logs.setup()
{FAILING[how]}
threading.Thread(target=ending.end_at_once, args=(RuntimeError("the lease is lost"),), daemon=True).start()
time.sleep(20)
os._exit(7)
"""
    process = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, timeout=60)
    assert process.returncode == 1
    assert "closed" in how or "the lease is lost" in process.stderr


def test_what_is_said_in_a_bounded_time_may_hang() -> None:
    let_go = threading.Event()
    began = time.monotonic()
    assert not ending.within(0.05, lambda: let_go.wait(60))
    assert time.monotonic() - began < 10
    let_go.set()
    assert ending.within(10, lambda: None)


TAKEN = {
    "dictConfig": 'logging.config.dictConfig({"version": 1, "handlers": {"h": {"class": "logging.StreamHandler"}}, '
    '"root": {"handlers": ["h"], "level": "INFO"}})',
    "basicConfig": "logging.basicConfig(level=logging.DEBUG, force=True)",
    "its own logger": "log.addHandler(logging.StreamHandler()); log.propagate = False",
    "disable": "logging.disable(logging.CRITICAL)",
}
SAYS = 'log.warning("connecting with %s", config.data.decode().strip())'


@pytest.mark.row("X14")
@pytest.mark.parametrize(
    ("how", "where"),
    [*((how, "import") for how in TAKEN), ("dictConfig", "factory"), ("basicConfig", "initialize")],
)
def test_a_plugin_that_configures_logging_neither_silences_the_manager_nor_prints_secrets(
    tmp_path: Path, how: str, where: str
) -> None:
    setup = TAKEN[how]
    at = {"import": "", "factory": "", "initialize": ""} | {where: setup}
    module = f"""
import logging, logging.config
log = logging.getLogger("acme")
{at["import"]}
from cloudprovider import Interface
class Acme(Interface):
    def provider_name(self): return "acme"
    def has_cluster_id(self): return True
    def initialize(self, client_builder, stop):
        {at["initialize"] or "pass"}
        raise RuntimeError("cannot log in with password=hunter2hunter2")
def new_provider(config):
    {SAYS if where == "import" else "pass"}
    {at["factory"] or "pass"}
    return Acme()
"""
    flags = ["--master=http://127.0.0.1:1", "--controllers=service-lb-controller", "--allow-untagged-cloud"]
    code, log = ended(program(tmp_path, module, *flags))
    assert code == 1
    assert "cloud provider acme has configured Python's logging, which is put back" in log
    assert "could not be initialised: RuntimeError: cannot log in" in log
    assert "ended with exit code 1" in log
    assert "hunter2" not in log
    assert SECRET not in log
    if where == "import" and "addHandler" in setup:
        assert "connecting with" in log  # by way of ours


@pytest.mark.row("X15")
@pytest.mark.parametrize("where", ["import", "factory"])
def test_whatever_a_plugin_raises_its_start_is_told_without_secrets(tmp_path: Path, where: str) -> None:
    fails = f"raise asyncio.CancelledError('bad config: api_token: {SECRET}')"
    module = "import asyncio\n" + (fails if where == "import" else f"def new_provider(config):\n    {fails}\n")
    code, log = ended(program(tmp_path, module, "--master=http://127.0.0.1:1"))
    assert code == 1
    assert "could not be " in log
    assert "CancelledError: bad config" in log
    assert "Traceback" not in log
    assert where == "import" or SECRET not in log  # what is known of the config's secrets only hides them later


@pytest.mark.row("X15")
def test_a_provider_whose_initialize_is_cancelled_is_not_initialised(tmp_path: Path) -> None:
    module = PROVIDER.replace("RuntimeError", "__import__('asyncio').CancelledError")
    module += "    def has_cluster_id(self): return True\ndef new_provider(config): return Acme()\n"
    code, log = ended(program(tmp_path, module, "--master=http://127.0.0.1:1"))
    assert code == 1
    assert "cloud provider acme could not be initialised: CancelledError: cannot log in" in log
    assert "hunter2" not in log
