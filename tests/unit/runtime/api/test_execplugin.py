"""A credential plugin that hangs is ended with its children, and run again; nothing of it outlives
us."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cloudprovider.testing.waiting import eventually
from controllers.runtime.api import CredentialsUnavailable, execplugin
from controllers.runtime.api.credentials import Credentials
from controllers.runtime.api.execplugin import ExecPlugin
from controllers.runtime.api.ratelimit import Sleeper
from tests.support.clock import FakeClock
from tests.unit.runtime.loopback import Call

VERSION = "client.authentication.k8s.io/v1"


def plugin_of(tmp_path: Path, script: str, *, limit: float = 600, **settings: object) -> ExecPlugin:
    """A plugin that runs this."""
    program = tmp_path / "plugin"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    cluster = {"server": "https://s", "extensions": [{"name": f"{VERSION.rpartition('/')[0]}/exec", "extension": 7}]}
    return ExecPlugin({"command": str(program), "apiVersion": VERSION, **settings}, str(tmp_path), cluster, limit=limit)


def printing(tmp_path: Path, document: object, script: str = "") -> ExecPlugin:
    """A plugin that runs this, and prints the document."""
    (tmp_path / "answer").write_text(document if isinstance(document, str) else json.dumps(document))
    return plugin_of(tmp_path, f"{script}\ncat {tmp_path}/answer")


def credential(**status: object) -> dict[str, object]:
    return {"apiVersion": VERSION, "kind": "ExecCredential", "status": status}


def hanging(tmp_path: Path, *, limit: float, first_only: bool = False) -> ExecPlugin:
    """A plugin that starts a child, notes both process ids, and hangs; `first_only`: the second run
    answers."""
    (tmp_path / "answer").write_text(json.dumps(credential(token="t")))
    again = f"[ -e {tmp_path}/pids ] && exec cat {tmp_path}/answer" if first_only else ""
    return plugin_of(
        tmp_path,
        f"{again}\nsleep 1000 &\necho $$ $! > {tmp_path}/new\n"
        f"mv {tmp_path}/new {tmp_path}/pids\necho waiting >&2\nwait",
        limit=limit,
    )


class Late:
    """A clock on which the plugin's time is over at the first look after it hangs, however long it
    took to start."""

    def __init__(self, folder: Path) -> None:
        self._hangs = folder / "pids"
        self._now = 0.0
        self.stands = False

    def monotonic(self) -> float:
        if self._hangs.exists() and not self.stands:
            self._now += 1000.0
        return self._now


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Late:
    clock = Late(tmp_path)
    monkeypatch.setattr(execplugin, "time", clock)
    return clock


def pids(tmp_path: Path) -> list[int]:
    eventually((tmp_path / "pids").exists)
    return [int(pid) for pid in (tmp_path / "pids").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("to", ["1", "2"])
def test_a_plugin_that_prints_without_end_is_ended(tmp_path: Path, to: str) -> None:
    with pytest.raises(CredentialsUnavailable, match="printed more than 1048576 bytes, and was ended"):
        plugin_of(tmp_path, f"exec cat /dev/zero >&{to}").fetch()


def test_what_it_says_on_the_way_does_not_fill_a_pipe(tmp_path: Path) -> None:
    plugin = printing(tmp_path, credential(token="t"), "head -c 500000 /dev/zero >&2")
    assert plugin.fetch().authorization == "Bearer t"


def test_the_children_that_it_leaves_are_no_zombies_of_the_containers_first_process(tmp_path: Path) -> None:
    prctl = ctypes.CDLL(None).prctl
    assert prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER: orphans become ours, as those of PID 1 do
    try:
        plugin = printing(tmp_path, credential(token="t"), f"sleep 0.2 >&- 2>&- & echo $! > {tmp_path}/left")
        plugin.fetch()
        left = int((tmp_path / "left").read_text())
        eventually(lambda: not is_alive(left))
        plugin.fetch()  # looks again
        assert not Path(f"/proc/{left}").exists()
    finally:
        assert prctl(36, 0, 0, 0, 0) == 0


@pytest.mark.row("X3")
class TestHanging:
    @pytest.mark.usefixtures("late")
    def test_it_is_ended_with_its_children(self, tmp_path: Path) -> None:
        plugin = hanging(tmp_path, limit=600)
        error = Call(plugin.fetch).outcome()
        assert isinstance(error, CredentialsUnavailable)
        assert "not done after 600 s; it was ended, with all its children" in str(error)
        for pid in pids(tmp_path):
            eventually(lambda pid=pid: not is_alive(pid))  # type: ignore[misc]

    def test_it_is_run_again(self, tmp_path: Path, late: Late, clock: FakeClock) -> None:
        found = Credentials(hanging(tmp_path, limit=600, first_only=True), Sleeper(clock))
        assert isinstance(Call(found.authorization).outcome(), CredentialsUnavailable)
        late.stands = True
        clock.advance(1)
        assert Call(found.authorization).outcome() == "Bearer t"

    def test_it_does_not_outlive_us(self, tmp_path: Path) -> None:
        found = Credentials(hanging(tmp_path, limit=600), Sleeper())
        call = Call(found.authorization)
        running = pids(tmp_path)
        found.close()
        assert isinstance(call.outcome(), CredentialsUnavailable)
        for pid in running:
            eventually(lambda pid=pid: not is_alive(pid))  # type: ignore[misc]
        with pytest.raises(CredentialsUnavailable):
            found.authorization()
        found.close()

    def test_nor_a_process_that_ends_at_once(self, tmp_path: Path) -> None:
        """As after a second signal: no thread gets a chance to end it."""
        hanging(tmp_path, limit=600)  # writes the program
        settings = {"command": str(tmp_path / "plugin"), "apiVersion": VERSION}
        code = f"""
