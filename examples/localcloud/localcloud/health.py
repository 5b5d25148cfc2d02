"""Health of load balancers' targets: who may get new connections, and since when.

`HealthMonitor` asks every target once a round, all at the same time, and calls `on_change` when the
answer for one of them has changed. The first answer counts at once, whatever it is; after that it
takes `FALLS` failures in a row to leave, and one success to come back.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from attrs import evolve, frozen

from localcloud.model import HealthCheck, LoadBalancer, Machine

__all__ = ["FALLS", "INTERVAL", "TIMEOUT", "HealthMonitor", "Probe", "TargetHealth", "http_check", "probes_of"]

INTERVAL = 1.0
"""Seconds between two rounds."""
TIMEOUT = 1.0
"""Seconds that a target has for its answer."""
FALLS = 2
"""Failures in a row that make a healthy target unhealthy."""
_WORKERS = 32
_LINE = 1024

log = logging.getLogger(__name__)


@frozen(kw_only=True)
class Probe:
    """What to ask about one target of one load balancer."""

    balancer: str
    machine: str
    address: str
    check: HealthCheck | None
    """None: healthy while the machine runs."""


@frozen(kw_only=True)
class TargetHealth:
    """What is known about one target."""

    machine: str
    healthy: bool
    since: float
    """Seconds since the epoch at which `healthy` got its value."""
    failures: int = 0
    """In a row, until now."""


def probes_of(balancers: Sequence[LoadBalancer], machines: Mapping[str, Machine]) -> list[Probe]:
    """All that is to be asked for these load balancers. `machines` is by ID; targets that are no
    machine, or a stopped one, are left out: they are unhealthy unasked."""
    return [
        Probe(balancer=balancer.name, machine=target, address=machines[target].address, check=balancer.health)
        for balancer in balancers
        for target in balancer.targets
        if target in machines and machines[target].state == "running"
    ]


def http_check(address: str, check: HealthCheck) -> bool:
    """Whether GET http://ADDRESS:port/path answers 200 within `TIMEOUT` seconds, drop by drop or
    not."""
    until = time.monotonic() + TIMEOUT
    head = f"Host: {address}:{check.port}\r\nConnection: close\r\nUser-Agent: localcloud-health"
    request = f"GET {check.path} HTTP/1.1\r\n{head}\r\n\r\n"
    line = b""
    try:
        with socket.create_connection((address, check.port), TIMEOUT) as connection:
            connection.sendall(request.encode())
            while b"\n" not in line and len(line) < _LINE:
                connection.settimeout(max(0.001, until - time.monotonic()))
                part = connection.recv(_LINE)
                if not part:
                    break
                line += part
    except OSError:
        return False
    words = line.partition(b"\n")[0].split()
    return words[1:2] == [b"200"] and words[0].startswith(b"HTTP/")


class HealthMonitor:
    """Watches the targets that `watch` names. Thread-safe.

    `on_change` is called without a lock held, from the monitor's thread or from that of `round`.
    When it raises, that is logged and the next round calls it again. `is_running` tells of a
    machine, by its ID. Tests call `round` themselves instead of `start`.
    """

    def __init__(
        self,
        on_change: Callable[[], None],
        is_running: Callable[[str], bool],
        *,
        check: Callable[[str, HealthCheck], bool] = http_check,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._on_change = on_change
        self._is_running = is_running
        self._check = check
        self._now = now
        self._lock = threading.Lock()
        self._probes: tuple[Probe, ...] = ()
        self._known: dict[Probe, TargetHealth] = {}
        self._untold = False
        self._wake = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def watch(self, probes: Sequence[Probe]) -> None:
        """Watch these from now on, and no others. Those that were watched before keep their state;
        the others are asked at once."""
        with self._lock:
            self._probes = tuple(dict.fromkeys(probes))
            self._known = {probe: self._known[probe] for probe in self._probes if probe in self._known}
        self._wake.set()

    def healthy(self, balancer: str) -> frozenset[str]:
        """The IDs of a load balancer's machines that are known to be healthy."""
        return frozenset(health.machine for health in self.status(balancer) if health.healthy)

    def status(self, balancer: str) -> list[TargetHealth]:
        """What is known about the targets of a load balancer; those not asked yet are absent."""
        with self._lock:
            return [self._known[p] for p in self._probes if p.balancer == balancer and p in self._known]

    def round(self) -> bool:
        """Ask all targets once, and wait for the answers; returns whether the health of one has
        changed, which `on_change` has then been told."""
        with self._lock:
            probes = self._probes
        if not probes:
            return False
        questions = list(dict.fromkeys((probe.machine, probe.address, probe.check) for probe in probes))
        with ThreadPoolExecutor(min(_WORKERS, len(questions)), "health") as pool:
            answers = dict(zip(questions, pool.map(self._ask, questions), strict=True))
        with self._lock:
            now, changed = self._now(), False
            for probe in set(probes) & set(self._probes):
                passed = answers[probe.machine, probe.address, probe.check]
                old = self._known.get(probe)
                self._known[probe] = new = _after(old, probe.machine, passed, now)
                changed |= old is None or old.healthy != new.healthy
        self._untold |= changed
        if self._untold:
            self._tell()
        return changed

    def start(self) -> None:
        """Ask in a thread of its own, every `INTERVAL` seconds, until `close`."""
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, after its round. May be called twice."""
        self._closed = True
        self._wake.set()
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join(TIMEOUT * 5)

    def _run(self) -> None:
        while not self._closed:
            began = time.monotonic()
            self._wake.clear()
            try:
                self.round()
            except Exception:  # a dead thread would leave everybody's health as it is
                log.exception("health: a round failed, retrying in %s s", INTERVAL)
            self._wake.wait(max(0.0, INTERVAL - (time.monotonic() - began)))

    def _ask(self, question: tuple[str, str, HealthCheck | None]) -> bool:
        machine, address, check = question
        return self._is_running(machine) if check is None else self._check(address, check)

    def _tell(self) -> None:
        try:
            self._on_change()
            self._untold = False
        except Exception:  # a dead thread would try no more
            log.exception("health: the router was not told of a change, retrying in %s s", INTERVAL)


def _after(old: TargetHealth | None, machine: str, passed: bool, now: float) -> TargetHealth:
    if old is None:
        return TargetHealth(machine=machine, healthy=passed, since=now, failures=0 if passed else 1)
    failures = 0 if passed else old.failures + 1
    healthy = passed or (old.healthy and failures < FALLS)
    if healthy == old.healthy:
        return evolve(old, failures=failures)
    return TargetHealth(machine=machine, healthy=healthy, since=now, failures=failures)
