"""The first process of a machine: it makes the machine's view of its disk, /proc, /sys and /dev,
runs the userData, and reaps. Stands alone (only the standard library), since it runs as a script.

The host's files are there read-only. What a node's software writes (`PRIVATE` folders, and changes
of /etc) is on the machine's disk. The cgroups are a subtree of the host's and look like the root.
Called as ``init.py CONFIG READY``: a file of JSON (see `Config`), and the number of a file
descriptor that gets one line, empty or what failed, when the userData has been started.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import uuid
from typing import TypedDict

PRIVATE = ("/var/lib", "/var/log", "/var/cache", "/var/tmp", "/run", "/tmp")
"""Folders that are on the machine's own disk."""
EMPTY_AT_BOOT = ("/run", "/tmp")
EMPTY_IN_ETC = ("cni", "containerd", "kubernetes")
"""Folders of the host's /etc that tell the host's own node software what to do."""
DEVICES = (
    "null", "zero", "full", "random", "urandom", "tty", "kmsg", "fuse", "net/tun", "loop-control",
)  # fmt: skip
HOST_SETTINGS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
"""Settings of the whole host that software of a node likes to change: here it finds these values,
and changes files of its own."""
SETTINGS = {
    "net/ipv4/ip_forward": 1,
    "net/ipv4/conf/all/rp_filter": 0,
    "net/ipv4/conf/default/rp_filter": 0,
    "net/bridge/bridge-nf-call-iptables": 1,
    "net/bridge/bridge-nf-call-ip6tables": 1,
}
"""Settings of the machine's own network; those that this kernel lacks are left out."""

_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE, _SHARED = 1, 32, 4096, 16384, 1 << 18, 1 << 20
_DETACH, _NEW_CGROUP = 2, 0x02000000
_libc = ctypes.CDLL(None, use_errno=True)


class Config(TypedDict):
    """What the daemon tells the init."""

    name: str
    address: str
    disk: str
    """The folder that is the machine's disk; in it: root, userdata, record.json, machine-id."""
    cgroup: str
    """Of the machine, below the root of every hierarchy."""
    environment: dict[str, str]
    """Of the userData."""


class Hierarchy(TypedDict):
    """One mounted tree of cgroups."""

    path: str
    kind: str
    options: str


def main(config: Config, ready: int) -> None:
    """Boot, and then reap for ever. Ends only by a signal from outside."""
    try:
        boot(config)
        child = start_user_data(config)
    except Exception as problem:  # its text is all that the daemon will see
        os.write(ready, f"{type(problem).__name__}: {problem}\n".encode())
        raise
    os.write(ready, b"\n")
    os.close(ready)
    reap(child)


def boot(config: Config) -> None:
    """Turn a process in fresh namespaces into the first one of a machine."""
    record(config)
    root = os.path.join(config["disk"], "root")
    own = {path: os.open(root + path, os.O_PATH) for path in prepare_disk(config)}
    disk = os.open(config["disk"], os.O_PATH)
    trees = hierarchies()
    enter_cgroups(trees, config["cgroup"])
    links = {name: os.readlink(f"/sys/fs/cgroup/{name}") for name in _links("/sys/fs/cgroup")}
    for namespace in _mounts_below("/run/netns"):
        _libc.umount2(namespace.encode(), _DETACH)  # a copy would keep a removed namespace alive
    shared = [path for path in _mounts_below("/") if not _within(path, ("/proc", "/sys", "/dev", "/etc", *PRIVATE))]
    mount("proc", "/proc", "proc")
    mount_etc(config["disk"])
    for path, folder in own.items():
        mount(f"/proc/self/fd/{folder}", path, flags=_BIND)
    os.makedirs(config["disk"], exist_ok=True)  # it may be below one of those
    mount(f"/proc/self/fd/{disk}", config["disk"], flags=_BIND)
    for folder in (disk, *own.values()):
        os.close(folder)
    for path in shared:
        with contextlib.suppress(OSError):  # a mount of the host that allows no change
            mount(None, path, flags=_REMOUNT | _BIND | _RDONLY | os.statvfs(path).f_flag & 0x40E)
    make_dev()
    mount("sysfs", "/sys", "sysfs")
    mount_cgroups(trees, links)
    for name, value in HOST_SETTINGS.items():
        file = os.path.join(config["disk"], "settings", name)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        write(file, f"{value}\n")
        if os.path.exists(f"/proc/sys/{name}"):
            mount(file, f"/proc/sys/{name}", flags=_BIND)
    mount(None, "/", flags=_REC | _SHARED)
    for name, value in SETTINGS.items():
        if os.path.exists(f"/proc/sys/{name}"):
            write(f"/proc/sys/{name}", str(value))
    socket.sethostname(config["name"])


