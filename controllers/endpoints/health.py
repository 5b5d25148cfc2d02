"""What the health endpoints say: the manager's parts, which of them makes which endpoint fail, how
a check is written, and how metrics count it.

/readyz fails until everything runs, again while stopping, and while a cache is not synced. /livez
fails only for what a restart mends: a controller that died or is wedged, threads lost to hung
calls, credentials that have failed for a minute. /healthz asks everything, overdue cloud calls
included, as alerts watch Go's.

The text follows https://kubernetes.io/docs/reference/using-api/health-checks/: 200 `ok`, or 500
with one line per check, whose reason is withheld from strangers. Names, labels and words of the
metrics are those of k8s.io/component-base metrics/prometheus/slis."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from attrs import define, evolve, frozen

from cloudprovider.host import StopSignal
from cloudprovider.internal.cleaning import one_line
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.queue import seconds_text
from controllers.runtime.write import timestamp

if TYPE_CHECKING:
    from controllers.cloudcalls import CloudCalls
    from controllers.registration.entry import Controller
    from controllers.runtime.cache import InformerFactory
    from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

ENDPOINTS: Final = ("healthz", "livez", "readyz")
SLI_SAMPLES: Final = ("kubernetes_healthcheck", "kubernetes_healthchecks_total", "process_start_time_seconds")
_LONGEST_DETAIL: Final = 1024
_WITHHELD: Final = "reason withheld"

SILENT_SECONDS = 240.0
"""A cache that received nothing for so long is called stale: it missed four bookmarks."""

LOOK_SECONDS = 2.0
"""Between two looks at all checks."""
_TELL_AFTER = 3.0  # seconds for which a check fails until the log says so
_AT_WORK = ("running", "standing by")


@frozen
class Check:
    """One answer: the part's name, whether it is well, and what is worth knowing, or ""."""

    name: str
    ok: bool
    detail: str = ""


Checks = Callable[[], Iterable[Check]]
"""Called at every request, from several threads at once; must not block."""


Observe = Callable[[str, Sequence[Check]], None]


@define
class _Failing:
    began: float
    """By the clock's `monotonic`."""
    stamp: str
    detail: str
    logged: bool = False


