"""Machines as processes: start them, find them again, end them.

A machine is one init process (see init.py) in namespaces of its own for network, mounts, processes
and host name. When it ends, the kernel ends all that runs in the machine. A daemon that starts
later finds it by its number and start time, which the init leaves on the machine's disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from attrs import frozen

from localcloud.commands import find, in_namespace
from localcloud.kernel import KernelError
from localcloud.layout import Layout
from localcloud.model import Machine

__all__ = ["Machines", "Record", "is_alive"]

_INIT: Final = Path(__file__).with_name("init.py")
_BOOT_SECONDS: Final = 60
_END_SECONDS: Final = 30
_CONSOLE_BYTES: Final = 4 << 20
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@frozen
class Record:
    """A process, told from a later one with the same number."""

    pid: int
    started: int
    """In clock ticks since the host's boot."""
    boot: str


class Machines:
    """The processes of one cloud's machines. Safe for threads, as long as no two start or stop one
    machine."""

    def __init__(self, layout: Layout, url: str) -> None:
        self._layout = layout
        self._url = url
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, machine: Machine) -> None:
        """Boot a machine in its network namespace, which is there already; returns when its
        userData has been started. Raises KernelError with what went wrong."""
        disk = self._layout.machine_disk(machine.id)
        disk.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write(disk, machine)
        ready, told = os.pipe()
        with os.fdopen(ready, "rb") as answer:
            try:
                with _console(disk) as console:
                    self._children[machine.id] = subprocess.Popen(
                        self._command(machine.id, told),
                        stdin=subprocess.DEVNULL,
                        stdout=console,
                        stderr=console,
                        pass_fds=(told,),
                        start_new_session=True,  # Ctrl-C in the daemon's terminal is not for it
                    )
            finally:
                os.close(told)
            waiting = select.poll()
            waiting.register(answer, select.POLLIN)
            said = answer.readline() if waiting.poll(_BOOT_SECONDS * 1000) else b"it took too long"
        if said != b"\n":
            self.stop(machine.id)
            why = said.decode(errors="replace").strip() or "its init ended"
            raise KernelError(f"{machine.id} ({machine.name}) does not boot: {why}; see {disk / 'console.log'}")

    def stop(self, machine_id: str) -> None:
        """End a machine with all its processes; returns when they have ended. Raises KernelError
        when they do not within 30 s."""
        record = self._alive(machine_id)
        if record:
            with contextlib.suppress(ProcessLookupError):
                os.kill(record.pid, signal.SIGKILL)
        deadline = time.monotonic() + _END_SECONDS
        while record and is_alive(record):
            self._collect(machine_id)
            if time.monotonic() > deadline:
                raise KernelError(f"{machine_id} has processes that do not end after {_END_SECONDS} s: ps {record.pid}")
            time.sleep(0.01)
        child = self._children.pop(machine_id, None)
        if child:
            child.kill()  # where its init has not come to leave its number
            child.wait()
        _remove_cgroups(self._cgroup(machine_id))

    def is_running(self, machine_id: str) -> bool:
        """Whether its init runs."""
        self._collect(machine_id)
        return self._alive(machine_id) is not None

    def running(self) -> frozenset[str]:
        """The IDs of all machines of this cloud that run."""
        with contextlib.suppress(FileNotFoundError):
            return frozenset(disk.name for disk in self._layout.machines_folder.iterdir() if self.is_running(disk.name))
        return frozenset()

    def delete_disk(self, machine_id: str) -> None:
        """Remove the disk. Raises KernelError while the machine runs."""
        if self.is_running(machine_id):
            raise KernelError(f"{machine_id} runs: stop it before its disk is deleted")
        shutil.rmtree(self._layout.machine_disk(machine_id), ignore_errors=True)

    def enter_command(self, machine_id: str, command: Sequence[str]) -> list[str]:
        """The command line that runs a program inside. Raises KernelError if it does not run."""
        record = self._alive(machine_id)
        if not record:
            raise KernelError(f"{machine_id} does not run: start it first")
        enter = [
            find("nsenter") or "nsenter",
            f"--target={record.pid}",
            "--mount",
            "--uts",
            "--net",
            "--pid",
            "--cgroup",
        ]
        return [*enter, "--wd=/", "--", *command]

    def close(self) -> None:
        """Forget the machines; they run on."""
        for child in self._children.values():
            child.returncode = 0 if child.poll() is None else child.returncode  # no warning that it runs on
        self._children.clear()

    def _command(self, machine_id: str, told: int) -> list[str]:
        config = self._layout.machine_disk(machine_id) / "boot.json"
        namespaces = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--propagation", "private"]
        init = [sys.executable, "-I", "-S", str(_INIT), str(config), str(told)]
        return in_namespace(self._layout.machine_namespace(machine_id), [*namespaces, *init])

    def _write(self, disk: Path, machine: Machine) -> None:
        script = disk / "userdata"
        script.unlink(missing_ok=True)
        if machine.user_data:
            script.write_text(machine.user_data)
            script.chmod(0o700)
        (disk / "record.json").unlink(missing_ok=True)
        environment = {
            "PATH": _PATH,
            "HOME": str(disk / "home"),
            "LANG": "C.UTF-8",
            "MACHINE_NAME": machine.name,
            "MACHINE_ID": machine.id,
            "MACHINE_ADDRESS": machine.address,
            "MACHINE_DISK": str(disk),
            "LOCALCLOUD_URL": self._url,
        }
        config = {
            "name": machine.name,
            "address": machine.address,
            "disk": str(disk),
            "cgroup": self._cgroup(machine.id),
            "environment": environment,
        }
        (disk / "boot.json").write_text(json.dumps(config))

    def _cgroup(self, machine_id: str) -> str:
        return f"localcloud-{self._layout.name}/{machine_id}"

    def _alive(self, machine_id: str) -> Record | None:
        try:
            record = Record(**json.loads((self._layout.machine_disk(machine_id) / "record.json").read_text()))
        except (OSError, ValueError, TypeError):  # no disk, not booted yet, or a folder that is none of ours
            return None
        return record if is_alive(record) else None

    def _collect(self, machine_id: str) -> None:
        child = self._children.get(machine_id)
        if child:
            child.poll()  # otherwise what has ended stays in the table of processes


def is_alive(record: Record) -> bool:
    """Whether that very process runs."""
    try:
        fields = Path(f"/proc/{record.pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] not in "ZX" and int(fields[19]) == record.started and boot == record.boot


def _console(disk: Path) -> IO[bytes]:
    log = disk / "console.log"
    if log.exists() and log.stat().st_size > _CONSOLE_BYTES:
        log.replace(disk / "console.log.1")
    opened = log.open("ab")
    opened.write(f"--- boot at {time.strftime('%FT%TZ', time.gmtime())}\n".encode())
    opened.flush()
    return opened


def _remove_cgroups(name: str) -> None:
    """Remove what the machine had in all trees of cgroups; nothing is in them any more."""
    for top in [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()]:
        own = top / name
        if not top.is_symlink() and own.is_dir():
            for folder in sorted((path for path in own.rglob("*") if path.is_dir()), reverse=True):
                _rmdir(folder)
            _rmdir(own)
            _rmdir(own.parent)  # refused while it holds another machine


def _rmdir(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()
