"""The command line: what is printed, where to, and the exit code."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from localcloud import serve
from localcloud.cli import main
from localcloud.client import Client
from localcloud.layout import Layout
from localcloud.memory import MemoryKernel
from localcloud.serve import Settings, StartError, locked, named, read_token
from locallab import TOKEN, Daemon, daemon

Run = Callable[..., str]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    with daemon(tmp_path) as one:
        (tmp_path / "token").write_text(TOKEN)
        monkeypatch.setenv("LOCALCLOUD_URL", one.server.url)
        monkeypatch.setenv("LOCALCLOUD_TOKEN_FILE", str(tmp_path / "token"))
        yield one


@pytest.fixture
def run(made: Daemon, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str, code: int = 0) -> str:
        assert main(arguments) == code
        out, err = capsys.readouterr()
        assert not (out and err)
        return err if code else out

    return call


def test_machines(run: Run, made: Daemon, tmp_path: Path) -> None:
    script = tmp_path / "boot.sh"
    script.write_text("#!/bin/sh\n")
    create = ("machine", "create", "cp-1", "--type=large", "--zone=local-b", "--label=a=b=c", f"--user-data={script}",
              "--taint=gpu=a100:NoSchedule", "--taint=old:NoExecute", "--annotation=rack=7")  # fmt: skip
    assert run(*create) == (
        "ID  NAME  STATE    ADDRESS     TYPE   ZONE\n"
        "m1  cp-1  running  10.90.0.10  large  local-b\n"
    )  # fmt: skip
    machine = made.cloud.machine("m1").machine
    assert (machine.user_data, machine.labels) == ("#!/bin/sh\n", {"a": "b=c"})
    assert (machine.taints, machine.annotations) == (("gpu=a100:NoSchedule", "old:NoExecute"), {"rack": "7"})
    assert "--annotation must be KEY=VALUE, not rack" in run("machine", "create", "cp-2", "--annotation=rack", code=1)
    assert "stopped" in run("machine", "stop", "cp-1")
    assert "running" in run("machine", "start", "m1")
    assert "10.90.0.11" in run("machine", "reboot", "cp-1", "--new-address")
    assert run("machine", "list") == run("machine", "show", "cp-1")
    assert json.loads(run("machine", "list", "--json"))["machines"][0]["name"] == "cp-1"
    (tmp_path / "machines" / "m1" / "console.log").write_text("booted\n")
    assert run("machine", "console", "cp-1") == "booted\n"
    assert run("machine", "delete", "cp-1") == "cp-1 (m1) is deleted\n"
    assert run("machine", "list") == "ID  NAME  STATE  ADDRESS  TYPE  ZONE\n"


def test_a_program_in_a_machine_replaces_the_process(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("machine", "create", "a")
    called: list[list[str]] = []
    monkeypatch.setattr(os, "execvp", lambda program, words: called.append(words))
    run("machine", "exec", "a", "--", "ls", "-l")
    run("machine", "exec", "a")
    assert called == [["true", "ls", "-l"], ["true", "/bin/sh"]]


def test_routes_and_load_balancers(run: Run, made: Daemon) -> None:
    run("machine", "create", "a")
    assert run("route", "create", "r", "10.91.1.0/24", "a") == "10.91.1.0/24 goes to m1 (10.90.0.10)\n"
    run("machine", "stop", "a")
    assert run("route", "list") == (
        "NAME  DESTINATION   MACHINE  GATEWAY    OWNER\n"
        "r     10.91.1.0/24  m1       blackhole\n"
    )  # fmt: skip
    assert run("route", "delete", "r") == "the route r is deleted\n"
    body = Client(made.server.url, TOKEN)
    port = {"protocol": "UDP", "port": 53, "targetPort": 30053}
    document = {"owner": "me", "ports": [port], "targets": ["m1"], "labels": {"a": "b"}}
    body.call("PUT", "/v1/loadbalancers/dns", document)
    assert run("lb", "list") == (
        "NAME  ADDRESS       MODE  PORTS            HEALTHY  OWNER\n"
        "dns   198.51.100.1  nat   53/UDP to 30053  0 of 1   me\n"
    )
    assert run("lb", "show", "dns") == (
        "address:       198.51.100.1\n"
        "owner:         me\n"
        "labels:        a=b\n"
        "mode:          nat\n"
        "ports:         53/UDP to 30053\n"
        "source ranges: all\n"
        "affinity:      none\n"
        "health check:  the machine runs\n"
        "TARGET  HEALTHY  SINCE\n"
        "m1      no       not checked yet\n"
    )
    assert run("lb", "delete", "dns") == "the load balancer dns is deleted\n"


def test_keys_zones_and_types(run: Run, tmp_path: Path) -> None:
    key = tmp_path / "id.pub"
    key.write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 me@home\n")
    assert run("sshkey", "add", "root", str(key)) == "root has 1 keys\n"
    assert run("sshkey", "list", "root") == "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5\n"
    assert run("sshkey", "clear", "root") == "root has no keys\n"
    assert run("zones").splitlines()[0] == "local-a"
    assert run("types").splitlines()[1] == "small   1     1"


def test_errors_say_what_to_do(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("machine", "show", "nobody", code=1) == "localcloud: there is no machine with the name or ID nobody\n"
    said = run("machine", "create", "A_", "--type=x", "--zone=y", code=1).splitlines()
    assert [line.split(":")[1] for line in said] == [" name", " type", " zone"]
    assert "--label must be KEY=VALUE, not x" in run("machine", "create", "a", "--label=x", code=1)
    assert "No such file" in run("machine", "create", "a", "--user-data=/nowhere", code=1)
    empty = tmp_path / "empty"
    empty.write_text("x")
    assert "holds no public key" in run("sshkey", "add", "root", str(empty), code=1)
    assert "the bearer token is missing or wrong" in run("zones", "--token-file", str(empty), code=1)
    assert "cannot be read from /nowhere" in run("zones", "--token-file=/nowhere", code=1)
    assert "Check --url, and that `localcloud serve` runs" in run("zones", "--url=http://127.0.0.1:1", code=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--pool=here"], "'here' is no IPv4 network"),
        (["serve", "--listen=8090"], "must be ADDRESS:PORT"),
        (["serve", "--rate=fast"], "must be a number of requests a second"),
        (["machine"], "COMMAND"),
    ],
)
def test_a_wrong_command_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_a_layout_that_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", f"--state={tmp_path}", "--name=Too-Long", "--base=10"]) == 1
    said = capsys.readouterr().err
    assert "the name 'Too-Long'" in said
    assert "the base '10'" in said


def test_the_token_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "token"
    token = read_token(path, create=True)
    assert len(token) >= 40
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_token(path, create=True) == token
    path.write_text("two words")
    with pytest.raises(StartError, match="must hold the token"):
        read_token(path, create=True)


def test_one_daemon_for_one_folder(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(StartError, match="another daemon uses"):
        serve.destroy(Layout(folder=tmp_path))
    settings = Settings(layout=Layout(folder=tmp_path), token_file=tmp_path / "token", memory=True)
    with locked(tmp_path), pytest.raises(StartError, match="another daemon uses"):
        serve.serve(settings)


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of /run, and no namespace of a cloud."""
    for name in ("RUN", "NAMESPACES"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(serve, name, tmp_path / name)
    return tmp_path


@pytest.mark.row("P4")
class TestOneFolderForOneName:
    def test_a_daemon_with_another_folder_is_refused_while_one_runs(self, run_folder: Path) -> None:
        one, two = (Layout(folder=run_folder / name) for name in ("one", "two"))
        with named(one), pytest.raises(StartError, match="another daemon runs the cloud 'lc'"), named(two):
            pass
        with named(one), named(Layout(folder=run_folder / "two", name="two", base="10.80")):
            pass

    def test_what_a_stopped_one_left_in_the_kernel_stays_its_own(self, run_folder: Path) -> None:
        one, two = (Layout(folder=run_folder / name) for name in ("one", "two"))
        with named(one):
            (run_folder / "NAMESPACES" / one.router_namespace).touch()
        with pytest.raises(StartError, match=f"--state {one.folder}"), named(two):
            pass
        with named(one):
            (run_folder / "NAMESPACES" / one.router_namespace).unlink()  # as `destroy` does
        with named(two):
            pass

    def test_the_kernel_is_told_nothing_where_the_address_is_taken(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kernel = MemoryKernel()
        monkeypatch.setattr(serve, "kernel_of", lambda *args, **kwargs: kernel)
        with socket.create_server(("127.0.0.1", 0)) as other:
            settings = Settings(
                layout=Layout(folder=tmp_path), token_file=tmp_path / "token",
                listen=other.getsockname(), memory=True,
            )  # fmt: skip
            with pytest.raises(OSError, match="in use"):
                serve.serve(settings)
        assert not kernel.is_set_up
        assert kernel.routes == ()


@pytest.mark.row("P4")
class TestFilesOfOthers:
    def test_a_link_in_place_of_the_lock(self, tmp_path: Path) -> None:
        precious = tmp_path / "precious"
        precious.write_text("kept")
        (tmp_path / "lock").symlink_to(precious)
        with pytest.raises(StartError, match="no link is followed"), locked(tmp_path):
            pass
        assert precious.read_text() == "kept"

    def test_a_folder_that_others_may_write(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o770)
        with pytest.raises(StartError, match="others may use the state's folder"), locked(tmp_path):
            pass

    def test_a_folder_or_token_of_another_user(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        token = tmp_path / "token"
        read_token(token, create=True)
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(StartError, match=r"the state's folder, .* belongs to the user"), locked(tmp_path):
            pass
        with pytest.raises(StartError, match=r"the token, .* belongs to the user"):
            read_token(token, create=True)

    def test_a_token_that_others_may_read_or_that_is_a_link(self, tmp_path: Path) -> None:
        token, link = tmp_path / "token", tmp_path / "link"
        read_token(token, create=True)
        link.symlink_to(token)
        with pytest.raises(StartError, match="cannot be read"):
            read_token(link, create=True)
        token.chmod(0o644)
        with pytest.raises(StartError, match="others may use the token"):
            read_token(token, create=True)
        assert read_token(link) == read_token(token)  # a client's own affair


def test_the_daemon_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "localcloud", "serve", "--memory", "--listen=127.0.0.1:0", f"--state={tmp_path}"]
    environ = {**os.environ, "PYTHONPATH": str(Path(serve.__file__).parents[1])}
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("localcloud: ready at http://127.0.0.1:")
            assert main(["zones", f"--url={line.split()[-1]}", f"--token-file={tmp_path / 'token'}"]) == 0
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()


def test_a_state_that_cannot_be_read_keeps_the_daemon_from_starting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state.json").write_text("{")
    assert main(["serve", "--memory", "--listen=127.0.0.1:0", f"--state={tmp_path}"]) == 1
    assert f"localcloud: {tmp_path / 'state.json'} is not a state" in capsys.readouterr().err