class Health:
    """Collects the parts as they start. Written by the manager's thread, read by many."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, observe: Observe = lambda _endpoint, _checks: None) -> None:
        """`observe` hears of each look at the checks of an endpoint."""
        self._clock = clock
        self._observe = observe
        self._endpoints = {"healthz": self._all, "livez": self._liveness, "readyz": self._readiness}
        self._lock = threading.Lock()
        self._failing: dict[str, _Failing] = {}
        self._dead: dict[str, str] = {}
        self._state = "starting"
        self.informers: InformerFactory | None = None
        """The caches to report on."""
        self.cloud: CloudCalls | None = None
        """The gateway to report on."""
        self._controllers: dict[str, tuple[Controller, Callable[[], bool]]] = {}
        self.notes: list[Checks] = []
        """Further checks for /healthz, such as missing permissions."""
        self.needs: list[Checks] = []
        """Further checks for /readyz, of what clients of this replica need."""
        self.vital: list[Checks] = []
        """Further checks for /livez, of what a restart mends."""

    def ready(self) -> None:
        """Everything runs."""
        self._state = "running"

    def standing_by(self) -> None:
        """Ready to take over: as good as running, for a program that counts replicas."""
        self._state = "standing by"

    def stopping(self) -> None:
        """From now on /readyz fails."""
        self._state = "stopping"

    def watch_controller(self, name: str, controller: Controller, alive: Callable[[], bool]) -> None:
        """Report on a started controller; `alive` says whether its thread still runs."""
        # A new one each time: other threads may just go through the old one.
        self._controllers = {**self._controllers, name: (controller, alive)}

    def died(self, name: str, reason: str) -> None:
        """A controller has ended although it was not asked to."""
        self._dead = {**self._dead, name: reason}

    def run(self, stop: StopSignal) -> None:
        """Look again and again until stopped, so that the log tells since when a check fails."""
        while not stop.wait(LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Ask all checks, count what came of it, and tell the log what fails or is well again."""
        for name, ask in self._endpoints.items():
            checks = list(ask())
            self._observe(name, checks)
            # While it starts and stops, checks fail as they should: that is no news for the log.
            if name == "healthz" and self._state in _AT_WORK:
                self._dated(checks, tell=True)

    def fatal(self) -> str:
        """What only an end of the process mends; empty while there is nothing of the kind."""
        if self.cloud is None:
            return ""
        health = self.cloud.health()
        return health.message if health.fatal else ""

    def overdue(self) -> list[str]:
        """The keys of provider calls that were given up and have not ended since."""
        return sorted(self.cloud.parked()) if self.cloud is not None else []

    def unsynced(self) -> str:
        """The caches that wait for their first listing, with what keeps them, for a log line."""
        waiting = [one for one in self.informers.health() if not one.synced] if self.informers else []
        return "; ".join(f"{one.resource} ({one.error or 'no answer yet'})" for one in waiting) or "nothing"

    def endpoint(self, name: str) -> Checks:
        """The checks behind "healthz", "livez" or "readyz"."""
        ask = self._endpoints[name]
        return lambda: self._dated(ask())

    def _dated(self, checks: Iterable[Check], *, tell: bool = False) -> list[Check]:
        """The checks, the failed ones with the time since when."""
        now = self._clock.monotonic()
        dated, well = [], []
        with self._lock:
            for check in checks:
                if check.ok:
                    dated.append(check)
                    if check.name in self._failing:
                        well.append((check.name, self._failing.pop(check.name)))
                    continue
                failing = self._failing.get(check.name)
                if failing is None:
                    stamp = timestamp(self._clock.time())
                    failing = self._failing[check.name] = _Failing(now, stamp, check.detail)
                # The latest reason, and the time of the first one.
                failing.detail = check.detail
                since = f"since {failing.stamp} ({seconds_text(now - failing.began)})"
                dated.append(evolve(check, detail=f"{check.detail}; {since}" if check.detail else since))
            if tell:
                # What is missing from the list (a right that was added, say) has no check of its
                # own when it is well.
                names = {check.name for check in dated}
                well += [(name, self._failing.pop(name)) for name in list(self._failing) if name not in names]
            news = [
                (name, failing)
                for name, failing in self._failing.items()
                if tell and not failing.logged and now - failing.began >= _TELL_AFTER
            ]
            for _, failing in news:
                failing.logged = True
        for name, failing in news:
            log.warning("health: %s fails since %s: %s", name, failing.stamp, failing.detail)
        for name, failing in well:
            if failing.logged:
                log.info("health: %s passes again, after %s", name, seconds_text(now - failing.began))
        return dated

    def _readiness(self) -> list[Check]:
        needs = (check for ask in self.needs for check in ask())
        return [Check("manager", self._state in _AT_WORK, self._state), *self._caches(), *needs]

    def _liveness(self) -> list[Check]:
        fatal = self.fatal()
        vital = (check for ask in self.vital for check in ask())
        return [Check("ping", True), Check("vendor-threads", not fatal, fatal), *self._workers(), *vital]

    def _all(self) -> list[Check]:
        checks = [Check("ping", True), *self._caches(), *self._workers()]
        if self.cloud is not None:
            health = self.cloud.health()
            # Not in livez: a restart does not bring a cloud back.
            checks.append(Check("cloud-calls", health.ok, health.message))
        return [*checks, *self._controllers_notes(), *(check for ask in self.notes for check in ask())]

    def _controllers_notes(self) -> list[Check]:
        """What a restart would not mend, so that it is no matter for livez."""
        checks = []
        for name, (controller, _) in self._controllers.items():
            if (notes := getattr(controller, "notes", None)) is not None:
                checks += _asked(name, "notes()", notes)
        return checks

    def _caches(self) -> list[Check]:
        checks = []
        for one in self.informers.health() if self.informers else ():
            silent = one.silent_for or 0.0
            detail = "" if one.synced else one.error or "waiting for the first list"
            # Bookmarks come each minute: silence means that the connection is half open.
            if one.synced and silent > SILENT_SECONDS:
                detail = f"nothing received from the API server for {silent:.0f} s: {one.error or 'no error known'}"
            if one.quarantined:
                detail = f"{detail} {len(one.quarantined)} malformed objects skipped".strip()
            checks.append(Check(f"informer-{one.resource}", one.synced and silent <= SILENT_SECONDS, detail))
        return checks

    def _workers(self) -> list[Check]:
        checks = []
        for name, (controller, alive) in self._controllers.items():
            if name in self._dead:
                checks.append(Check(name, False, self._dead[name]))
                continue
            # Only while we stop a controller may end without a word.
            if not alive():
                checks.append(Check(name, self._state == "stopping", "has ended"))
                continue
            # One without parts has a line too: without one it would look like one that is off.
            checks += _asked(name, "health()", controller.health) or [Check(name, True)]
        return checks


