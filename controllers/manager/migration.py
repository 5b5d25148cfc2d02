"""Leader migration: which controllers run under the main lease, which under a second one, and which
elsewhere, as --leader-migration-config says.

While a cluster moves its controllers from one manager to another, both hold their own main lease,
and the controllers that move run under a lease that both are candidates for. So none runs twice.

Follows k8s.io/controller-manager's leadermigration package. Two differences: a controller may be
named as on the command line (alias or full name) or by its client, as Go's own default does; and
the second lease is left alone where nothing here runs under it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from controllers.manager.shutdown import Stoppable
from controllers.options.kinds import display
from controllers.program import PROGRAM
from controllers.registration.entry import ControllerEntry
from controllers.runtime.election import wrong_names

if TYPE_CHECKING:
    from controllers.manager.leadership import Leadership
    from controllers.manager.runner import Built
    from controllers.runtime.clock import Clock

log = logging.getLogger(__name__)

ANY: Final = "*"
GROUP: Final = "controllermanager.config.k8s.io"
KIND: Final = "LeaderMigrationConfiguration"
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "v1": ("leaderName", "controllerLeaders"),
    "v1beta1": ("leaderName", "resourceLock", "controllerLeaders"),
    "v1alpha1": ("leaderName", "resourceLock", "controllerLeaders"),
}


class MigrationProblems(Exception):
    """What is wrong with a configuration file, all of it."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@attrs.frozen
class LeaderMigration:
    """The configuration: the name of the second lease, and who runs each controller that moves."""

    lease: str
    leaders: Mapping[str, str]
    """By the controller's name, the component that runs it: ours, another's, or `*` for the one
    that holds the lease."""

    def as_configz(self) -> dict[str, Any]:
        """As /configz shows it."""
        leaders = [{"name": name, "component": component} for name, component in self.leaders.items()]
        return {"leaderName": self.lease, "resourceLock": "leases", "controllerLeaders": leaders}


DEFAULT: Final = LeaderMigration(
    "cloud-provider-extraction-migration",
    {"route-controller": ANY, "service-controller": ANY, "cloud-node-lifecycle-controller": ANY},
)
"""Go's, without a file."""


@attrs.frozen
class Shares:
    """The enabled controllers by what they need before they run."""

    main: tuple[ControllerEntry, ...]
    """The main lease."""
    migrated: tuple[ControllerEntry, ...]
    """The main lease, and the second one."""
    elsewhere: tuple[tuple[ControllerEntry, str], ...]
    """Nothing: the component named runs them."""


def read(path: str) -> LeaderMigration:
    """The configuration in a file; Go's default for an empty path. Raises MigrationProblems."""
    if not path:
        return DEFAULT
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path, or no UTF-8
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise MigrationProblems([f"cannot be read: {reason}"]) from None
    return parse(text)


def parse(text: str) -> LeaderMigration:
    """The configuration in a text, strictly: unknown and repeated fields are wrong. Raises
    MigrationProblems. Pure."""
    from cloudprovider.config import documents  # late: few programs migrate, and YAML takes a while to import

    try:
        raw = documents.parse(text, "migration.yaml").values
    except documents.DocumentError as error:
        raise MigrationProblems(
            [f"line {line}: {wrong}" if line else wrong for line, wrong in error.problems]
        ) from None
    problems: list[str] = []
    fields = _known_fields(raw, problems)
    problems += [f"unknown field {display(str(name))!r}" for name in raw if name not in ("apiVersion", "kind", *fields)]
    lease = _text(raw, "leaderName", problems)
    problems += [f"leaderName {display(lease)!r} {text}" for _, text in wrong_names(lease, "x") if lease]
    lock = raw.get("resourceLock", "leases")
    if "resourceLock" in fields and lock != "leases":
        problems.append(
            f"resourceLock must be leases, not {display(str(lock))!r}: Kubernetes has no other lock any more"
        )
    leaders = _leaders(raw.get("controllerLeaders"), problems)
    if problems:
        raise MigrationProblems(problems)
    return LeaderMigration(lease, leaders)


def share(entries: Sequence[ControllerEntry], migration: LeaderMigration | None) -> Shares:
    """What becomes of each enabled controller; by default all run under the main lease. Pure."""
    main, migrated, elsewhere = [], [], []
    for entry in entries:
        component = _component(entry, entries, migration) if migration is not None else None
        if component is None:
            main.append(entry)
        elif component in (PROGRAM, ANY):
            migrated.append(entry)
        else:
            elsewhere.append((entry, component))
    return Shares(tuple(main), tuple(migrated), tuple(elsewhere))