def record(config: Config) -> None:
    """Leave the number and start time of this process for whoever must find it again."""
    pid = int(os.readlink("/proc/self"))  # the host's number: its /proc is still mounted here
    with open("/proc/self/stat") as file:
        started = int(file.read().rpartition(")")[2].split()[19])
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot_id = file.read().strip()
    target = os.path.join(config["disk"], "record.json")
    write(f"{target}.new", json.dumps({"pid": pid, "started": started, "boot": boot_id}))
    os.replace(f"{target}.new", target)


def prepare_disk(config: Config) -> list[str]:
    """Make what is missing on the disk; returns the paths of the machine that lie in its root."""
    root = os.path.join(config["disk"], "root")
    for path in PRIVATE:
        own = root + path
        if path in EMPTY_AT_BOOT:
            shutil.rmtree(own, ignore_errors=True)
        os.makedirs(own, exist_ok=True)
    for path in ("/run/lock", "/run/netns", "/var/lib/cni"):
        os.makedirs(root + path, exist_ok=True)
    for path in ("/tmp", "/var/tmp"):
        os.chmod(root + path, 0o1777)
    etc = root + "/etc"
    for path in (etc, os.path.join(config["disk"], "work"), os.path.join(config["disk"], "home")):
        os.makedirs(path, exist_ok=True)
    for name in EMPTY_IN_ETC:
        if not os.path.exists(f"{etc}/{name}"):
            os.mkdir(f"{etc}/{name}")
            with contextlib.suppress(OSError):  # told below, when overlayfs refuses the file system
                os.setxattr(f"{etc}/{name}", "trusted.overlay.opaque", b"y")
    write(f"{etc}/hostname", f"{config['name']}\n")
    write(f"{etc}/hosts", f"127.0.0.1 localhost\n{config['address']} {config['name']}\n")
    write(f"{etc}/resolv.conf", "# A machine of the local cloud reaches no name server.\n")
    identity = os.path.join(config["disk"], "machine-id")
    if not os.path.exists(identity):
        write(identity, f"{uuid.uuid4().hex}\n")
    shutil.copy(identity, f"{etc}/machine-id")
    return [path for path in PRIVATE if os.path.isdir(path)]


def mount_etc(disk: str) -> None:
    """The host's /etc with the machine's changes, which are on its disk."""
    upper, work = (os.open(os.path.join(disk, name), os.O_PATH) for name in ("root/etc", "work"))
    try:
        data = f"lowerdir=/etc,upperdir=/proc/self/fd/{upper},workdir=/proc/self/fd/{work}"
        mount("overlay", "/etc", "overlay", data=data)
    except OSError as problem:
        hint = "the cloud's folder must be on a file system that overlayfs can write to, such as ext4, xfs or tmpfs"
        raise OSError(problem.errno, f"{problem.strerror}; {hint}") from problem
    finally:
        os.close(upper)
        os.close(work)


