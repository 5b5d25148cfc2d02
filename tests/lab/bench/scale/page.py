"""The tables of docs/reports/scale.md, and the goals, which are only printed. Pure."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Mapping, Sequence

from attrs import frozen

from tests.lab.bench.contenders import ROOT, Contender
from tests.lab.bench.report import machine, sentence, table
from tests.lab.bench.scale.life import IDLE_SECONDS, LATENCY_MS, PHASES, ROLLS, WINDOW, ZONES, Size
from tests.lab.bench.scenario import Figure, Figures, Goal, Outcome

PAGE = ROOT / "docs" / "reports" / "scale.md"
WIDTH = 100

Found = Mapping[str, Mapping[str, Figures]]
"""By the number of nodes, as text, and by phase."""


@frozen
class _Phase:
    title: str
    method: str
    figures: tuple[Figure, ...]
    """Besides those of every phase."""
    goals: tuple[tuple[str, float], ...] = ()
    """A figure, and what it may be at every size."""


_HOSTS = (
    Figure("updates", "calls with a host list", 0),
    Figure("mean", "per Service", 1),
    Figure("megabytes", "hosts sent, MB", 1),
)
_PHASES: Mapping[str, _Phase] = {
    "start": _Phase(
        "A start with new nodes and Services",
        "From the start of the process until every node is initialised and every Service has an address.",
        (Figure("seconds", "all done, s"), *_HOSTS),
    ),
    "refresh": _Phase(
        "A node that joins while all others are refreshed",
        "A process starts anew, with nothing to do. It looks at all load balancers and refreshes all nodes; "
        "with the first call of the refresh a node joins.",
        (Figure("seconds", "initialised after, s"), Figure("refresh", "the refresh takes, s")),
    ),
    "idle": _Phase("Nothing happens", f"For {IDLE_SECONDS:.0f} s.", (Figure("memory", "memory, MB", 0),)),
    "failover": _Phase(
        "The leader is killed",
        "Two processes, and SIGKILL for the leader: until the other one's first write on a node. The Lease must "
        "run out first. Lists are those of the second process until then.",
        (Figure("seconds", "first write, s"), Figure("lists", "lists", 0)),
        (("lists", 0),),
    ),
    "restart": _Phase(
        "kube-apiserver is killed and starts again",
        "Until all watches are back, from the first answer of the new server (below zero: before it said that it "
        "is ready); and until a node is initialised that joined then.",
        (
            Figure("away", "server away, s"),
            Figure("seconds", "watches back, s"),
            Figure("initialised", "node initialised, s"),
            Figure("lists", "pages of lists", 0),
        ),
    ),
    "rolling": _Phase(
        "All nodes are replaced",
        f"In {ROLLS} batches: nodes are deleted, as many join, and the next batch comes when these are initialised.",
        (Figure("seconds", "all replaced, s"), *_HOSTS),
    ),
    "zone": _Phase(
        "A zone is gone",
        f"The machines of one of {ZONES} zones are gone, and their nodes are set to NotReady one by one: until "
        f"the last one is deleted, from the last one's NotReady. With `--node-deletion-window={WINDOW}s`: in "
        "the first ten minutes of a process (the default) only one node a minute of a zone without Ready nodes goes.",
        (
            Figure("gone", "nodes gone", 0),
            Figure("seconds", "all deleted, s"),
            Figure("asked", "calls about states", 0),
            *_HOSTS,
        ),
    ),
}
_EVERYWHERE = (
    Figure("cpu", "CPU, s"),
    Figure("server_cpu", "kube-apiserver's CPU, s"),
    Figure("peak", "peak memory, MB", 0),
    Figure("calls", "cloud calls", 0),
    Figure("writes", "writes", 0),
    Figure("reads", "reads", 0),
    Figure("unpaged", "lists in one piece", 0),
    Figure("load", "load", 1),
)
_LINEAR = 1.25


def blocks(found: Found) -> dict[str, str]:
    """By name, the blocks of the page."""
    sizes = [Size(int(key)) for key in sorted(found, key=int)]
    head = f"{time.strftime('%Y-%m-%d')}, {machine()}. Cloud {LATENCY_MS} ms a call; one run each."
    made = {name: _phase(name, sizes, found, head) for name in PHASES}
    return made | {"per node": _per_node(sizes, found)}


def verdicts(found: Found) -> list[str]:
    """Each goal, and whether it was reached: for who measures, not for the page."""
    sizes = [Size(int(key)) for key in sorted(found, key=int)]
    said = [one for name in PHASES for one in _goals(name, sizes, found)]
    if len(sizes) > 1:
        said += [_linear(name, sizes[0], sizes[-1], found) for name in ("start", "rolling")]
    return said


def _phase(name: str, sizes: Sequence[Size], found: Found, head: str) -> str:
    phase = _PHASES[name]
    outcomes = [_outcome(size, name, found) for size in sizes]
    lines = [f"### {phase.title}", "", *textwrap.wrap(head, WIDTH), ""]
    lines += [table((*phase.figures, *_EVERYWHERE), outcomes), ""]
    return "\n".join([*lines, *textwrap.wrap(phase.method, WIDTH)])


def _goals(name: str, sizes: Sequence[Size], found: Found) -> list[str]:
    phase = _PHASES[name]
    outcomes = [_outcome(size, name, found) for size in sizes]
    figures = (*phase.figures, *_EVERYWHERE)
    goals = [Goal(size.name, figure, most) for size in sizes for figure, most in (*phase.goals, ("unpaged", 0))]
    return [f"{phase.title}: {sentence(goal, figures, outcomes)}" for goal in goals]


def _outcome(size: Size, name: str, found: Found) -> Outcome:
    figures = found[str(size.nodes)].get(name)
    contender = Contender(size.name, "ours")
    return Outcome(contender, () if figures is None else (figures,), "" if figures else "not finished")


def _per_node(sizes: Sequence[Size], found: Found) -> str:
    """What a node or a Service costs, at each size."""
    rows = [["phase", *(f"{what}, {size.name}" for what in _EACH for size in sizes)]]
    for name in PHASES:
        cells = [_each(what, size, found[str(size.nodes)].get(name)) for what in _EACH for size in sizes]
        rows.append([_PHASES[name].title, *("" if cell is None else f"{cell:.1f}" for cell in cells)])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(["### Per node and per Service", "", lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


_EACH = ("CPU ms per node", "API requests per node", "cloud calls per Service")


def _each(what: str, size: Size, figures: Figures | None) -> float | None:
    if figures is None:
        return None
    if what == _EACH[0]:
        return 1000 * figures["cpu"] / size.nodes
    if what == _EACH[1]:
        return (figures["writes"] + figures["reads"]) / size.nodes
    return figures["calls"] / size.services


def _linear(name: str, small: Size, large: Size, found: Found) -> str:
    """Whether the work grows with the nodes, and not faster."""
    one, other = (found[str(size.nodes)].get(name) for size in (small, large))
    title = _PHASES[name].title
    text = f"Goal: {title}: CPU per node at {large.name} <= {_LINEAR:g} times that at {small.name}: "
    if one is None or other is None:
        return f"{text}not measured"
    times = (other["cpu"] / large.nodes) / (one["cpu"] / small.nodes)
    return f"{text}{'reached' if times <= _LINEAR else 'missed'} ({times:.2f})"