def _component(entry: ControllerEntry, entries: Sequence[ControllerEntry], migration: LeaderMigration) -> str | None:
    """Who is to run this controller; None where it does not move."""
    shared = [other for other in entries if other.account == entry.account]
    names = (entry.name, *entry.aliases, *((entry.account,) if len(shared) == 1 else ()))
    return next((migration.leaders[name] for name in names if name in migration.leaders), None)


def _known_fields(raw: Mapping[Any, Any], problems: list[str]) -> tuple[str, ...]:
    versions = ", ".join(f"{GROUP}/{version}" for version in _FIELDS)
    group, _, version = str(raw.get("apiVersion", "")).rpartition("/")
    if group != GROUP or version not in _FIELDS:
        problems.append(f"apiVersion is {display(str(raw.get('apiVersion')))!r}; must be one of {versions}")
        version = "v1beta1"
    if raw.get("kind") != KIND:
        problems.append(f"kind is {display(str(raw.get('kind')))!r}; must be {KIND}")
    return _FIELDS[version]


def _leaders(raw: object, problems: list[str]) -> dict[str, str]:
    if raw is None:
        return {}
    if not isinstance(raw, list):
        problems.append("controllerLeaders must be a list")
        return {}
    found: dict[str, str] = {}
    for index, one in enumerate(raw):
        where = f"controllerLeaders[{index}]"
        if not isinstance(one, dict):
            problems.append(f"{where} must be an object with name and component")
            continue
        problems += [f"{where}: unknown field {display(str(key))!r}" for key in one if key not in ("name", "component")]
        name, component = _text(one, "name", problems, where), _text(one, "component", problems, where)
        if name and name in found:
            problems.append(f"{where}: {display(name)} has a component already")
        found[name] = component
    return found


def _text(raw: Mapping[Any, Any], name: str, problems: list[str], where: str = "") -> str:
    value = raw.get(name)
    if isinstance(value, str) and value.strip():
        return value
    problems.append(f"{where}{'.' if where else ''}{name} must be given, as a text that is not empty")
    return ""


class MigrationLease:
    """The second Lease, and the controllers that wait for it. `check` from any thread.

    The candidacy begins when this process leads and its own controllers run, as in Go. Losing
    either lease ends the process."""

    def __init__(self, lease: str, candidate: Callable[[], Leadership], clock: Clock) -> None:
        """`candidate` makes the candidate for the lease of that name, which is not begun yet."""
        self._lease = lease
        self._candidate = candidate
        self._clock = clock
        self._leadership: Leadership | None = None
        self._parts: list[Stoppable] = []
        self._waiting: list[Built] = []
        self.part = Stoppable(f"leader migration on {lease}", self._join, self._stop)
        """To be stopped beside the main lease: both are kept until every controller has ended."""

    def begin(self, built: Sequence[Built], unfinished: Callable[[], str]) -> Leadership | None:
        """Become a candidate for these controllers; None where there are none.

        `unfinished` as for `Leadership.start`."""
        if not built:
            log.info("leader migration: nothing here runs under the lease %s, so it is left alone", self._lease)
            return None
        log.info("leader migration: waiting for the lease %s", self._lease)
        self._waiting = list(built)
        self._leadership = self._candidate()
        self._parts = self._leadership.start(unfinished)
        return self._leadership

    @property
    def waits(self) -> bool:
        """Whether controllers wait for the lease."""
        return bool(self._waiting)

    def take(self) -> list[Built]:
        """The controllers to be started now, each once: when the lease is held. From then on the
        fence asks for it."""
        if self._leadership is None or not self._leadership.leading:
            return []
        taken, self._waiting = self._waiting, []
        if taken:
            names = ", ".join(entry.name for entry, _ in taken)
            log.info("leader migration: running %s under the lease %s", names, self._lease)
        return taken

    def check(self) -> float:
        """Seconds for which controllers may write under the lease; raises LeaseLost if unsure."""
        if self._leadership is None or self._waiting:
            return math.inf
        return self._leadership.fence.check()

    def _stop(self) -> None:
        for part in self._parts:
            part.ask()

    def _join(self, seconds: float) -> bool:
        until = self._clock.monotonic() + seconds
        ended = [part.wait(max(0.0, until - self._clock.monotonic())) for part in self._parts]
        return all(ended)