def hierarchies() -> list[Hierarchy]:
    """The trees of cgroups that the host has mounted below /sys/fs/cgroup."""
    found: list[Hierarchy] = []
    for line in _lines("/proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        path, (kind, _, options) = before.split()[4], after.split(maxsplit=2)
        if kind in ("cgroup", "cgroup2") and path.startswith("/sys/fs/cgroup"):
            found.append({"path": path, "kind": kind, "options": options})
    return found


def enter_cgroups(trees: list[Hierarchy], name: str) -> None:
    """Move this process to the machine's own place in every tree, and make that the root of what it
    sees."""
    for tree in trees:
        own = os.path.join(tree["path"], name)
        os.makedirs(own, exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):  # a new cpuset is empty and takes no process
            if tree["kind"] == "cgroup" and os.path.exists(f"{own}/{setting}"):
                for folder in (os.path.dirname(own), own):
                    above = _text(f"{os.path.dirname(folder)}/{setting}")
                    if not _text(f"{folder}/{setting}").strip():
                        write(f"{folder}/{setting}", above)
        write(f"{own}/cgroup.procs", "0")
    if _libc.unshare(_NEW_CGROUP):
        raise OSError(ctypes.get_errno(), "unshare of the cgroups")
    for tree in trees:
        if tree["kind"] == "cgroup2":
            _make_leaf(os.path.join(tree["path"], name))


def _make_leaf(own: str) -> None:
    """With version 2 only a group without processes can hand its controllers on."""
    os.makedirs(f"{own}/init", exist_ok=True)
    write(f"{own}/init/cgroup.procs", "0")
    for controller in _text(f"{own}/cgroup.controllers").split():
        with contextlib.suppress(OSError):  # one that the host keeps to itself
            write(f"{own}/cgroup.subtree_control", f"+{controller}")


def mount_cgroups(trees: list[Hierarchy], links: dict[str, str]) -> None:
    """Mount the same trees in the machine's own /sys."""
    if not trees:
        return
    if [tree["path"] for tree in trees] != ["/sys/fs/cgroup"]:
        mount("tmpfs", "/sys/fs/cgroup", "tmpfs", data="mode=755")
    for tree in trees:
        os.makedirs(tree["path"], exist_ok=True)
        names = [option for option in tree["options"].split(",") if option not in ("rw", "ro")]
        if any(option.startswith("name=") for option in names):
            names.insert(0, "none")
        mount("cgroup", tree["path"], tree["kind"], data=",".join(names) if tree["kind"] == "cgroup" else None)
    for name, target in links.items():
        with contextlib.suppress(FileExistsError):
            os.symlink(target, f"/sys/fs/cgroup/{name}")


def make_dev() -> None:
    """A /dev of the machine's own with the usual devices."""
    found = {name: os.stat(f"/dev/{name}").st_rdev for name in DEVICES if os.path.exists(f"/dev/{name}")}
    mount("tmpfs", "/dev", "tmpfs", data="mode=755")
    previous = os.umask(0)
    for name, number in found.items():
        os.makedirs(os.path.dirname(f"/dev/{name}"), exist_ok=True)
        os.mknod(f"/dev/{name}", stat.S_IFCHR | (0o600 if name in ("kmsg", "loop-control") else 0o666), number)
    os.umask(previous)
    for folder in ("pts", "shm", "mqueue"):
        os.mkdir(f"/dev/{folder}")
    mount("devpts", "/dev/pts", "devpts", data="newinstance,ptmxmode=0666,mode=620")
    mount("tmpfs", "/dev/shm", "tmpfs", data="mode=1777")
    with contextlib.suppress(OSError):  # few programs use it, not every kernel has it
        mount("mqueue", "/dev/mqueue", "mqueue")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for name, target in links.items():
        os.symlink(target, f"/dev/{name}")


def start_user_data(config: Config) -> subprocess.Popen[bytes] | None:
    """Start the userData, if there is any."""
    script = os.path.join(config["disk"], "userdata")
    if not os.path.exists(script):
        return None
    with open(script, "rb") as file:
        command = [script] if file.read(2) == b"#!" else ["/bin/sh", script]
    return subprocess.Popen(
        command, cwd=config["disk"], env=config["environment"], stdin=subprocess.DEVNULL, start_new_session=True
    )


def reap(user_data: subprocess.Popen[bytes] | None) -> None:
    """Collect the processes that end, and sleep between them, for ever."""
    # Held on to: a Popen that nobody has would collect its process itself, and unheard.
    woken, wake = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    os.write(wake, b"!")  # for those that ended before the handler was there
    while True:
        os.read(woken, 4096)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if user_data and ended[0] == user_data.pid:
                    code = os.waitstatus_to_exitcode(ended[1])
                    print(f"--- the userData ended with {code} at {time.strftime('%FT%TZ', time.gmtime())}", flush=True)


def mount(source: str | None, target: str, kind: str | None = None, *, flags: int = 0, data: str | None = None) -> None:
    """mount(2); raises OSError that names both."""
    texts = [text.encode() if text is not None else None for text in (source, target, kind, data)]
    if _libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]):
        code = ctypes.get_errno()
        raise OSError(code, f"mount of {source} on {target}: {os.strerror(code)}")


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _text(path: str) -> str:
    with open(path) as file:
        return file.read()


def _lines(path: str) -> list[str]:
    return _text(path).splitlines()


def _links(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return [entry.name for entry in os.scandir(folder) if entry.is_symlink()]
    return []


def _within(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _mounts_below(folder: str) -> list[str]:
    """The places of all mounts at and below a folder, the last one first."""
    places = [line.split()[4].encode().decode("unicode_escape") for line in _lines("/proc/self/mountinfo")]
    prefix = folder.rstrip("/") + "/"
    return [place for place in reversed(places) if place == folder or place.startswith(prefix)]


if __name__ == "__main__":
    with open(sys.argv[1]) as _file:
        main(json.load(_file), int(sys.argv[2]))
