"""The demo as plain lines: one for each thing that happens, with the seconds since the start.

Scenes come in, lines go to standard output. What happened is found by comparing each scene with what was told before.
"""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Iterator, Sequence

from livedemo.scene import ManagerRow, NodeRow, Role, Scene, ServiceRow

_LEFT_OUT = {"Synced"}
"""Events that say what a line of a node says already."""
_INDENT = " " * 11
_WIDTH = 118


class PlainView:
    """See `view.View`."""

    def __init__(self, acts: Sequence[str] = ()) -> None:
        self._acts = list(acts)
        self._told: set[Hashable] = set()
        self._counted: dict[str, int | None] = {}
        self._now = 0.0
        self._began = 0.0

    def act(self, title: str, watch: str) -> None:
        """See `view.View`."""
        self._began = self._now
        number = self._acts.index(title) + 1
        print(f"\n{number}/{len(self._acts)}  {title}")
        print(textwrap.fill(watch, _WIDTH, initial_indent="     ", subsequent_indent="     "), flush=True)

    def deed(self, text: str) -> None:
        """See `view.View`."""
        self._line(f"> {text}")

    def expected(self, text: str) -> None:
        """See `view.View`."""

    def held(self, text: str, took: float) -> None:
        """See `view.View`."""
        self._line(f"OK {text} ({took:.1f} s)")

    def done(self) -> None:
        """See `view.View`."""

    def show(self, scene: Scene) -> None:
        """See `view.View`."""
        self._now = scene.elapsed
        for key, text in (*_managers(scene), *_events(scene), *_nodes(scene)):
            self._tell(key, text)
        for service in scene.services:
            self._count_targets(service)
        for key, text in _services(scene):
            self._tell(key, text)

    def close(self) -> None:
        """See `view.View`."""

    def block(self, title: str, lines: Sequence[str]) -> None:
        """See `view.View`."""
        print("\n".join(["", title, *lines]), flush=True)

    def _tell(self, key: Hashable, text: str) -> None:
        if key not in self._told:
            self._told.add(key)
            self._line(text)

    def _count_targets(self, service: ServiceRow) -> None:
        before = self._counted.get(service.name)
        self._counted[service.name] = service.targets
        if service.targets == before:
            return
        if service.targets is None:
            self._line(f"load balancer of {service.name}: deleted in the cloud")
        else:
            self._line(f"load balancer of {service.name}: {service.targets} targets")

    def _line(self, text: str) -> None:
        print(f"{self._now:7.2f} s  {text}", flush=True)


Line = tuple[Hashable, str]
"""What makes it one of its kind, and the text."""


def _nodes(scene: Scene) -> Iterator[Line]:
    for row in scene.nodes:
        head = f"node {row.name}:"
        key = (row.name, row.joined)
        yield (*key, "joined"), f"{head} joined, with the uninitialized taint"
        if row.ready is not None:
            yield (*key, "ready"), f"{head} initialised in {row.took or 0:.2f} s: {'  '.join(_facts(row))}"
        if row.routed:
            yield (*key, "routed"), f"{head} has a route for its pods, {row.pod_cidr}"
        if not row.answering:
            yield (*key, "silent"), f"{head} its kubelet is silent, Ready=Unknown"
        if row.deleted is not None:
            yield (*key, "deleted"), f"{head} deleted"


def _facts(row: NodeRow) -> Iterator[str]:
    yield from (fact for fact in (row.provider_id, ",".join(row.addresses), row.type, row.zone) if fact)


def _services(scene: Scene) -> Iterator[Line]:
    for row in scene.services:
        if row.deleted:
            yield ("service", row.name, "deleted"), f"Service {row.name}: deleted"
        elif row.address:
            yield ("service", row.name, row.address), f"Service {row.name}: has the address {row.address}"


def _managers(scene: Scene) -> Iterator[Line]:
    for row in scene.managers:
        yield ("manager", row.name, row.role), f"{row.name} {_role(row)}"


def _role(row: ManagerRow) -> str:
    match row.role:
        case Role.STARTING:
            return f"starts, process {row.pid}"
        case Role.STANDBY:
            return "is on standby"
        case Role.LEADER:
            return "is the leader"
        case Role.DRAINING:
            return "finishes its work"
        case Role.KILLED:
            return "was killed"
        case Role.ENDED:
            return "has ended"


def _events(scene: Scene) -> Iterator[Line]:
    for event in scene.events:
        if event.reason not in _LEFT_OUT:
            yield event, f"Event {event.type} {event.reason} {event.about}: {event.message}"
