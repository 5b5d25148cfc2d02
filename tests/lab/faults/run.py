"""One run: a cluster at rest, the fault under a small churn of nodes and Services, its end, the
time until cluster and cloud are equal, and the verdict."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from attrs import define, field, frozen

from cloudprovider.testing.waiting import eventually
from tests.lab.faults.field import STANDING, Fault, Field
from tests.lab.faults.judge import Problem, emptied, overlaps, unproved
from tests.lab.faults.launch import CLOCK, set_clock
from tests.lab.faults.objects import CA_FILE, front, kubeconfig
from tests.support.api import Refused
from tests.support.failover.agreement import disagreement
from tests.support.failover.stage import Ground, Kind, Timing, Way, stage
from tests.support.pki import Authority
from tests.support.proxy import ChaosProxy
from tests.support.services import SERVICES, lb_service

_START_SECONDS: Final = 120.0
_ON_SECONDS: Final = 60.0
_SLACK: Final = 0.25
"""Seconds by which a request may be noticed late on a busy machine."""
_PERIODS: Final = ("--node-monitor-period=1s", "--node-deletion-young-grace=0s", "--route-reconciliation-period=2s")


@frozen
class Form:
    """How long and how large."""

    timing: Timing
    scale: float
    """Of the time for which a fault stands."""
    many: float
    """Of the number of what comes in a crowd."""
    patience: float = 1.0
    """Of the time within which all must be equal: a test's verdict must not depend on a quiet
    machine."""


LONG: Final = Form(Timing(), 1.0, 1.0)
FAST: Final = Form(Timing(), 0.6, 0.04, 3.0)


@define
class Outcome:
    """What came of one run. It passed when it has no problems."""

    fault: Fault
    kind: Kind
    recovery: float | None = None
    """Seconds from the fault's end until cluster and cloud were equal; None: not within its
    time."""
    notes: list[str] = field(factory=list)
    problems: list[Problem] = field(factory=list)

    def __str__(self) -> str:
        verdict = "passed" if not self.problems else "FAILED"
        took = "" if self.recovery is None else f", equal after {self.recovery:.1f} s"
        notes = f" ({'; '.join(self.notes)})" if self.notes else ""
        return "\n".join(
            [f"{self.fault.id} {self.fault.name}, {self.kind}: {verdict}{took}{notes}"]
            + [f"  problem: {one}" for one in self.problems]
        )


def run(
    fault: Fault, kind: Kind, where: Ground, folder: Path, form: Form, *, without: str = "", seed: int = 7
) -> Outcome:
    """Do it on an empty cluster; `folder` must be empty, too. `without`: a mutant's name."""
    outcome = Outcome(fault, kind)
    with _field(fault, kind, where, folder, form, without) as on:
        try:
            _do(on, fault, form, outcome, seed)
        except AssertionError as error:
            outcome.problems.append(Problem(*error.args) if len(error.args) == 2 else Problem("", str(error)))
        _judge(on, fault, outcome)
        outcome.notes += on.notes
        outcome.problems += on.problems
    return outcome


@contextmanager
def _field(fault: Fault, kind: Kind, where: Ground, folder: Path, form: Form, without: str) -> Iterator[Field]:
    with ExitStack() as ends:
        ends.callback(where.api.clear)
        authority = Authority("first-ca")  # Go sends no token over plain HTTP
        (folder / CA_FILE).write_bytes(authority.pem)
        proxy = ends.enter_context(ChaosProxy(where.server.url, where.server.ca_file, front=front(authority, folder)))

        def written(ground: Ground, name: str, own: Path) -> Path:
            set_clock(own, 0.0)
            if fault.direct:
                return ground.server.write_kubeconfig(own / "kubeconfig", token=ground.tokens(name)[0])
            return kubeconfig(proxy, ground, name, own)

        def program(name: str) -> Sequence[str]:
            clock = ["--clock", str(folder / name / CLOCK)] if fault.shift else []
            return ["-m", "tests.lab.faults.launch", *clock, *(["--without", without] if without else [])]

        played = ends.enter_context(
            stage(
                folder,
                [kind] * fault.managers,
                nodes=12,
                timing=form.timing,
                flags=(*_PERIODS, *fault.flags),
                on=where,
                way=Way(written, program),
            )
        )
        seconds = fault.seconds * form.scale if fault.seconds > 3 else fault.seconds
        yield Field(played, proxy, kind, seconds, int(fault.many * form.many))


def _do(on: Field, fault: Fault, form: Form, outcome: Outcome, seed: int) -> None:
    for name in STANDING:
        on.api.create(SERVICES, lb_service(name))
    on.stage.await_agreement(_START_SECONDS)
    on.spy()
    with ExitStack() as ends:
        ends.enter_context(fault.stand(on))
        ends.enter_context(on.stage.churn(seed=seed, rate=fault.churn))
        time.sleep(on.seconds)
    ended = time.monotonic()
    outcome.recovery = _recovered(on, fault.within * form.patience, ended)
    _touch_all(on)
    try:
        on.stage.await_agreement(_ON_SECONDS * form.patience)
    except AssertionError:
        raise AssertionError("something was forgotten", f"something was forgotten: {_difference(on)}") from None


def _recovered(on: Field, within: float, ended: float) -> float:
    """Seconds since `ended` until all is equal."""
    try:
        if on.size:  # so many nodes are listed once, and not ten times a second

            def routed() -> bool:
                return len(on.cloud.console.routes()) >= len(on.cloud.console.instances())

            eventually(routed, within)
        on.stage.await_agreement(max(1.0, ended + within - time.monotonic()))
    except AssertionError:
        late = f"not equal within {within:.0f} s"
        raise AssertionError(late, f"{late}: {_difference(on)}") from None
    return time.monotonic() - ended


def _touch_all(on: Field) -> None:
    """Every Service gets another port, and every load balancer another target."""
    on.join()
    for service in on.api.items(SERVICES):
        if service["spec"]["type"] == "LoadBalancer" and "deletionTimestamp" not in service["metadata"]:
            ports = [{"port": service["spec"]["ports"][0]["port"] + 1000, "protocol": "TCP"}]
            try:
                on.api.patch(f"{SERVICES}/{service['metadata']['name']}", {"spec": {"ports": ports}})
            except Refused as refused:
                if refused.status != 404:
                    raise


def _difference(on: Field) -> str:
    return disagreement(on.api, on.cloud.config.provider, on.cloud.console, limit=3).replace("\n", "; ")


def _judge(on: Field, fault: Fault, outcome: Outcome) -> None:
    verdict = on.stage.verdict(_SLACK)
    managers = on.stage.ground.names(on.stage.supervisor.candidates())
    journal = on.cloud.calls.log()
    outcome.problems += unproved(on.stage.requests(), journal, managers, on.gave_up)
    outcome.problems += emptied(on.targets, len(on.cloud.console.instances()))
    outcome.problems += overlaps(on.cloud.calls.overlaps(unfinished=False))
    late = len(verdict.late)
    if verdict.intruders or late > fault.late:
        wrong = [*verdict.intruders, *verdict.late]
        outcome.problems += [Problem("writes out of turn", f"out of turn: {act}") for act in wrong]
    if verdict.forbidden and not fault.forbidden:
        outcome.problems.append(Problem("refused with 401 or 403", str(verdict)))
    if fault.managers == 1:
        ends = [one for one in on.stage.supervisor.candidates() if one.code is not None]
        if ends:
            outcome.notes.append(f"{len(ends)} restarts")
