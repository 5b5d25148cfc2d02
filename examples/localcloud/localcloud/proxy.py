"""Load balancers with ``mode: proxy``: one HAProxy in the router, with connections of its own.

Its master process reads the configuration again on a signal; open connections stay with the old
worker until they end. It outlives the daemon; the next one finds it by number and start time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import asdict

from localcloud.commands import PACKAGES, find, in_namespace, run
from localcloud.kernel import BalancerRule, KernelError
from localcloud.layout import Layout
from localcloud.machines import Record, is_alive

__all__ = ["Proxy", "configuration"]

_END_SECONDS = 10


def configuration(rules: Sequence[BalancerRule]) -> str:
    """HAProxy's configuration for these load balancers. Pure."""
    lines = [
        "global",
        "    maxconn 4096",
        "    hard-stop-after 1h",  # how long an open connection keeps an old worker
        "defaults",
        "    mode tcp",
        "    timeout connect 3s",
        "    timeout client 1h",
        "    timeout server 1h",
    ]
    for rule in sorted(rules, key=lambda rule: rule.address):
        for port in rule.ports:
            lines += _listen(rule, port.port, port.target_port)
    return "\n".join(lines) + "\n"


def _listen(rule: BalancerRule, port: int, target_port: int) -> Iterator[str]:
    yield f"listen {rule.address}-{port}"
    yield f"    bind {rule.address}:{port}"
    for one in rule.source_ranges:  # a line has 64 words at most; those of one name are alternatives
        yield f"    acl allowed src {one}"
    if rule.source_ranges:
        yield "    tcp-request connection reject unless allowed"
    if not rule.targets:
        yield "    tcp-request connection reject"
    if rule.affinity_seconds is not None:
        yield f"    stick-table type ip size 64k expire {rule.affinity_seconds}s"
        yield "    stick on src"
    yield "    balance roundrobin"
    for target in rule.targets:
        yield f"    server {target.machine} {target.address}:{target_port} weight {min(target.weight, 256)}"


class Proxy:
    """The HAProxy of one cloud. For one thread at a time."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._file = layout.folder / "haproxy.cfg"
        self._record = layout.folder / "haproxy.json"
        self._child: subprocess.Popen[bytes] | None = None
        self._served = ""
        """The configuration that it was told to read; "": this daemon has told none."""

    def apply(self, rules: Sequence[BalancerRule]) -> None:
        """Serve these and no others. Raises KernelError with all that stands in the way."""
        tcp = [rule for rule in rules if all(port.protocol == "TCP" for port in rule.ports)]
        failed = [rule for rule in rules if rule not in tcp]
        problems = [f"load balancer {rule.name}: mode proxy has TCP only" for rule in failed]
        if tcp and not find("haproxy"):
            failed += tcp
            names = ", ".join(rule.name for rule in tcp)
            install = f"Debian, Ubuntu: apt-get install {PACKAGES['haproxy']}"
            problems.append(f"load balancer {names}: mode proxy takes haproxy ({install})")
        elif tcp:
            self._serve(configuration(tcp))
        else:
            self.stop()
        if problems:
            raise KernelError("; ".join(problems), (rule.name for rule in failed))

    def stop(self) -> None:
        """End it with all its connections. Nothing where it does not run."""
        record = self._running()
        if record:
            os.kill(record.pid, signal.SIGTERM)
            deadline = time.monotonic() + _END_SECONDS
            while is_alive(record) and time.monotonic() < deadline:
                self._collect()
                time.sleep(0.01)
        self._collect()
        for file in (self._record, self._file):
            file.unlink(missing_ok=True)

    def _serve(self, text: str) -> None:
        record = self._running()
        if record and self._served == text:
            return
        self._served = ""
        self._file.write_text(text)
        haproxy = find("haproxy") or "haproxy"
        run(in_namespace(self._layout.router_namespace, [haproxy, "-c", "-f", str(self._file)]))
        if record:
            os.kill(record.pid, signal.SIGUSR2)
            self._served = text
            return
        with (self._layout.folder / "haproxy.log").open("ab") as log:
            self._child = subprocess.Popen(
                in_namespace(self._layout.router_namespace, [haproxy, "-W", "-f", str(self._file)]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._record.write_text(json.dumps(asdict(_record_of(self._child.pid))))
        self._served = text

    def _running(self) -> Record | None:
        self._collect()
        try:
            record = Record(**json.loads(self._record.read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return record if is_alive(record) else None

    def _collect(self) -> None:
        if self._child and self._child.poll() is not None:
            self._child = None


def _record_of(pid: int) -> Record:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return Record(pid=pid, started=int(fields[19]), boot=boot)