def _asked(name: str, method: str, ask: Callable[[], Iterable[tuple[str, bool, str]]]) -> list[Check]:
    try:
        return [Check(f"{name}-{part}", ok, detail) for part, ok, detail in ask()]
    except Exception as error:  # noqa: BLE001 - a vendor's own controller: the other checks are looked at all the same
        return [Check(name, False, f"its {method} raised {type(error).__name__}")]


def report(
    endpoint: str,
    checks: Sequence[Check],
    *,
    verbose: bool = False,
    details: bool = True,
    excluded: Collection[str] = (),
) -> tuple[int, str]:
    """The status code and body for these checks, in the format of the Kubernetes components. Pure.

    Without `details` a failed check's reason is withheld; the log has it. Excluded checks count as
    well; a name among them that no check has is reported.
    """
    ill = False
    lines = []
    for check in checks:
        if check.name in excluded:
            lines.append(f"[+]{check.name} excluded: ok")
            continue
        ill = ill or not check.ok
        detail = one_line(check.detail, _LONGEST_DETAIL) if details else "" if check.ok else _WITHHELD
        reason = f": {detail}" if detail else ""
        lines.append(f"[+]{check.name} ok{reason}" if check.ok else f"[-]{check.name} failed{reason}")
    # As kube-apiserver: probes read the status alone, people ask with ?verbose.
    if not ill and not verbose:
        return 200, "ok"
    # A probe that excludes a misspelt check would go on failing, and nobody would see why.
    unknown = sorted(set(excluded) - {check.name for check in checks})
    if unknown:
        named = ", ".join(f'"{one_line(name, 100)}"' for name in unknown[:5])
        lines.append(f"warn: some health checks cannot be excluded: no matches for {named}")
    lines.append(f"{endpoint} check {'failed' if ill else 'passed'}")
    return (500 if ill else 200), "\n".join(lines) + "\n"


class HealthMetrics:
    """Counts looks. For one thread."""

    def __init__(self, metrics: Metrics) -> None:
        self._last = metrics.gauge(
            "kubernetes_healthcheck", "Whether a check passed (1) or failed (0) at the last look.", ("name", "type")
        )
        self._total = metrics.counter(
            "kubernetes_healthchecks_total",
            "Looks at each check, by what came of them: success or error.",
            ("name", "type", "status"),
        )
        self._shown: dict[str, set[str]] = {}

    def observe(self, endpoint: str, checks: Iterable[Check]) -> None:
        """Count one look at the checks of this endpoint. One that is gone has no result."""
        names = set()
        for check in checks:
            names.add(check.name)
            self._last.labels(name=check.name, type=endpoint).set(1 if check.ok else 0)
            self._total.labels(name=check.name, type=endpoint, status="success" if check.ok else "error").inc()
        for gone in self._shown.get(endpoint, set()) - names:
            # Else a permission that was granted meanwhile would read as failed until the restart.
            self._last.remove(gone, endpoint)
        self._shown[endpoint] = names