import os, threading, time
from controllers.cli.process import exit_at_once
from controllers.runtime.api.execplugin import ExecPlugin
threading.Thread(target=ExecPlugin({settings!r}, {str(tmp_path)!r}, {{}}, limit=600).fetch, daemon=True).start()
while not os.path.exists({str(tmp_path / "pids")!r}):
    time.sleep(0.01)
exit_at_once(3)
"""
        assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 3
        self._gone(tmp_path)

    def test_nor_one_that_is_just_being_started(self, tmp_path: Path) -> None:
        """The program runs, and its process group is known only once the process waits for it."""
        hanging(tmp_path, limit=600)  # writes the program
        settings = {"command": str(tmp_path / "plugin"), "apiVersion": VERSION}
        code = f"""
import os, subprocess, threading, time
from controllers.process import ending
from controllers.runtime.api import execplugin
ending.URGENT_FLUSH = 3.0  # ten times as long is waited for a plugin that is being started
runs, waited, start = threading.Event(), threading.Event(), subprocess.Popen
def start_slowly(*args, **more):
    process = start(*args, **more)
    while not os.path.exists({str(tmp_path / "pids")!r}):
        time.sleep(0.01)
    runs.set()
    waited.wait(60)
    return process
class Time:
    monotonic = time.monotonic
    def sleep(seconds):
        waited.set()
        time.sleep(seconds)
subprocess.Popen, execplugin.time = start_slowly, Time
plugin = execplugin.ExecPlugin({settings!r}, {str(tmp_path)!r}, {{}}, limit=600)
threading.Thread(target=plugin.fetch, daemon=True).start()
runs.wait(60)
ending.exit_at_once(3)
"""
        assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 3
        self._gone(tmp_path)

    def _gone(self, tmp_path: Path) -> None:
        """Wait until the plugin and its child are gone; what is left is ended after that."""
        running = pids(tmp_path)
        try:
            for pid in running:
                eventually(lambda pid=pid: not is_alive(pid))  # type: ignore[misc]
        finally:
            for pid in filter(is_alive, running):
                os.kill(pid, signal.SIGKILL)


class TestRunning:
    def test_what_it_is_told(self, tmp_path: Path) -> None:
        """It has no terminal, and learns about the cluster only where the kubeconfig says so."""
        script = f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; cat > {tmp_path}/stdin; echo $A $1 > {tmp_path}/args'
        for provide, spec in (
            (False, {"interactive": False}),
            (True, {"interactive": False, "cluster": {"server": "https://s", "config": 7}}),
        ):
            plugin = plugin_of(
                tmp_path, script, provideClusterInfo=provide, args=["x"], env=[{"name": "A", "value": "y"}]
            )
            with pytest.raises(CredentialsUnavailable, match="printed no JSON"):
                plugin.fetch()
            info = json.loads((tmp_path / "info").read_text())
            info["spec"].get("cluster", {}).pop("extensions", None)
            assert info == {"apiVersion": VERSION, "kind": "ExecCredential", "spec": spec}
            assert (tmp_path / "stdin").read_text() == ""
            assert (tmp_path / "args").read_text() == "y x\n"

    def test_token_and_expiry(self, tmp_path: Path) -> None:
        found = printing(tmp_path, credential(token="t", expirationTimestamp="2023-11-14T22:13:20Z")).fetch()
        assert (found.authorization, found.expires_at) == ("Bearer t", 1_700_000_000.0)

    @pytest.mark.parametrize(
        ("document", "message"),
        [
            pytest.param("secret no json", "printed no JSON", id="no JSON"),  # the folder is named so
            ({"kind": "Pod"}, "printed no ExecCredential"),
            ([], "printed no ExecCredential"),
            ({"kind": "ExecCredential", "apiVersion": "v9"}, "speaks v9, the kubeconfig asks for"),
            ({"kind": "ExecCredential", "apiVersion": VERSION}, "without a status"),
            (credential(), "neither token nor certificate"),
            (credential(clientCertificateData="c"), "a certificate without key"),
            (credential(token="t", clientKeyData="k"), "a key alone"),
            (credential(token=5), "no string"),
            (credential(token="secret two"), "cannot be one"),
            (credential(token="secret", expirationTimestamp="soon"), "expirationTimestamp is not a time"),
        ],
    )
    def test_junk_is_told(self, document: object, message: str, tmp_path: Path) -> None:
        with pytest.raises(CredentialsUnavailable, match=message) as caught:
            printing(tmp_path, document).fetch()
        assert "secret" not in str(caught.value)

    def test_a_failure_shows_what_the_plugin_said(self, tmp_path: Path) -> None:
        with pytest.raises(CredentialsUnavailable, match=r"plugin.*ended with code 3.*log in first"):
            plugin_of(tmp_path, "echo log in first >&2; exit 3").fetch()

    def test_a_program_that_is_gone(self, tmp_path: Path) -> None:
        plugin = plugin_of(tmp_path, "")
        (tmp_path / "plugin").unlink()
        with pytest.raises(CredentialsUnavailable, match="No such file"):
            plugin.fetch()

    def test_it_has_a_group_of_its_own(self, tmp_path: Path) -> None:
        """A Ctrl-C at the terminal is ours to handle."""
        with pytest.raises(CredentialsUnavailable):
            plugin_of(tmp_path, f"cut -d' ' -f5 /proc/$$/stat > {tmp_path}/group").fetch()
        assert int((tmp_path / "group").read_text()) != os.getpgid(0)
