"""The page docs/reports/faults.md: made of the catalogue and of the figures that stand on it.

A run replaces the figures of its faults; the others stay. Pure, but for `keep`.
"""

from __future__ import annotations

import re
import textwrap
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.lab.bench.report import machine
from tests.lab.faults.catalogue import BY_ID, FAULTS, GROUPS
from tests.lab.faults.field import Fault
from tests.lab.faults.judge import COUNTED
from tests.lab.faults.run import Outcome

PAGE: Final = Path(__file__).parents[3] / "docs" / "reports" / "faults.md"
WIDTH: Final = 100
Cells = Mapping[str, tuple[str, str]]
"""By ID of the fault: ours, and Go's."""
_NOT_RUN: Final = "not run"
_ROW: Final = re.compile(r"^\| (F\d+) \| [^|]* \| ([^|]*) \| ([^|]*) \|$", re.M)
_WHEN: Final = re.compile(r"^Last measured on (.*?)\n\n", re.M | re.S)

_HEAD = """# Faults

This page is made by `make faults`; only the figures come from runs, and a text is changed in
`tests/lab/faults`.

Each fault has an ID and a test. `make faults` starts a real kube-apiserver and etcd, a fault proxy
before them, the fake cloud in a process of its own, and the manager; in faults of leadership two.
Twelve nodes and six Services are initialised. Then the fault stands for some seconds, while
machines join and leave and Services are made, changed and deleted, five acts a second. At its end
the changes end, too, and the clock starts: it shows how long it takes until cluster and cloud equal
what a run without a fault ends with.

A run passes only if

- cluster and cloud are equal in time: each Node is a machine of the cloud, initialised, and each
  machine is a Node; each Service has its one load balancer, with its address, ports and targets;
  each range of pods has its route;
- nothing was deleted without proof: the API server's audit log and the cloud's journal show an act
  of others before each deletion of a Node, a load balancer or a route;
- no load balancer was left without targets while there were nodes, and no two operations of one
  manager on one load balancer were under way at the same time;
- every write and every change of the cloud was begun by the leader of its time;
- no key was forgotten: afterwards each Service gets another port and each load balancer another
  target, and all is equal again.

The Go manager (k8s.io/cloud-provider 0.37) runs under the same faults, with the same cloud behind
HTTP and 32 workers for each controller. It is not judged: its column shows the time, and what was
wrong. Periods are the same for both: nodes are looked at each second, routes each two; the Lease
has its default times (15 s, 10 s, 2 s). After a process has ended, a new one is started within a
second, as by a kubelet.

`make faults FAULTS="F3 F7"` runs only these, `make faults FAULTS_ARGS=--mutants` shows that the
runs can fail: with a guard of the product taken out, the fault finds it. All faults with both
managers take some {minutes} minutes. A short form of some of them is part of the tests.
"""
_MINUTES: Final = 50


def figure(outcome: Outcome) -> str:
    """One cell: the time, and what was wrong."""
    counted = Counter(one.kind or one.text for one in outcome.problems)
    wrong = [f"{kind}: {count}" if kind in COUNTED else kind for kind, count in counted.items()]
    took = [] if outcome.recovery is None else [f"{outcome.recovery:.1f} s"]
    failed = ["**failed**"] if outcome.problems and outcome.kind == "ours" else []
    return "; ".join([*failed, *took, *wrong]).replace("|", "/").replace("\n", " ") or _NOT_RUN


def keep(path: Path, outcomes: Sequence[Outcome], *, load: float) -> None:
    """Put the figures of these runs on the page."""
    old = path.read_text() if path.exists() else ""
    cells = dict(cells_of(old))
    for one in outcomes:
        ours, go = cells.get(one.fault.id, (_NOT_RUN, _NOT_RUN))
        cells[one.fault.id] = (figure(one), go) if one.kind == "ours" else (ours, figure(one))
    path.write_text(page(cells, f"{time.strftime('%Y-%m-%d')}. {machine()}, load {load:.1f} before."))


def cells_of(text: str) -> Cells:
    """The figures that a page shows."""
    return {name: (ours, go) for name, ours, go in _ROW.findall(text)}


def when_of(text: str) -> str:
    """When they were measured, as the page says."""
    found = _WHEN.search(text)
    return " ".join(found[1].split()) if found else ""


def anew(text: str) -> str:
    """The page with the figures of an older one."""
    return page(cells_of(text), when_of(text))


def page(cells: Cells, when: str) -> str:
    """The whole page."""
    parts = [_HEAD.format(minutes=_MINUTES), *textwrap.wrap(f"Last measured on {when}", WIDTH), ""]
    picture = "![Seconds until all is equal again after each fault, ours and Go's](../pictures/faults.svg)"
    wrong = "Seconds after a fault's end; in red, what went wrong besides: the tables name it. Bars end at 30 s."
    parts += ["## Recovery", "", picture, "", wrong, "", *_table([FAULTS[0]], cells), "", *_about([FAULTS[0]])]
    for title, numbers in GROUPS:
        rows = [BY_ID[f"F{number}"] for number in numbers]
        parts += [f"## {title}", "", *_table(rows, cells), "", *_about(rows)]
    return "\n".join(parts).rstrip() + "\n"


def _table(faults: Sequence[Fault], cells: Cells) -> list[str]:
    rows = ["| ID | fault | ours | Go |", "|---|---|---|---|"]
    for one in faults:
        ours, go = cells.get(one.id, (_NOT_RUN, _NOT_RUN))
        rows.append(f"| {one.id} | {one.name} | {ours} | {'cannot be run' if one.without_go else go} |")
    return rows


def _about(faults: Sequence[Fault]) -> list[str]:
    lines: list[str] = []
    for one in faults:
        text = f"**{one.id}** {one.what}"
        if one.without_go:
            text += f" Not with Go: {one.without_go}."
        if one.tests:
            text += f" More tests: {', '.join(f'`{name}`' for name in one.tests)}."
        lines += [*textwrap.wrap(text, WIDTH - 2, initial_indent="- ", subsequent_indent="  ")]
    return [*lines, ""]
